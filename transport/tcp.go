package transport

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/sys/memory"
	"github.com/seamark/seamark/wire"
)

const (
	// inSize is the size of the read buffer: a message with its length, or some
	// forty ordinary ones.
	inSize = 2048

	// outSize is the size of the replies at which they are written before the
	// queries that have been read are answered.
	outSize = 8 << 10

	// maxLarge bounds the messages that do not fit into a read buffer, of all
	// connections together. They have up to 64 KB each; queries are smaller.
	maxLarge = 64

	// readerRef is the reader's share of conn.refs.
	readerRef = 1 << 20

	// maxLoopReads is the number of reads after which a connection leaves the
	// acceptLoop: one each for an A and an AAAA query, and two more. A connection
	// whose first read fills the buffer leaves it at once.
	maxLoopReads = 4
)

// A conn is one TCP connection (RFC 7766). Its reader answers the queries of one
// read and writes the replies together; the replies of parked queries are written
// when they are ready, in any order (tcp_write.go). The connection is closed when
// its reader has ended and no query is parked, so a client that shuts down its
// sending side receives all its answers.
//
// The reader is the method run. On Linux the acceptLoop calls it when there is
// something to read, and run returns when the connection is idle. Where the reader
// would block, the loop continues on another goroutine (leaveLoop), and the
// connection keeps this one until it has been idle for Limits.keepGoroutine. Without an
// acceptLoop each connection has a goroutine until it ends.
//
// A message that cannot be a query (no header, a reply) means that the
// client has lost framing: the connection is closed after the answers to the queries
// before it.
type conn struct {
	l           *Listener
	id          int64      // in conns
	client      netip.Addr // the key for its number of connections: see ClientKey; not valid until the client is known
	proxyPolicy ProxyPolicy
	of          *clientConns  // of the client; set by conns.add
	turns       turns         // of the client
	opened      time.Duration // since Listener.start
	peer, local netip.AddrPort
	tlvs        string // of the PROXY header, if they are kept
	sock        socket

	// Used by the reader only.
	handshaking  bool // the PROXY header or the TLS handshake is not complete; written with mu held
	onLoop       bool // the reader runs on the goroutine of the acceptLoop
	readAll      bool // the last read returned less than it could
	reads        int  // since the connection was accepted, or had a goroutine
	buf          []byte
	in           []byte // of buf: read, but not yet answered
	now          time.Time
	messageStart time.Time // when the first part of the current message was read
	out          *buffer   // replies to write; nil if there are none
	invalid      bool      // the client sent a message that is not a query
	queries      int       // the number of queries received
	hasReadLast  bool      // isLast was called
	drainFirst   bool      // there may be unread data: see closeGracefully
	leaving      bool      // to another process, instead of being closed
	unread       []byte    // if leaving: a part of a query, or of the PROXY header

	lastActive atomic.Int64 // Listener.clock of the last read, or write of a parked reply
	asked      atomic.Bool  // the client has sent a query
	refs       atomic.Int32 // parked queries, plus readerRef while there is a reader
	serving    atomic.Bool  // in serveMessages: a query may be parked and not yet counted in refs

	mu         sync.Mutex // of the fields below
	changed    sync.Cond  // signals that writing is false, a parked query was released, or isCut
	waiting    bool       // in the acceptLoop; the goroutine that resets it calls run
	registered bool       // with epoll
	writing    bool       // a goroutine writes, and will write queue before it stops
	isCut      bool       // cut was called
	closing    bool       // closeGracefully has set its own read deadline
	closed     bool
	evicted    bool    // counted in conns.evicted until it is closed
	queue      *buffer // replies of parked queries to write
	queued     int32   // the number of queries in queue, including dropped ones
}

func newConn(l *Listener, sock socket, peer, local netip.AddrPort) *conn {
	c := &conn{l: l, sock: sock, peer: peer, local: local, client: ClientKey(peer.Addr()), proxyPolicy: ProxySkip}
	c.refs.Store(readerRef)
	c.changed.L = &c.mu
	if l.tls != nil {
		c.sock, c.handshaking = newTLSSocket(l, sock), true
	}
	c.opened = time.Duration(l.clock(time.Now()))
	c.lastActive.Store(int64(c.opened))
	return c
}

// accepted returns a connection that has just been accepted.
func (l *Listener) accepted(sock socket, peer, local netip.AddrPort) *conn {
	c := newConn(l, sock, peer, local)
	if c.proxyPolicy = l.proxies.Load().policy(peer.Addr()); c.proxyPolicy != ProxySkip {
		c.handshaking, c.client = true, netip.Addr{}
	}
	return c
}

// clock returns t as a number that is not affected by changes of the wall clock.
func (l *Listener) clock(t time.Time) int64 { return int64(t.Sub(l.start)) }

// inFlight returns the number of parked queries whose replies are not yet written.
func (c *conn) inFlight() int { return int(c.refs.Load() & (readerRef - 1)) }

// inactive returns the time since the last query or reply.
func (c *conn) inactive(now time.Time) time.Duration {
	return time.Duration(c.l.clock(now) - c.lastActive.Load())
}

// isQuiet reports whether the connection has had no query or reply for so long that it needs no goroutine.
func (c *conn) isQuiet(now time.Time) bool { return c.inactive(now) >= c.l.limits.Load().keepGoroutine }

// isIdle reports whether the connection has reached the idle timeout.
func (c *conn) isIdle(now time.Time) bool {
	return c.inFlight() == 0 && c.inactive(now) >= c.l.limits.Load().IdleTimeout
}

// release drops references to the connection, and closes it with the last one.
func (c *conn) release(refs int32) {
	switch left := c.refs.Add(-refs); {
	case left == 0:
		c.closeGracefully()
	case refs == readerRef:
		c.mu.Lock()
		c.closeCut()
		c.mu.Unlock()
	}
}

// A status is the state of a reader after one step.
type status uint8

const (
	reading status = iota
	idling         // to wait in the acceptLoop
	leaving        // to another process, when no query is parked
	ended
)

// run reads and answers queries until the connection waits in the acceptLoop, or the
// client has sent all, or a limit is reached. It reports whether its goroutine still
// runs the acceptLoop, if it did before.
func (c *conn) run() (onLoop bool) {
	if c.handshaking && !c.handshake() {
		c.drainFirst = !c.leaving
		c.release(readerRef)
		return false
	}

	c.now, c.readAll = time.Now(), false
	for {
		s := c.step()
		if s == reading {
			continue
		}
		if s == leaving {
			c.leaving, c.unread = true, bytes.Clone(c.in)
		}
		c.freeBuffer()
		c.in = nil
		if s != idling {
			break
		}

		// Once c waits in the loop another goroutine may run it: c is not used any more.
		if onLoop, c.onLoop = c.onLoop, false; !onLoop {
			c.reads = 0
		}
		if c.l.loop.await(c) {
			return onLoop
		}
		c.onLoop = onLoop
	}

	c.flush()
	c.drainFirst = c.drainFirst || c.l.tls != nil // so that the client receives close_notify
	if c.drainFirst {
		c.leaveLoop()
	}
	onLoop = c.onLoop
	c.release(readerRef)
	return onLoop
}

// start calls run on a goroutine of its own.
func (c *conn) start() { c.l.conns.running.Go(func() { c.run() }) }

// wake makes the reader notice that the listener stops, limits have changed, or time
// has passed.
func (c *conn) wake() {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.waiting:
		c.waiting = false
		c.start()
	case c.handshaking:
		c.shortenHandshake()
	case !c.closing && !c.isCut:
		_ = c.sock.SetReadDeadline(pastDeadline())
	}
}

// claim makes the caller the reader of a waiting connection. It returns false if
// another goroutine is.
func (c *conn) claim() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	claimed := c.waiting
	c.waiting = false
	return claimed
}

func (c *conn) isWaiting() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waiting
}

// leaveLoop is called before the reader may block. If its goroutine runs the
// acceptLoop, the loop continues on another one.
func (c *conn) leaveLoop() {
	if c.onLoop {
		c.onLoop = false
		c.l.conns.running.Go(c.l.loop.run)
	}
}

// step answers the messages that have been read, or reads more.
func (c *conn) step() status {
	if c.doneReading() {
		c.drainFirst = true
		return ended
	}
	if len(c.in) < 2 || len(c.in) < c.messageEnd() {
		return c.fill()
	}
	if !c.waitInFlight() {
		return ended
	}

	if c.takeTurn() {
		c.serveMessages()
		c.endTurn()
	} else {
		c.serveMessages()
	}
	if c.out != nil && len(c.out.b) >= outSize && !c.flush() {
		return ended
	}
	return reading
}

// messageEnd returns the length of in that includes the next message. in must have at
// least two bytes.
func (c *conn) messageEnd() int { return 2 + int(binary.BigEndian.Uint16(c.in)) }

// serveMessages answers the messages that have been read and adds the replies to
// out. It does not block.
func (c *conn) serveMessages() {
	c.serving.Store(true)
	defer c.serving.Store(false)
	a := c.l.arenas.Get().(*arena)
	c.l.serving.RLock()
	for !c.doneReading() && c.inFlight() < c.l.o.MaxInFlight && (c.out == nil || len(c.out.b) < outSize) {
		if len(c.in) < 2 || len(c.in) < c.messageEnd() {
			break
		}

		message := c.in[2:c.messageEnd()]
		c.in = c.in[c.messageEnd():]
		c.messageStart = c.now
		if c.serveQuery(a.q, message, a.answer[:0]) {
			a.q = dns.NewQuery(nil)
			if isLarge(message) { // Send frees its place
				c.buf, c.in = nil, nil
			}
		}
	}
	c.l.serving.RUnlock()

	a.q.Sender = nil
	c.l.arenas.Put(a)
	c.lastActive.Store(c.l.clock(c.now))
	c.l.lastTCP.Store(c.l.clock(c.now))
}

// serveQuery answers the query in packet. It reports whether q is parked.
func (c *conn) serveQuery(q *dns.Query, packet, lent []byte) (parked bool) {
	if c.queries++; c.queries == 1 {
		c.asked.Store(true)
	}
	q.Sender, q.Peer, q.Local, q.Interface = c, c.peer, c.local, 0
	q.Reset(packet, dns.TCP, c.now)
	q.ProxyTLVs = c.tlvs
	if c.l.tls != nil {
		q.Encrypted, q.IdleTimeout = true, c.l.limits.Load().IdleTimeout
	}

	switch serveRecovered(c.l.o.Port, q, lent) {
	case dns.Answered:
		now := time.Now()
		if c.out == nil {
			c.out = c.l.buffers.Get().(*buffer)
		}
		c.out.add(q.Reply())
		c.l.counts.observe(c.l.o.Log, q, now)
	case dns.Dropped:
		c.l.counts.observe(c.l.o.Log, q, time.Now())
	case dns.Ignored:
		c.l.counts.unreadableTCP.Add(1)
		c.invalid = true
	case dns.Parked:
		// The query may be finished already. The count cannot have been zero,
		// since it includes readerRef.
		c.refs.Add(1)
		return true
	}
	return false
}

// waitInFlight blocks until the number of parked queries is below the limit. The
// client is not read meanwhile; its finished replies are written first. It returns
// false if the connection is cut.
func (c *conn) waitInFlight() bool {
	if c.inFlight() < c.l.o.MaxInFlight {
		return true
	}
	if !c.flush() {
		return false
	}

	c.leaveLoop()
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.inFlight() >= c.l.o.MaxInFlight && !c.isCut {
		c.changed.Wait()
	}
	c.messageStart = time.Now() // as in flush
	return !c.isCut
}

// cutSlowSender cuts a connection whose message was not complete in time.
func (c *conn) cutSlowSender() status {
	c.l.counts.slowSender.Add(1)
	c.cut()
	return ended
}

// An arena is the memory that a connection needs while it answers: a query, and
// twice the largest size of an answer, since compression writes it a second time.
type arena struct {
	answer [2 * (wire.MaxMessage + 1)]byte
	q      *dns.Query
}

// newArena returns an arena that counts in a budget until it is collected. There is one for each processor that
// answers, which waits for no memory.
func newArena(b *memory.Budget) *arena {
	a := &arena{q: dns.NewQuery(nil)}
	if b != nil {
		b.Force(memory.Listeners, answerBytes)
		runtime.AddCleanup(a, func(b *memory.Budget) { b.Release(memory.Listeners, answerBytes) }, b)
	}
	return a
}
