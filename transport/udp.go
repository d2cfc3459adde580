package transport

import (
	"encoding/binary"
	"net"
	"net/netip"
	"runtime/debug"
	"time"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/wire"
)

const (
	// datagram is the largest request that is read whole. We advertise less.
	datagram = dns.BufferSize

	// batchSize is how many datagrams are read and answered at once, if so many
	// are there. Nobody waits for a batch to become full. From 8 on the price
	// of a system call is small beside what it does.
	batchSize = 16

	// arenaSize is the room for a batch's replies. Each takes at most MaxUDPReply
	// once it is sealed, and before that whatever an answer may have.
	arenaSize = wire.MaxMessage + 1 + batchSize*wire.MaxUDPReply

	// socketBuffer is asked for in both directions; the kernel may give less.
	// The usual 208 KB are under 300 queries, which is what comes while a
	// reader is off its CPU for a millisecond; and on the way out it is what
	// the kernel holds for one neighbour that no longer answers its ARP.
	socketBuffer = 1 << 20
)

// A reader answers what comes in at one UDP socket. It owns its queries from
// the time that they are read until their replies are sent; those that are
// parked are given away, and their slot gets another. It is the mover of both.
type reader struct {
	l        *Listener
	conn     *net.UDPConn
	sender   dns.Sender     // the reader, or the batch that it is part of
	wildcard bool           // the socket has no address of its own: see pktinfo_linux.go
	shard    *metrics.Shard // held while a batch is answered
	slots    []slot
	current  int // the slot at hand
	arena    []byte
	used     int // of arena
}

type slot struct {
	q       *dns.Query
	outcome dns.Outcome
}

func newReader(l *Listener, conn *net.UDPConn) *reader {
	r := &reader{l: l, conn: conn, wildcard: l.addr.Addr().IsUnspecified(), shard: l.o.Metrics.NewShard()}
	l.o.Port.AddReader(r.shard)
	return r
}

// run reads until the listener stops. It closes the socket itself, at once after
// it has read the last: what comes then is refused, and not lost in it.
func (r *reader) run() {
	defer r.l.o.Metrics.RemoveShard(r.shard)
	defer r.l.o.Port.RemoveReader(r.shard)
	defer r.conn.Close()
	if !r.l.o.Portable && runBatches(r) {
		return
	}
	r.allocSlots(1, r)
	r.readSingly()
}

// arm gives the reader n slots, whose parked queries mover will send.
func (r *reader) allocSlots(n int, mover dns.Sender) {
	r.arena = make([]byte, arenaSize)
	r.slots = make([]slot, n)
	r.sender = mover
	for i := range r.slots {
		r.slots[i].q = r.newQuery()
	}
}

func (r *reader) newQuery() *dns.Query {
	q := dns.NewQuery(r.sender)
	q.SetShard(r.shard)
	return q
}

// received fills a slot's query. The datagram lies in its Room; whole is false
// if that was too small for it.
func (r *reader) received(q *dns.Query, n int, whole bool, now time.Time) {
	packet := q.Buffer(datagram)[:n]
	if !whole && n >= wire.HeaderLen {
		// Its records are not all here. A number of them that cannot have come
		// makes it malformed, wherever it was cut.
		binary.BigEndian.PutUint16(packet[10:], 0xFFFF)
	}
	q.Reset(packet, dns.UDP, now)
}

// answer serves the queries of the first n slots, which have just been read,
// and lets the observers see them. It holds the reader's shard, which is its turn
// too, and reads the clock once for all.
func (r *reader) answer(n int) {
	r.shard.Lock()
	defer r.shard.Unlock()
	r.used = 0
	for r.current = 0; r.current < n; {
		r.serve(n)
	}
	sealed := time.Now()
	for r.current = 0; r.current < n; {
		r.observe(n, sealed)
	}
}

// serve goes on to answer until all are or one panics.
func (r *reader) serve(n int) {
	defer r.recoverServe()
	for ; r.current < n; r.current++ {
		s := &r.slots[r.current]
		r.record(s, r.l.o.Port.Serve(s.q, r.arena[r.used:r.used]))
	}
}

// rescue answers the query that panicked.
func (r *reader) recoverServe() {
	if cause := recover(); cause != nil {
		s := &r.slots[r.current]
		r.record(s, r.l.o.Port.Recover(s.q, r.arena[r.used:r.used], cause))
		r.current++
	}
}

func (r *reader) record(s *slot, outcome dns.Outcome) {
	s.outcome = outcome
	switch outcome {
	case dns.Answered:
		r.used += len(s.q.Reply())
	case dns.Ignored:
		r.l.counts.unreadableUDP.Add(1)
	case dns.Parked:
		r.l.parked.add()
		s.q = r.newQuery() // the old one is not to be touched
	}
}

func (r *reader) observe(n int, sealed time.Time) {
	defer func() {
		if cause := recover(); cause != nil {
			r.l.observerPanicked(cause)
			r.current++
		}
	}()
	for ; r.current < n; r.current++ {
		if s := &r.slots[r.current]; s.outcome == dns.Answered || s.outcome == dns.Dropped {
			s.q.Observe(sealed)
		}
	}
}

// observerPanicked is called while the stack is still there.
func (l *Listener) observerPanicked(cause any) {
	l.counts.panics.Add(1)
	l.o.Log.Error("an observer panicked", "cause", cause, "stack", string(debug.Stack()))
}

// oneByOne reads and answers single datagrams by package net. This is the way
// of all systems but Linux, and of Linux where recvmmsg is forbidden.
func (r *reader) readSingly() {
	oob := make([]byte, controlSize)
	for {
		s := &r.slots[0]
		n, control, flags, from, err := r.conn.ReadMsgUDPAddrPort(s.q.Buffer(datagram), oob)
		now := time.Now()
		if r.l.isUDPStopping() && err != nil {
			return
		}
		if err != nil && !tooLarge(err) {
			// Errors of a UDP socket are about packets sent before, or pass.
			r.pause()
			continue
		}
		s.q.Peer = netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
		s.q.Local, s.q.Interface = r.l.addr, 0
		control = r.replyControl(oob[:control], s.q)
		r.received(s.q, n, err == nil && !truncated(flags, n), now)
		r.answer(1)
		if s.outcome == dns.Answered {
			if _, _, err := r.conn.WriteMsgUDPAddrPort(s.q.Reply(), oob[:control], from); err != nil {
				r.l.counts.sendUDP.Add(1)
			}
		}
	}
}

// turnAround reads the control message that came with a request, and makes of
// it that of the reply. It returns its length.
func (r *reader) replyControl(control []byte, q *dns.Query) int {
	if !r.wildcard {
		return 0
	}
	local, index, size := replyInfo(control)
	if size > 0 {
		q.Local, q.Interface = netip.AddrPortFrom(local, q.Local.Port()), index
	}
	return size
}

// pause keeps a socket whose reads fail from taking a whole CPU.
func (r *reader) pause() {
	select {
	case <-r.l.udpStopping:
	case <-time.After(10 * time.Millisecond):
	}
}

// Send sends the reply of a query that was parked.
func (r *reader) Send(q *dns.Query) {
	defer r.l.parked.done()
	reply := q.Reply()
	if len(reply) == 0 {
		return
	}
	var control []byte
	if r.wildcard {
		control = controlMessage(q.Local.Addr(), q.Interface, r.l.addr.Addr().Is6())
	}
	if _, _, err := r.conn.WriteMsgUDPAddrPort(reply, control, q.Peer); err != nil {
		r.l.counts.sendUDP.Add(1)
	}
}
