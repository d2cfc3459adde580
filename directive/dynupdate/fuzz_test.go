package dynupdate

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"math"
	"slices"
	"testing"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone"
	"github.com/seamark/seamark/zone/saved"
)

const origin wire.Name = "\x07example\x03org\x00"

// fuzzed returns the options of a key that may change everything.
func fuzzed() *options {
	return &options{
		origin: origin, permissions: []permission{{key: "\x03key\x00"}},
		maxRecords: 1000, maxBytes: 1 << 20, maxUpdateRecords: math.MaxUint16,
	}
}

func write(t testing.TB, z *zone.Zone) []byte {
	var file bytes.Buffer
	if err := saved.Write(&file, []byte(fileHead+origin), z); err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

// small returns a zone.
func small(t testing.TB) *version {
	l := newLoader(fuzzed(), nil)
	for _, text := range []string{"@ 5 SOA a b 7 1 1 1 1", "@ 5 NS a", "a 5 A 192.0.2.1", "a 5 A 192.0.2.2", "c 5 CNAME A", "m 5 MX 1 A.b"} {
		rr := parseText(t, text)
		packed := make([]byte, 1000)
		end, err := mdns.PackRR(rr, packed, 0, nil, false)
		if err != nil {
			t.Fatal(err)
		}
		at, _ := wire.ReadRecord(packed[:end], 0)
		if err := l.add(string(packed[:at.Head]), at.Type, wire.ClassIN, 5, string(packed[at.RData:end])); err != nil {
			t.Fatal(err)
		}
	}
	v, err := l.version()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func parseText(t testing.TB, text string) mdns.RR {
	rr, err := mdns.NewRR("$ORIGIN example.org.\n" + text)
	if err != nil {
		t.Fatal(err)
	}
	return rr
}

// sorted returns the records of a zone, whose order is that of a table of hashes.
func sorted(z *zone.Zone) (records [][]byte) {
	for r := range z.Records {
		records = append(records, bytes.Clone(r))
	}
	slices.SortFunc(records, bytes.Compare)
	return records
}

// FuzzUpdate: no message does harm. A zone that it changes has a SOA record with another serial number and
// an NS record, is counted rightly, and is the same when it has been written and read again.
func FuzzUpdate(f *testing.F) {
	old := small(f)
	add := func(edit func(m *mdns.Msg)) {
		m := new(mdns.Msg).SetUpdate("example.org.")
		edit(m)
		packet, err := m.Pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(packet)
	}
	a, soa := parseText(f, "a 9 A 192.0.2.1"), parseText(f, "@ 9 SOA a b 9 1 1 1 1")
	add(func(m *mdns.Msg) { m.Insert([]mdns.RR{a, soa, parseText(f, "m 9 MX 1 a.B")}) })
	add(func(m *mdns.Msg) { m.Remove([]mdns.RR{parseText(f, "a 9 A 192.0.2.1")}) })
	add(func(m *mdns.Msg) { m.RemoveName([]mdns.RR{a, soa}) })
	add(func(m *mdns.Msg) { m.NameUsed([]mdns.RR{a}); m.RRsetNotUsed([]mdns.RR{soa}) })
	add(func(m *mdns.Msg) { m.Insert([]mdns.RR{parseText(f, "d 9 DNAME a"), parseText(f, "c 9 CNAME b")}) })

	f.Fuzz(func(t *testing.T, packet []byte) {
		o := fuzzed()
		m, err := parseMessage(packet, o.maxUpdateRecords)
		if err != nil {
			return
		}
		e := &edit{zone: old.zone, names: map[wire.Name]*editedName{}}
		if err := o.apply(e, m, "\x03key\x00"); err != nil || !e.changed {
			return
		}
		v, err := e.version(old.records)
		if err != nil {
			return
		}

		before, _ := old.zone.Serial()
		apex, ok := v.zone.Owner(origin)
		counts := map[wire.Type]int{}
		if ok {
			apex.RRsets(func(t wire.Type, _ uint32, records []string) { counts[t] = len(records) })
		}
		if after, _ := v.zone.Serial(); after == before || after == 0 || counts[wire.TypeSOA] != 1 || counts[wire.TypeNS] == 0 {
			t.Errorf("got serial number %d after %d, and types %v at the apex", after, before, counts)
		}

		again, err := parseDatabase(bytes.NewReader(write(t, v.zone)), newLoader(o, nil))
		if err != nil {
			t.Fatalf("the new zone cannot be read again: %v", err)
		}
		if got, want := sorted(again.zone), sorted(v.zone); v.records != len(want) || !slices.EqualFunc(got, want, bytes.Equal) {
			t.Errorf("got %d records %x, written and read again %x", v.records, want, got)
		}
	})
}

// FuzzDatabase: a file with any records neither panics nor results in a zone that is another one when it
// has been written and read again. The head and the checksum of the file are always right.
func FuzzDatabase(f *testing.F) {
	head := fileHead + string(origin)
	file := write(f, small(f).zone)
	f.Add(file[len(head) : len(file)-4])
	f.Add([]byte("\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, records []byte) {
		data := append([]byte(head), records...)
		data = binary.BigEndian.AppendUint32(data, crc32.ChecksumIEEE(data))
		v, err := parseDatabase(bytes.NewReader(data), newLoader(fuzzed(), nil))
		if err != nil {
			return
		}
		again, err := parseDatabase(bytes.NewReader(write(t, v.zone)), newLoader(fuzzed(), nil))
		if err != nil {
			t.Fatalf("the zone cannot be read again: %v", err)
		}
		if got, want := sorted(again.zone), sorted(v.zone); !slices.EqualFunc(got, want, bytes.Equal) {
			t.Errorf("got %x, written and read again %x", want, got)
		}
	})
}
