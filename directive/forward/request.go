package forward

import (
	"encoding/binary"
	"strings"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// passed are the bits of a client's header that are its question's. AD asks
// whether the answer is validated (RFC 6840 §5.7), which is always asked, so that
// one answer does for clients who want to know it and for those who do not.
const passed = wire.FlagRD | wire.FlagCD

// A request is what is asked of upstreams for one or more clients.
type request struct {
	question []byte // in the first client's spelling, with type and class
	flags    uint16
	do       bool
	stream   bool // over a connection from the start
	options  []byte
}

// newRequest makes the request for q's question.
func newRequest(q *dns.Query, stream bool) request {
	r := request{
		question: append([]byte(nil), q.Question()...),
		flags:    q.Flags&passed | wire.FlagAD,
		do:       q.DO,
		stream:   stream,
	}
	r.options = append([]byte(nil), q.Options...)
	return r
}

// key is equal for requests whose answers are.
func (r *request) key(q *dns.Query, excluded string) string {
	var b strings.Builder
	b.Grow(len(r.question) + len(r.options) + len(excluded) + 9)
	b.Write(q.Name())
	b.Write(r.question[len(r.question)-4:])
	bits := byte(0)
	if r.do {
		bits = 1
	}
	if r.stream {
		bits |= 2
	}
	b.Write([]byte{byte(r.flags >> 8), byte(r.flags), bits})
	b.WriteString(excluded)
	b.WriteByte(0)
	b.Write(r.options)
	return b.String()
}

// packet writes the request with room for an id. Without EDNS it says less: for
// upstreams that do not know it.
func (r *request) packet(edns bool) []byte {
	name := r.question[:len(r.question)-4]
	packet := wire.AppendRequest(make([]byte, 0, 64+len(r.question)+len(r.options)), 0, r.flags, name, 0)
	copy(packet[len(packet)-4:], r.question[len(name):])
	if !edns {
		return packet
	}
	do := byte(0)
	if r.do {
		do = 0x80
	}
	packet[11] = 1
	packet = append(packet, 0, 0, byte(wire.TypeOPT), wire.AdvertisedUDPSize>>8, wire.AdvertisedUDPSize&0xFF, 0, 0, do, 0)
	packet = binary.BigEndian.AppendUint16(packet, uint16(len(r.options)))
	return append(packet, r.options...)
}
