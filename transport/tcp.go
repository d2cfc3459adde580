package transport

import (
	"encoding/binary"
	"errors"
	"io"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

const (
	// inSize holds one message with its length, or some forty ordinary ones.
	inSize = 2048

	// outSize is when replies are sent although more queries have been read.
	outSize = 8 << 10

	// maxLarge bounds the messages that are larger than a Query's own room, of
	// all connections together: up to 64 KB each, which nobody needs for a
	// question. At the bound they wait for one another.
	maxLarge = 64

	// reading is the reader's share in conn.refs.
	reading = 1 << 20
)

// A conn is one TCP connection (RFC 7766). Its reader answers what it can at
// once and gathers the replies of all that one read brought; the replies of
// parked queries go when they are ready, in any order (tcp_write.go). It is
// closed when the reader and the last parked query have let go of it, so a
// client that has shut down its side gets all its answers.
//
// Its reader is a goroutine of its own (run), from the time that it is attended.
// Before that, on Linux, it has none: the desk answers its first queries
// (desk_linux.go).
//
// What cannot be a query (no header, no question, a reply) ends the connection
// after the answers to what came before: who sends that has lost count of the
// lengths.
type conn struct {
	l           *Listener
	client      netip.Addr // whom it is counted for
	peer, local netip.AddrPort

	// The reader's own. The desk lends the first two, as long as it reads.
	serving      *sync.Mutex
	in           []byte
	q            *dns.Query // the next, while there is something to answer
	r, w         int        // what of in is still to be looked at
	now          time.Time
	messageStart time.Time // when the message came of which in holds a part
	deadline     time.Time // as it is set
	out          *buffer   // replies not yet sent; nil if there are none
	invalid      bool      // something came that is no query
	queries      int       // how many have come
	drainFirst   bool      // there may be unread bytes: see end
	loop         loopState // where it is while it is not attended

	lastActive atomic.Int64  // when something was read or a late reply sent: see Listener.clock
	refs       atomic.Int32  // queries in flight, and reading
	written    chan struct{} // told when there are less of them
	cutDone    chan struct{} // closed when it is cut

	sendState
}

// A socket is what a connection needs of its own: a *net.TCPConn, or what the
// desk makes of a descriptor.
type socket interface {
	io.ReadWriteCloser
	CloseWrite() error
	SetLinger(seconds int) error
	SetReadDeadline(t time.Time) error
	SetWriteDeadline(t time.Time) error
}

// newConn makes a connection that is not attended.
func newConn(l *Listener, peer, local netip.AddrPort) *conn {
	c := &conn{
		l: l, peer: peer, local: local, client: clientKey(peer.Addr()),
		written: make(chan struct{}, 1), cutDone: make(chan struct{}),
	}
	c.refs.Store(reading)
	c.writerDone.L = &c.mu
	c.writing = true
	c.now = time.Now()
	c.lastActive.Store(l.clock(c.now))
	return c
}

// clock is t as a number that never goes back.
func (l *Listener) clock(t time.Time) int64 { return int64(t.Sub(l.start)) }

// inFlight counts the parked queries whose replies are not yet written.
func (c *conn) inFlight() int { return int(c.refs.Load() & (reading - 1)) }

// release lets go of the connection; the last one ends it.
func (c *conn) release(refs int32) {
	if c.refs.Add(-refs) == 0 {
		c.closeGracefully()
	}
}

// attend gives the connection a goroutine, which takes up what has been read
// and not answered, and answered and not sent.
func (c *conn) startReader(tcp socket) {
	own := make([]byte, inSize)
	c.w = copy(own, c.in[c.r:c.w])
	c.in, c.r = own, 0
	c.serving = new(sync.Mutex)
	c.l.o.Port.AddReader(c.serving)
	c.mu.Lock()
	c.tcp = tcp
	dead := c.dead
	c.mu.Unlock()
	if dead {
		reset(tcp)
	}
	c.l.conns.running.Go(c.run)
}

// run reads until the client or the listener has had enough.
func (c *conn) run() {
	c.flushInitial()
	for c.readNext() {
	}
	c.flush()
	c.l.o.Port.RemoveReader(c.serving)
	c.release(reading)
}

// step does one thing and says whether there is more to do.
func (c *conn) readNext() bool {
	if c.doneReading() {
		c.drainFirst = true
		return false
	}
	have := c.w - c.r
	if have < 2 {
		return c.fill()
	}
	size := int(binary.BigEndian.Uint16(c.in[c.r:]))
	switch {
	case size > datagram:
		return c.readLarge(size)
	case have < 2+size:
		return c.fill()
	}
	return c.serveRead()
}

// take gives the next message, if it is there.
func (c *conn) nextMessage() ([]byte, bool) {
	have := c.in[c.r:c.w]
	if len(have) < 2 {
		return nil, false
	}
	size := int(binary.BigEndian.Uint16(have))
	if size > datagram || len(have) < 2+size {
		return nil, false
	}
	c.r += 2 + size
	c.messageStart = c.now
	return have[2 : 2+size], true
}

// answer serves the messages that have been read.
func (c *conn) serveRead() bool {
	if !c.waitInFlight() {
		return false
	}
	c.serveMessages()
	if c.out != nil && len(c.out.b) >= outSize {
		return c.flush()
	}
	return true
}

// gather serves messages and leaves the replies in out. It holds the turn, and
// never waits while it does. It says whether a query has been parked.
func (c *conn) serveMessages() (parked bool) {
	a := c.l.arenas.Get().(*arena)
	c.serving.Lock()
	for !c.doneReading() && c.inFlight() < c.l.o.MaxInFlight && (c.out == nil || len(c.out.b) < outSize) {
		message, ok := c.nextMessage()
		if !ok {
			break
		}
		c.q = a.query(c)
		packet := c.q.Buffer(len(message))
		copy(packet, message)
		c.serveQuery(packet, a.answer[:0])
		if c.q == nil {
			parked, a.q = true, nil
		}
	}
	c.serving.Unlock()
	c.q = nil
	a.release()
	c.l.arenas.Put(a)
	c.lastActive.Store(c.l.clock(c.now))
	return parked
}

// one serves the query that lies in packet, the next query's Buffer. If it is
// parked there is no next one any more.
func (c *conn) serveQuery(packet, lent []byte) {
	q := c.q
	c.queries++
	q.Peer, q.Local, q.Interface = c.peer, c.local, 0
	q.Reset(packet, dns.TCP, c.now)
	switch c.serve(q, lent) {
	case dns.Answered:
		now := time.Now()
		if c.out == nil {
			c.out = c.l.buffers.Get().(*buffer)
		}
		c.out.add(q.Reply())
		c.observe(q, now)
	case dns.Dropped:
		c.observe(q, time.Now())
	case dns.Ignored:
		c.l.counts.unreadableTCP.Add(1)
		c.invalid = true
	case dns.Parked:
		// If the worker has been faster, the count was too small for a moment:
		// reading is part of it, so nobody saw the last one leave.
		c.refs.Add(1)
		c.q = nil
	}
}

func (c *conn) serve(q *dns.Query, lent []byte) (outcome dns.Outcome) {
	defer func() {
		if cause := recover(); cause != nil {
			outcome = c.l.o.Port.Recover(q, lent, cause)
		}
	}()
	return c.l.o.Port.Serve(q, lent)
}

func (c *conn) observe(q *dns.Query, sealed time.Time) {
	defer func() {
		if cause := recover(); cause != nil {
			c.l.observerPanicked(cause)
		}
	}()
	q.Observe(sealed)
}

// room waits until another query may be parked. The client is not read
// meanwhile; what it has already been answered is sent.
func (c *conn) waitInFlight() bool {
	if c.inFlight() < c.l.o.MaxInFlight {
		return true
	}
	if !c.flush() {
		return false
	}
	for c.inFlight() >= c.l.o.MaxInFlight {
		select {
		case <-c.written:
		case <-c.cutDone:
			return false
		}
	}
	c.messageStart = time.Now() // as in flush
	return true
}

// large reads and answers a message for which a Query has no room.
func (c *conn) readLarge(size int) bool {
	if !c.waitInFlight() || !c.flush() {
		return false
	}
	timeout := time.NewTimer(c.l.limits.Load().MessageTimeout)
	defer timeout.Stop()
	select {
	case c.l.large <- struct{}{}:
	case <-timeout.C:
		return c.cutSlowSender()
	case <-c.l.stopping:
		return false
	case <-c.cutDone:
		return false
	}
	c.messageStart = time.Now() // as in flush
	c.q = dns.NewQuery(c)
	q := c.q
	packet := q.Buffer(size)
	n := copy(packet, c.in[c.r+2:c.w])
	c.r += 2 + n
	for n < size {
		k, ok := c.read(packet[n:], true)
		if !ok {
			<-c.l.large
			return false
		}
		n += k
	}
	c.messageStart = c.now
	a := c.l.arenas.Get().(*arena)
	c.serving.Lock()
	c.serveQuery(packet, a.answer[:0])
	c.serving.Unlock()
	c.l.arenas.Put(a)
	if c.q != nil { // or it is parked, and Send makes room
		c.q = nil
		<-c.l.large
	}
	c.lastActive.Store(c.l.clock(c.now))
	return true
}

// enough says that nothing more is to be read.
func (c *conn) doneReading() bool {
	most := c.l.limits.Load().MaxQueries
	return c.invalid || most > 0 && c.queries >= most
}

// fill reads more of the input. Before it waits for the client it gives it all
// the replies that are there.
func (c *conn) fill() bool {
	if !c.flush() {
		return false
	}
	c.w = copy(c.in, c.in[c.r:c.w])
	c.r = 0
	first := c.w == 0
	n, ok := c.read(c.in[c.w:], !first)
	if first {
		c.messageStart = c.now
	}
	c.w += n
	return ok
}

// read waits for bytes: as long as a connection may be idle, or, when a message
// has begun, as long as one may take.
func (c *conn) read(to []byte, begun bool) (n int, ok bool) {
	for {
		limits := c.l.limits.Load()
		until, span := c.messageStart.Add(limits.MessageTimeout), limits.MessageTimeout
		if !begun {
			span = limits.IdleTimeout
			if until = c.l.start.Add(time.Duration(c.lastActive.Load()) + span); c.inFlight() > 0 {
				until = time.Now().Add(span)
			}
		}
		c.setReadDeadline(until, span)
		if c.l.isStopping() || !begun && c.doneReading() {
			c.drainFirst = true
			return 0, false
		}
		n, err := c.tcp.Read(to)
		c.now = time.Now()
		switch {
		case n > 0:
			return n, true
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return 0, false
		}
		c.deadline = time.Time{}
		switch {
		case c.l.isStopping() || c.now.Before(until): // armed too early, or too late: look again
		case begun:
			return 0, c.cutSlowSender()
		case c.inFlight() == 0 && c.l.clock(c.now)-c.lastActive.Load() >= int64(span):
			return 0, false
		}
	}
}

// arm sets the deadline of reads, unless it is nearly what it should be and
// comes no later: then the reader looks again when it has come.
func (c *conn) setReadDeadline(until time.Time, span time.Duration) {
	if c.deadline.After(until) || until.Sub(c.deadline) > span/8 {
		_ = c.tcp.SetReadDeadline(until)
		c.deadline = until
	}
}

// slow cuts a connection whose message did not come in time.
func (c *conn) cutSlowSender() bool {
	c.l.counts.slowSender.Add(1)
	c.cut()
	return false
}

// end closes the connection. Closing it while there are unread bytes would make
// the kernel send a reset and throw away replies that are still on their way;
// if that may be so, the client is given a moment to take them and to close its
// side.
func (c *conn) closeGracefully() {
	const moment = 500 * time.Millisecond
	if c.drainFirst && c.tcp.CloseWrite() == nil {
		c.mu.Lock()
		c.closing = true
		c.mu.Unlock()
		_ = c.tcp.SetReadDeadline(time.Now().Add(moment))
		_, _ = io.Copy(io.Discard, c.tcp)
	}
	_ = c.tcp.Close()
	c.l.conns.removeClosed(c)
}

// An arena is what a connection needs to answer, and has only for as long as it
// does: a query, and room for an answer; twice what one may have, because
// compression writes it a second time.
type arena struct {
	answer [2 * (wire.MaxMessage + 1)]byte
	q      *dns.Query
	sender *connSender // its mover
}

// A relay moves the replies of the connection that the query was lent to.
type connSender struct{ c *conn }

func (r *connSender) Send(q *dns.Query) { r.c.Send(q) }

// lend gives the query, or another one if that has been parked.
func (a *arena) query(c *conn) *dns.Query {
	if a.q == nil {
		a.sender = new(connSender)
		a.q = dns.NewQuery(a.sender)
	}
	a.sender.c = c
	return a.q
}

// back says that the connection has done, unless its query is parked: nothing
// holds it then.
func (a *arena) release() {
	if a.q != nil {
		a.sender.c = nil
	}
}

// A buffer holds replies, each with its length in front.
type buffer struct{ b []byte }

func (b *buffer) add(reply []byte) {
	b.b = binary.BigEndian.AppendUint16(b.b, uint16(len(reply)))
	b.b = append(b.b, reply...)
}

// free gives a buffer back, unless it has become too large to be kept.
func (l *Listener) free(b *buffer) {
	if cap(b.b) <= 4*outSize {
		b.b = b.b[:0]
		l.buffers.Put(b)
	}
}

// late is the sending side of a connection.
type sendState struct {
	mu            sync.Mutex
	tcp           socket    // nil until it is attended, and then always the same
	writerDone    sync.Cond // told when writing becomes false
	writing       bool      // somebody writes, or will when it is attended, and will look at queue before he stops
	dead          bool      // it has been cut
	closing       bool      // reads have a deadline of end's own
	queue         *buffer   // replies of parked queries, to be written next
	queued        int32     // how many queries those are, with the dropped ones
	writeDeadline time.Time // the deadline of writes as it is set; whoever is writing owns it
}
