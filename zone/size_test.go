package zone

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/seamark/seamark/wire"
)

// A Builder keeps no more records of an RRset than a message can hold, and finds
// duplicates in constant time.
func TestBuilderLargeRRset(t *testing.T) {
	b := NewBuilder("\x01z\x00")
	const n = 200_000
	for i := range n {
		var addr [4]byte
		binary.BigEndian.PutUint32(addr[:], uint32(i))
		if err := b.Add("\x01a\x01z\x00", wire.TypeA, 5, string(addr[:])); err != nil {
			t.Fatalf("Add of address %d: error %v", i, err)
		}
	}
	z := b.Zone()
	var found set
	found.get(z.names.get([]byte("\x01a")), wire.TypeA)
	s := z.unpack(found)
	if len(s.records) <= wire.MaxMessage || len(s.records) > 2*wire.MaxMessage || s.n*16 != len(s.records) {
		t.Errorf("got %d records of %d bytes, want records of 16 bytes, %d to %d bytes in all", s.n, len(s.records), wire.MaxMessage, 2*wire.MaxMessage)
	}
}

// A countingServer is a Server that counts the calls of ExceedsLimit.
type countingServer struct {
	a     *wire.Answer
	limit int
	calls int
}

func (s *countingServer) ExceedsLimit() bool {
	s.calls++
	return len(s.a.Buf) > s.limit
}

func (s *countingServer) HasLongerZone(wire.Name, []byte) bool { return false }

// Lookup adds no more records when the answer exceeds the limit of the reply.
func TestLookupLargeAnswer(t *testing.T) {
	const records = 3000
	b := NewBuilder("\x01z\x00")
	for i := range uint32(records) {
		host := fmt.Sprintf("\x05%05d\x01z\x00", i)
		for _, r := range []struct {
			owner string
			t     wire.Type
			rdata string
		}{
			{"\x01a\x01z\x00", wire.TypeA, string(binary.BigEndian.AppendUint32(nil, i))},
			{"\x02mx\x01z\x00", wire.TypeMX, "\x00\x01" + host},
			{"\x03sub\x01z\x00", wire.TypeNS, host},
			{host, wire.TypeA, "\x0a\x00\x00\x01"},
		} {
			if err := b.Add(r.owner, r.t, 5, r.rdata); err != nil {
				t.Fatalf("Add(%q, %s): error %v", r.owner, r.t, err)
			}
		}
	}
	z := b.Zone()
	for _, c := range []struct {
		name wire.Name
		t    wire.Type
	}{
		{"\x01a\x01z\x00", wire.TypeA}, {"\x01a\x01z\x00", wire.TypeANY},
		{"\x02mx\x01z\x00", wire.TypeMX}, {"\x01x\x03sub\x01z\x00", wire.TypeA},
	} {
		packet := wire.AppendRequest(nil, 0, 0, []byte(c.name), c.t)
		var r wire.Request
		r.Parse(packet)
		var a wire.Answer
		a.Reset(nil, r.Question(packet))
		s := &countingServer{a: &a, limit: 512}
		z.Lookup(&r, &a, Scope{Server: s})
		n := int(a.Count[wire.Answers]) + int(a.Count[wire.Authority]) + int(a.Count[wire.Additional])
		if len(a.Buf) <= s.limit || len(a.Buf) > 2*s.limit || s.calls > n+10 {
			t.Errorf("%s %s: got %d bytes, %d records and %d calls of ExceedsLimit; want %d to %d bytes and at most %d calls", c.name, c.t, len(a.Buf), n, s.calls, s.limit+1, 2*s.limit, n+10)
		}
	}
}
