package zone

import (
	"encoding/binary"
	"testing"

	"github.com/seamark/seamark/wire"
)

// No message holds more than some thousand records of one set: what a file has
// beyond that costs neither the time to compare it with all others nor, with
// each query, that to copy it.
func TestASetLargerThanAMessage(t *testing.T) {
	b := NewBuilder("\x01z\x00")
	const n = 200_000
	for i := range n {
		var addr [4]byte
		binary.BigEndian.PutUint32(addr[:], uint32(i))
		if err := b.Add("\x01a\x01z\x00", wire.TypeA, 5, string(addr[:])); err != nil {
			t.Fatal(err)
		}
	}
	s := b.Zone().nodes["\x01a\x01z\x00"].get(wire.TypeA)
	if len(s.records) <= wire.MaxMessage || len(s.records) > 2*wire.MaxMessage || s.n*16 != len(s.records) {
		t.Errorf("%d records of %d bytes", s.n, len(s.records))
	}
}
