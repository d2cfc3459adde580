package transfer

import (
	"encoding/binary"
	"testing"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/wire"
)

// ixfrQuery returns an IXFR query, and the offset of the length of its SOA record's data.
func ixfrQuery(t testing.TB, serial uint32, compress bool) (packet []byte, length int) {
	t.Helper()
	m := new(mdns.Msg).SetIxfr("example.org.", serial, "ns.example.org.", "host.example.org.")
	m.Compress, m.Ns[0].(*mdns.SOA).Minttl = compress, 60
	packet, err := m.Pack()
	if err != nil || m.Unpack(packet) != nil {
		t.Fatalf("got %x, %v, want a query", packet, err)
	}
	return packet, len(packet) - int(m.Ns[0].Header().Rdlength) - 2
}

// An IXFR query whose SOA record is too short or too long has no serial number: the bytes at its end
// are not one.
func TestClientSerialMalformed(t *testing.T) {
	for _, compress := range []bool{false, true} {
		packet, length := ixfrQuery(t, 7, compress)
		if got, ok := clientSerial(packet); got != 7 || !ok {
			t.Errorf("got %d, %t, want 7", got, ok)
		}
		size := len(packet) - length - 2
		for n := range size + 2 {
			changed := append(packet[:len(packet):len(packet)], 0)[:length+2+n]
			binary.BigEndian.PutUint16(changed[length:], uint16(n))
			if got, ok := clientSerial(changed); ok != (n == size) {
				t.Errorf("data of %d bytes in place of %d: got %d, %t", n, size, got, ok)
			}
		}
	}
}

// FuzzClientSerial: a serial number of an IXFR query is the one that another parser finds. That one
// finds it in some malformed queries, too.
func FuzzClientSerial(f *testing.F) {
	for _, serial := range []uint32{0, 7, 1<<31 - 1, 1<<32 - 1} {
		for _, compress := range []bool{false, true} {
			packet, _ := ixfrQuery(f, serial, compress)
			f.Add(packet)
		}
	}

	f.Fuzz(func(t *testing.T, packet []byte) {
		if len(packet) < wire.HeaderLen {
			return
		}
		got, found := clientSerial(packet)

		var m mdns.Msg
		if m.Unpack(packet) != nil || len(m.Question) != 1 || len(m.Answer) != 0 || len(m.Ns) == 0 {
			return
		}
		soa, ok := m.Ns[0].(*mdns.SOA)
		if found && (!ok || got != soa.Serial) {
			t.Errorf("%x: got %d, want that of %v", packet, got, m.Ns[0])
		}
	})
}
