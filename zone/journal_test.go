package zone

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/seamark/seamark/wire"
)

// A journal counts its bytes, and leaves out the oldest differences beyond its bound; the journal before
// keeps them.
func TestJournal(t *testing.T) {
	soaOf := func(serial uint32) []byte {
		soa := append(wire.AppendRecordHeader(nil, "\x00", wire.TypeSOA, 60, 22), make([]byte, 22)...)
		binary.BigEndian.PutUint32(soa[len(soa)-20:], serial)
		return soa
	}
	soa := soaOf(0)
	record := append(wire.AppendRecordHeader(nil, "\x01a\x00", wire.TypeTXT, 60, 60000), make([]byte, 60000)...)
	var j, before Journal
	for serial := range uint32(2 * MaxJournal / 60000) {
		before = j
		j = j.Then(soaOf(serial), soaOf(serial+1), nil, record)
		size := 0
		for _, d := range j.deltas {
			size += d.size()
		}
		if size != j.Bytes() || size > MaxJournal {
			t.Fatalf("got %d bytes, counted as %d, want at most %d", size, j.Bytes(), MaxJournal)
		}
	}
	if _, ok := j.Since(0, soa); ok {
		t.Error("the differences since the first version are known")
	}

	last := j.deltas[len(j.deltas)-1]
	if _, ok := before.Since(last.from, soa); ok {
		t.Error("the journal before knows the differences since the version that it leads to")
	}
	changes, ok := j.Since(last.from, soa)
	if !ok {
		t.Fatal("the differences since the version before are not known")
	}
	var got []uint32
	for r := range changes {
		if len(r) == len(soa) {
			got = append(got, SOASerial(r))
		} else if !bytes.Equal(r, record) {
			t.Errorf("got a record of %d bytes, want the added one", len(r))
		}
	}
	if len(got) != 2 || got[0] != last.from || got[1] != last.to {
		t.Errorf("got the serial numbers %d, want %d and %d", got, last.from, last.to)
	}

	// Since would begin with a SOA record that no version has had.
	for what, fromEnd := range map[string]int{"TTL": 22 + 3, "primary": 22, "mailbox": 21, "refresh": 16, "minimum": 1} {
		changed := soaOf(last.to + 1)
		changed[len(changed)-fromEnd]++
		if n := j.Then(soaOf(last.to), changed, nil, record).Bytes(); n != 0 {
			t.Errorf("after a change of the SOA record's %s: %d bytes of differences, want none", what, n)
		}
	}
}
