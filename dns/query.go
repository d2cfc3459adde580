package dns

import (
	"net/netip"
	"time"

	"github.com/seamark/seamark/wire"
)

// A Proto is how a query came.
type Proto uint8

const (
	UDP Proto = iota
	TCP
)

func (p Proto) String() string { return [...]string{"udp", "tcp"}[p] }

// A Mover carries packets: one UDP socket, or one TCP connection.
type Mover interface {
	// Send is called once for each query that was parked, from any goroutine,
	// when it is finished. It sends Reply to q.Peer from q.Local unless the
	// reply is empty, and must not keep q.
	Send(q *Query)
}

// A Query is one question and its answer under way. It has one owner at a time:
// the reader, or, from the moment it is parked, the worker that resumes it.
type Query struct {
	wire.Request
	Answer wire.Answer // its memory is lent by the mover until the query is parked
	RCode  wire.RCode
	AA, RA bool
	Err    error // why the answer is SERVFAIL, if there is more to say

	Proto     Proto
	Peer      netip.AddrPort // IPv4 addresses are never mapped into IPv6
	Local     netip.AddrPort // the address that was asked
	Interface int            // index of the interface it came in by; zero if that was not asked for
	Start     time.Time      // when the packet, or its batch, was read
	Elapsed   time.Duration  // from then until the reply was sealed

	mux     *Mux
	mover   Mover
	chain   *Chain
	at, by  int // the step it stands at, and the one that answered
	dropped bool
	sealed  bool

	parent, sub *Query
	depth       int

	packet []byte
	room   [RoomSize]byte // of packet, unless it is larger
	own    []byte         // memory of the answer when none is lent
}

// RoomSize is the size of a packet for which a query has room of its own: more
// than an Ethernet frame holds.
const RoomSize = 1536

// NewQuery makes a query for mover.
func NewQuery(mover Mover) *Query { return &Query{mover: mover} }

// Room gives n bytes to read a packet into.
func (q *Query) Room(n int) []byte {
	if n <= len(q.room) {
		return q.room[:n]
	}
	return make([]byte, n)
}

// Received says that packet, which lies in Room, has come. It starts the
// query; Peer, Local and Interface are set by whoever read it.
func (q *Query) Received(packet []byte, proto Proto, start time.Time) {
	q.packet, q.Proto, q.Start, q.Elapsed = packet, proto, start, 0
	q.RCode, q.AA, q.RA, q.Err = wire.NoError, false, false, nil
	q.chain, q.at, q.by, q.dropped, q.sealed = nil, 0, -1, false, false
	q.parent, q.depth = nil, 0 // sub stays: its memory serves again
}

// Packet is the request as it came.
func (q *Query) Packet() []byte { return q.packet }

// Mover is who carries this query's reply.
func (q *Query) Mover() Mover { return q.mover }

// Question is the question as the client spelled it: name, type and class.
func (q *Query) Question() []byte { return q.Request.Question(q.packet) }

// SpelledName is the question's name in wire form as the client spelled it; the
// same length as Name.
func (q *Query) SpelledName() []byte {
	question := q.Question()
	return question[:max(0, len(question)-4)]
}

// Chain is the chain that the query walks; nil if it was answered before it
// came to one.
func (q *Query) Chain() *Chain { return q.chain }

// By names the directive that answered, "" if none did.
func (q *Query) By() string {
	if q.by < 0 || q.chain == nil {
		return ""
	}
	return q.chain.steps[q.by].name
}

// Step is the place in Chain.Steps of the handler that answered, -1 if none did.
func (q *Query) Step() int { return q.by }

// Fail takes back what there is of an answer and makes it this code alone.
func (q *Query) Fail(code wire.RCode) {
	q.Answer.Clear()
	q.RCode, q.AA = code, false
}

// Dropped says that the client gets no reply.
func (q *Query) Dropped() bool { return q.dropped }

// Reply is the sealed message; empty if there is none to send.
func (q *Query) Reply() []byte {
	if !q.sealed || q.dropped {
		return nil
	}
	return q.Answer.Buf
}

// keep moves the answer out of lent memory.
func (q *Query) keep() {
	body := q.Answer.Buf
	if cap(q.own) < len(body)+wire.MinUDP {
		q.own = make([]byte, 0, max(2048, 2*len(body)))
	}
	q.Answer.Buf = append(q.own[:0], body...)
}
