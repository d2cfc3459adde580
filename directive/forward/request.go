package forward

import (
	"encoding/binary"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// forwardedFlags are the header bits that are copied from the client's query. AD, which
// requests validation (RFC 6840 §5.7), is always set, so that one answer serves clients
// that set it and clients that do not.
const forwardedFlags = wire.FlagRD | wire.FlagCD

// A request is the query that is sent to upstreams, for one or more clients.
type request struct {
	question []byte // in the first client's spelling, with type and class
	flags    uint16
	do       bool
	stream   bool // send over a connection from the start
	options  []byte
	ownZones *dns.OwnZones // of the clients' server; nil for classes other than IN

	observed bool // keep the messages for observers of the exchange
}

// class returns the class of the question.
func (r *request) class() wire.Class {
	return wire.Class(binary.BigEndian.Uint16(r.question[len(r.question)-2:]))
}

func newRequest(q *dns.Query, stream bool) request {
	r := request{
		question: append([]byte(nil), q.Question()...),
		flags:    q.Flags&forwardedFlags | wire.FlagAD,
		do:       q.DO,
		stream:   stream,
	}
	r.options = append([]byte(nil), q.Options...)
	if q.Class == wire.ClassIN {
		r.ownZones = q.OwnZones()
	}
	return r
}

// packet returns the request as a message.
func (r *request) packet(id uint16, edns bool) []byte {
	name := r.question[:len(r.question)-4]
	packet := wire.AppendRequest(make([]byte, 0, 64+len(r.question)+len(r.options)), id, r.flags, name, 0)
	copy(packet[len(packet)-4:], r.question[len(name):])
	if !edns {
		return packet
	}

	packet[11] = 1 // additional record: OPT
	packet = wire.AppendOPT(packet, wire.NoError, r.do, len(r.options))
	return append(packet, r.options...)
}

// pad adds a padding option to a packet of the request with an OPT record, which makes its size
// a multiple of 128 bytes (RFC 8467 §4.1).
func (r *request) pad(packet []byte) []byte {
	const block, header = 128, 4
	packet = wire.AppendOption(packet, wire.OptionPadding, make([]byte, (block-(len(packet)+header)%block)%block))
	size := len(packet) - len(r.packet(0, true)) + len(r.options)
	binary.BigEndian.PutUint16(packet[len(packet)-size-2:], uint16(size))
	return packet
}
