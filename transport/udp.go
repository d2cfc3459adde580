package transport

import (
	"encoding/binary"
	"log/slog"
	"net"
	"net/netip"
	"runtime/debug"
	"time"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/wire"
)

const (
	// datagram is the size of the largest request that is read completely: larger
	// than an Ethernet frame. The server advertises less.
	datagram = 1536

	// batchSize is the largest number of datagrams that one call reads. A reader
	// does not wait for a batch to fill. From 8 datagrams on the cost of a system
	// call is small relative to its work.
	batchSize = 16

	// arenaSize is the size of the memory for a batch's replies. A sealed reply
	// has at most MaxUDPReply bytes; the answer before that may be larger.
	arenaSize = wire.MaxMessage + 1 + batchSize*wire.MaxUDPReply
	// readerBytes is the memory of a reader that is counted in the server's budget: with its queries.
	readerBytes = arenaSize + batchSize*2*datagram

	// socketBuffer is the requested size of the socket buffers; the kernel may
	// allow less. The usual 208 KB hold fewer than 300 queries, as many as may
	// arrive while a reader is off its CPU for a millisecond. In the send
	// direction the kernel holds as much for one neighbour that does not answer
	// ARP.
	socketBuffer = 1 << 20
)

// A reader answers the queries of one UDP socket. It owns a query until the reply is
// sent, or the query is parked; then its slot gets a new one. It is the dns.Sender
// of its queries, or the batch that contains it is.
type reader struct {
	l         *Listener
	conn      *net.UDPConn
	sender    dns.Sender     // the reader, or the batch that it is part of
	wildcard  bool           // the socket is bound to a wildcard address: see sockets_linux.go
	shard     *metrics.Shard // held while a batch is answered
	slots     []slot
	slotIndex int // of the query that is being served or observed
	arena     []byte
	arenaUsed int       // bytes of arena that hold sealed replies
	lastQuery time.Time // guarded by shard
}

// A slot holds a datagram and its query.
type slot struct {
	q       *dns.Query
	outcome dns.Outcome
	shed    bool // not answered, because its client exceeds its share
	packet  [datagram]byte
}

func newReader(l *Listener, conn *net.UDPConn) *reader {
	r := &reader{l: l, conn: conn, wildcard: l.addr.Addr().IsUnspecified(), shard: l.o.Metrics.NewShard()}
	l.o.Port.AddReader(r.shard)
	return r
}

// run reads until the listener stops. It closes the socket right after the last
// read: a packet that arrives later is rejected by the kernel, not lost in the
// socket. A socket that another process reads stays open for the replies of parked
// queries.
func (r *reader) run() {
	defer r.l.o.Metrics.RemoveShard(r.shard)
	defer r.l.o.Port.RemoveReader(r.shard)
	defer func() {
		if !r.l.isShared() {
			_ = r.conn.Close()
		}
	}()
	if !r.l.o.Portable && runBatches(r) {
		return
	}
	r.allocSlots(1, r)
	r.readSingly()
}

// allocSlots allocates n slots for the reader. sender sends the replies of their parked
// queries.
func (r *reader) allocSlots(n int, sender dns.Sender) {
	r.arena = make([]byte, arenaSize)
	r.slots = make([]slot, n)
	r.sender = sender
	for i := range r.slots {
		r.slots[i].q = r.newQuery()
	}
}

func (r *reader) newQuery() *dns.Query {
	q := dns.NewQuery(r.sender)
	q.SetShard(r.shard)
	return q
}

// received prepares a slot's query for the datagram of n bytes in the slot. complete
// is false if the datagram was larger.
func (r *reader) received(s *slot, n int, complete bool, now time.Time) {
	packet, tlvs := s.packet[:n], ""
	if p := r.l.proxies.Load(); p != nil {
		packet, tlvs = r.unwrap(p, s.q, packet)
	}

	// Records are missing. An impossible number of records makes Parse report a
	// malformed request.
	if !complete && len(packet) >= wire.HeaderLen {
		binary.BigEndian.PutUint16(packet[10:], 0xFFFF)
	}
	s.q.Reset(packet, dns.UDP, now)
	s.q.ProxyTLVs = tlvs
}

// answer serves and observes the queries of the first n slots. It holds the shard,
// which is also the lock that Port knows. Observers share one time for the batch.
func (r *reader) answer(n int) {
	r.shard.Lock()
	defer r.shard.Unlock()
	r.arenaUsed = 0

	// The loop variables of serve and observe are a field, so that a call continues
	// after the query at which a panic has ended the previous call.
	for r.slotIndex = 0; r.slotIndex < n; {
		r.serve(n)
	}

	sealed := time.Now()
	r.lastQuery = sealed
	for r.slotIndex = 0; r.slotIndex < n; {
		r.observe(n, sealed)
	}
}

// serve answers queries until all are answered or one panics.
func (r *reader) serve(n int) {
	defer r.recoverServe()
	for ; r.slotIndex < n; r.slotIndex++ {
		s := &r.slots[r.slotIndex]
		if s.shed {
			s.shed, s.outcome = false, dns.Ignored
			continue
		}
		r.record(s, r.l.o.Port.Serve(s.q, r.arena[r.arenaUsed:r.arenaUsed]))
	}
}

// recoverServe answers a query whose handler panicked.
func (r *reader) recoverServe() {
	if cause := recover(); cause != nil {
		s := &r.slots[r.slotIndex]
		r.record(s, r.l.o.Port.Recover(s.q, r.arena[r.arenaUsed:r.arenaUsed], cause))
		r.slotIndex++
	}
}

func (r *reader) record(s *slot, outcome dns.Outcome) {
	s.outcome = outcome
	switch outcome {
	case dns.Answered:
		r.arenaUsed += len(s.q.Reply())
	case dns.Ignored:
		if s.q.Packet() != nil { // without a packet: a PROXY header alone, or a rejected one
			r.l.counts.unreadableUDP.Add(1)
		}
	case dns.Parked:
		r.l.parked.add()
		s.q = r.newQuery() // the old one has another owner
	}
}

func (r *reader) observe(n int, sealed time.Time) {
	defer func() {
		if cause := recover(); cause != nil {
			r.l.counts.observerPanicked(r.l.o.Log, cause)
			r.slotIndex++
		}
	}()
	for ; r.slotIndex < n; r.slotIndex++ {
		if s := &r.slots[r.slotIndex]; s.outcome == dns.Answered || s.outcome == dns.Dropped {
			s.q.Observe(sealed)
		}
	}
}

// observerPanicked logs the stack, so it must be called by the deferred function
// that recovers.
func (c *counters) observerPanicked(log *slog.Logger, cause any) {
	c.panics.Add(1)
	log.Error("Observer panicked", "error", cause, "stack", string(debug.Stack()))
}

// readSingly reads and answers single datagrams with package net: on all systems
// except Linux, and on Linux where recvmmsg is forbidden.
func (r *reader) readSingly() {
	oob := make([]byte, controlSize)
	for {
		s := &r.slots[0]
		n, control, flags, from, err := r.conn.ReadMsgUDPAddrPort(s.packet[:], oob)
		now := time.Now()
		if r.l.isUDPStopping() && err != nil {
			return
		}

		// The error concerns a packet that was sent before (ICMP), or is temporary.
		if err != nil && !tooLarge(err) {
			r.pause()
			continue
		}

		s.q.Peer = netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
		s.q.Local, s.q.Interface = r.l.addr, 0
		control = r.replyControl(oob[:control], s.q)
		r.received(s, n, err == nil && !truncated(flags, n), now)
		r.answer(1)

		if s.outcome == dns.Answered {
			if _, _, err := r.conn.WriteMsgUDPAddrPort(s.q.Reply(), oob[:control], from); err != nil {
				r.l.counts.sendUDP.Add(1)
			}
		}
	}
}

// replyControl sets q's Local and Interface from the request's control message, and
// turns the message into the control message of the reply. It returns its length.
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

// pause keeps a reader whose reads fail from using a whole CPU.
func (r *reader) pause() {
	select {
	case <-r.l.udpStopping:
	case <-time.After(10 * time.Millisecond):
	}
}

// Send sends the reply of a parked query.
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
