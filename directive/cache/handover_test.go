package cache

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/wire"
)

// A store loads the entries of another one with their ages, stale ones too, and only
// those of its own server blocks.
func TestLoadState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const text = ".:53 {\n cache {\n  serve_stale\n }\n upstream a\n}\n"
		before := newHarness(t, text)
		before.upstream("a").answer = addressAnswer(60)
		for _, name := range []string{"a.example.org.", "b.example.org."} {
			before.ask(newQuery(name, mdns.TypeA))
		}
		before.upstream("a").answer = answerWith(wire.NXDomain, ";\nexample.org. 100 IN SOA a. b. 1 2 3 4 100")
		before.ask(newQuery("none.example.org.", mdns.TypeA))
		time.Sleep(20 * time.Second)
		var data bytes.Buffer
		if err := before.caches[0].store.SaveState(&data); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second) // This is the time of the transfer.

		after := newHarness(t, text)
		if err := after.caches[0].store.LoadState(bytes.NewReader(data.Bytes())); err != nil {
			t.Fatal(err)
		}
		reply, inline := after.ask(newQuery("a.example.org.", mdns.TypeA))
		if !inline || len(reply.Answer) != 1 || reply.Answer[0].Header().Ttl != 20 {
			t.Errorf("a.example.org.: got %v, from the cache %v, want a TTL of 60 - 40 seconds", reply, inline)
		}
		if reply, inline := after.ask(newQuery("none.example.org.", mdns.TypeA)); !inline || reply.Rcode != mdns.RcodeNameError {
			t.Errorf("none.example.org.: got %v, from the cache %v, want NXDOMAIN", reply, inline)
		}
		after.upstream("a").wantQueries(t, 0)

		other := newHarness(t, ".:53 {\n cache\n upstream other\n}\n")
		if err := other.caches[0].store.LoadState(bytes.NewReader(data.Bytes())); err != nil {
			t.Fatal(err)
		}
		if n := other.caches[0].store.bytes; n != 0 {
			t.Errorf("another server block: got %d bytes of entries, want none", n)
		}
		short := newHarness(t, text)
		if err := short.caches[0].store.LoadState(bytes.NewReader(data.Bytes()[:data.Len()-10])); err == nil || short.caches[0].store.bytes == 0 {
			t.Errorf("incomplete data: got error %v and %d bytes of entries, want an error and the entries before", err, short.caches[0].store.bytes)
		}
	})
}

// LoadState does not panic, whatever data another process sends.
func FuzzLoadState(f *testing.F) {
	st := NewStore(MaxBytes, nil)
	s := st.scope("scope", [2]int{10, 10})
	k := key{name: []byte("\x01a\x00"), t: wire.TypeA, class: 1}
	k.setHash(st, s)
	e := makeEntry(s, &k, success, nil, nil)
	e.setTimes(0, time.Hour, 0)
	st.put(e, 0, 0)
	var data bytes.Buffer
	if err := st.SaveState(&data); err != nil {
		f.Fatal(err)
	}
	f.Add(data.Bytes())
	for _, flags := range []string{"8", "192", "255"} { // beside those of a query
		one := bytes.Replace(data.Bytes(), []byte(`"Flags":0`), []byte(`"Flags":`+flags), 1)
		f.Add(append(one, one...))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		st := NewStore(1<<20, nil)
		st.scope("scope", [2]int{10, 10})
		_ = st.LoadState(bytes.NewReader(data))
	})
}

// The name of a scope, which may be the text of many hosts, is saved once.
func TestSaveStateLongScope(t *testing.T) {
	name := strings.Repeat("x", 50_000)
	before, after := NewStore(MaxBytes, nil), NewStore(MaxBytes, nil)
	s := before.scope(name, [2]int{1000, 1000})
	for i := range 1000 {
		k := key{name: fmt.Appendf(nil, "\x04%04d\x00", i), t: wire.TypeA, class: 1}
		k.setHash(before, s)
		e := makeEntry(s, &k, success, nil, nil)
		e.setTimes(0, time.Hour, 0)
		before.put(e, 0, 0)
	}

	var data bytes.Buffer
	if err := before.SaveState(&data); err != nil {
		t.Fatal(err)
	}
	saved := len(before.all()[name])
	after.scope(name, [2]int{1000, 1000})
	if size, err := data.Len(), after.LoadState(&data); err != nil || size > 1<<20 || saved == 0 || len(after.all()[name]) != saved {
		t.Errorf("got %d bytes and %d of %d entries, error %v; want at most 1 MB and all", size, len(after.all()[name]), saved, err)
	}
}

// Entries that no cache has are left out, and those behind them are loaded.
func TestLoadStateInvalidEntry(t *testing.T) {
	good := savedEntry{
		Scope: "scope", Name: []byte("\x01b\x00"), Type: wire.TypeA, Class: wire.ClassIN, Count: [3]uint16{1}, Expires: time.Now().Add(time.Minute),
		Records: wire.AppendAddress(nil, wire.OwnerIsQuestion, 60, netip.MustParseAddr("192.0.2.1")), Extended: []byte{0, 15, 0, 2, 0, 22},
	}
	for name, change := range map[string]func(e *savedEntry){
		"flags":          func(e *savedEntry) { e.Flags = 255 },
		"kind":           func(e *savedEntry) { e.Kind = numKinds },
		"name":           func(e *savedEntry) { e.Name = bytes.Repeat([]byte{1}, 300) },
		"extended error": func(e *savedEntry) { e.Extended = []byte{0, 15, 0, 9} },
		"rest of one":    func(e *savedEntry) { e.Extended = []byte{0, 15, 0, 0, 0} },
	} {
		wrong := good
		wrong.Name = []byte("\x01a\x00")
		change(&wrong)
		var data bytes.Buffer
		for _, e := range []savedEntry{wrong, good} {
			if err := json.NewEncoder(&data).Encode(e); err != nil {
				t.Fatal(err)
			}
		}
		st := NewStore(1<<20, nil)
		st.scope("scope", [2]int{10, 10})
		if err := st.LoadState(&data); err == nil || len(st.all()["scope"]) != 1 {
			t.Errorf("%s: got %d entries, error %v; want the other one, and an error", name, len(st.all()["scope"]), err)
		}
	}
}

// Entries with malformed records are left out, since clients reject them, and the others are loaded.
func TestLoadStateMalformedRecord(t *testing.T) {
	records := chaintest.MalformedRecords()
	for i, r := range append(records, chaintest.RawRecord{Type: mdns.TypeTXT, RData: "\x01a"}) {
		st := NewStore(1<<20, nil)
		st.scope("scope", [2]int{10, 10})
		record := append(wire.AppendRecordHeader(nil, wire.OwnerIsQuestion, wire.Type(r.Type), 60, len(r.RData)), r.RData...)
		saved := savedEntry{
			Scope: "scope", Name: []byte("\x01a\x00"), Type: wire.Type(r.Type), Class: wire.ClassIN,
			Records: record, Count: [3]uint16{1}, Expires: time.Now().Add(time.Minute),
		}
		good := saved
		good.Name, good.Type, good.Records = []byte("\x01b\x00"), wire.TypeA, wire.AppendAddress(nil, wire.OwnerIsQuestion, 60, netip.MustParseAddr("192.0.2.1"))

		var data bytes.Buffer
		for _, e := range []savedEntry{saved, good} {
			if err := json.NewEncoder(&data).Encode(e); err != nil {
				t.Fatal(err)
			}
		}
		err := st.LoadState(&data)
		if valid, n := i == len(records), len(st.all()["scope"]); valid != (err == nil) || valid && n != 2 || !valid && n != 1 {
			t.Errorf("%s: got %d entries, error %v; want the other one, and an error if the record is malformed", r.Text(), n, err)
		}
	}
}

// An entry that counts another number of records than it has is left out.
func TestLoadStateWrongCount(t *testing.T) {
	address := wire.AppendAddress(nil, wire.OwnerIsQuestion, 60, netip.MustParseAddr("192.0.2.1"))
	for _, count := range [][3]uint16{{}, {2}, {1, 1}, {0, 0, 2}, {1}} {
		e := savedEntry{Name: []byte("\x01a\x00"), Type: wire.TypeA, Class: wire.ClassIN, Records: address, Count: count}
		if err := e.check(new(wire.Answer)); (err == nil) != (count == [3]uint16{1}) {
			t.Errorf("count %v of one record: got error %v", count, err)
		}
	}
}
