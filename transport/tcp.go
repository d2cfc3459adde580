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
	// inSize is the size of the read buffer: a message with its length, or some
	// forty ordinary ones.
	inSize = 2048

	// outSize is the size of the replies at which they are written before the
	// queries that have been read are answered.
	outSize = 8 << 10

	// maxLarge bounds the messages that do not fit into a Query's buffer, of all
	// connections together. They have up to 64 KB each; queries are smaller.
	maxLarge = 64

	// reading is the reader's share of conn.refs.
	reading = 1 << 20
)

// A conn is one TCP connection (RFC 7766). Its reader answers the queries of one
// read and writes the replies together; the replies of parked queries are written
// when they are ready, in any order (tcp_write.go). The connection is closed when
// its reader has ended and no query is parked, so a client that shuts down its
// sending side receives all its answers.
//
// The reader is a goroutine (run), which startReader starts. On Linux the first
// queries are answered by the acceptLoop, and the connection has no goroutine until
// then.
//
// A message that cannot be a query (no header, no question, a reply) means that the
// client has lost framing: the connection is closed after the answers to the queries
// before it.
type conn struct {
	l           *Listener
	client      netip.Addr // the key for its number of connections: see clientKey
	peer, local netip.AddrPort

	// Used by the reader only. The acceptLoop sets the first two while it reads.
	serving      *sync.Mutex
	in           []byte
	q            *dns.Query // the next query, while there are messages to answer
	r, w         int        // in[r:w] is still to be answered
	now          time.Time
	messageStart time.Time // when the first part of the current message was read
	deadline     time.Time // of reads, as it is set
	out          *buffer   // replies to write; nil if there are none
	invalid      bool      // the client sent a message that is no query
	queries      int       // the number of queries received
	drainFirst   bool      // there may be unread data: see closeGracefully
	loop         loopState // while the connection is in the acceptLoop

	lastActive atomic.Int64  // Listener.clock of the last read, or write of a parked reply
	refs       atomic.Int32  // parked queries, plus reading while there is a reader
	written    chan struct{} // receives a value when replies of parked queries were written
	cutDone    chan struct{} // closed by cut

	sendState
}

// A socket is a connection's socket: a *net.TCPConn, or a descriptor.
type socket interface {
	io.ReadWriteCloser
	CloseWrite() error
	SetLinger(seconds int) error
	SetReadDeadline(t time.Time) error
	SetWriteDeadline(t time.Time) error
}

// newConn returns a connection without a reader.
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

// clock returns t as a number that is not affected by changes of the wall clock.
func (l *Listener) clock(t time.Time) int64 { return int64(t.Sub(l.start)) }

// inFlight returns the number of parked queries whose replies are not yet written.
func (c *conn) inFlight() int { return int(c.refs.Load() & (reading - 1)) }

// release drops references to the connection, and closes it with the last one.
func (c *conn) release(refs int32) {
	if c.refs.Add(-refs) == 0 {
		c.closeGracefully()
	}
}

// startReader starts the goroutine of the connection. It continues with the messages
// that were read but not answered, and the replies that were not written.
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

// run reads and answers queries until the client has sent all, or a limit is
// reached.
func (c *conn) run() {
	c.flushInitial()
	for c.readNext() {
	}
	c.flush()
	c.l.o.Port.RemoveReader(c.serving)
	c.release(reading)
}

// readNext reads or answers a part of the input. It reports whether to continue.
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

// nextMessage returns the next message if it is complete.
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

// serveRead answers the messages that have been read.
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

// serveMessages answers the messages that have been read and adds the replies to
// out. It holds the lock that Port knows, and does not block. It reports whether a
// query was parked.
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

// serveQuery answers the query in packet, which is c.q's Buffer. If the query is
// parked, c.q is nil afterwards.
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
		// The query may be finished already. The count cannot have been zero,
		// since it includes reading.
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

// waitInFlight blocks until the number of parked queries is below the limit. The
// client is not read meanwhile; its finished replies are written first.
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
	c.messageStart = time.Now() // as in writeOut
	return true
}

// readLarge reads and answers a message that does not fit into a Query's buffer.
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
	c.messageStart = time.Now() // as in writeOut
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
	if c.q != nil { // otherwise Send frees the place
		c.q = nil
		<-c.l.large
	}
	c.lastActive.Store(c.l.clock(c.now))
	return true
}

// doneReading reports whether nothing more is to be read.
func (c *conn) doneReading() bool {
	most := c.l.limits.Load().MaxQueries
	return c.invalid || most > 0 && c.queries >= most
}

// fill reads more input. Before that it writes the replies that are ready.
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

// read blocks until data arrives, the idle timeout is over, or, within a message,
// the message timeout.
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
		case c.l.isStopping() || c.now.Before(until): // the deadline was early, or limits have changed
		case begun:
			return 0, c.cutSlowSender()
		case c.inFlight() == 0 && c.l.clock(c.now)-c.lastActive.Load() >= int64(span):
			return 0, false
		}
	}
}

// setReadDeadline sets the deadline, unless the one that is set is at most an eighth
// of span earlier: then read waits again when it has passed. That saves most changes
// of timers.
func (c *conn) setReadDeadline(until time.Time, span time.Duration) {
	if c.deadline.After(until) || until.Sub(c.deadline) > span/8 {
		_ = c.tcp.SetReadDeadline(until)
		c.deadline = until
	}
}

// cutSlowSender cuts a connection whose message was not complete in time.
func (c *conn) cutSlowSender() bool {
	c.l.counts.slowSender.Add(1)
	c.cut()
	return false
}

// closeGracefully closes the connection. If it is closed with unread data, the
// kernel sends a reset, and replies that are on their way may be lost. If there may
// be such data, closeGracefully shuts down the sending side first and gives the
// client a moment to read the replies and close its side.
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

// An arena is what a connection needs while it answers: a query, and memory for an
// answer, twice its largest size since compression writes it a second time.
type arena struct {
	answer [2 * (wire.MaxMessage + 1)]byte
	q      *dns.Query
	sender *connSender // its mover
}

// A connSender sends the replies of the connection that uses the arena.
type connSender struct{ c *conn }

func (r *connSender) Send(q *dns.Query) { r.c.Send(q) }

// query returns the arena's query. It makes a new one if the last was parked.
func (a *arena) query(c *conn) *dns.Query {
	if a.q == nil {
		a.sender = new(connSender)
		a.q = dns.NewQuery(a.sender)
	}
	a.sender.c = c
	return a.q
}

// release drops the reference to the connection.
func (a *arena) release() {
	if a.q != nil {
		a.sender.c = nil
	}
}

// A buffer holds replies, each behind its length.
type buffer struct{ b []byte }

func (b *buffer) add(reply []byte) {
	b.b = binary.BigEndian.AppendUint16(b.b, uint16(len(reply)))
	b.b = append(b.b, reply...)
}

// free returns a buffer to the pool, unless it has grown too large.
func (l *Listener) free(b *buffer) {
	if cap(b.b) <= 4*outSize {
		b.b = b.b[:0]
		l.buffers.Put(b)
	}
}

// sendState is the sending side of a connection.
type sendState struct {
	mu            sync.Mutex
	tcp           socket    // nil until startReader
	writerDone    sync.Cond // signals that writing is false
	writing       bool      // a goroutine writes, and will write queue before it stops
	dead          bool      // cut was called
	closing       bool      // closeGracefully has set its own read deadline
	queue         *buffer   // replies of parked queries to write
	queued        int32     // the number of queries in queue, including dropped ones
	writeDeadline time.Time // as it is set; used by the goroutine that writes
}
