package transport

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/sys/descriptors"
	"github.com/seamark/seamark/sys/follow"
	"github.com/seamark/seamark/sys/slots"
)

// accept accepts connections with package net until the listener stops, and starts
// a goroutine for each.
func (l *Listener) accept() {
	defer l.accepting.Done()
	t := acceptErrors{log: l.o.Log, address: l.addr}
	for {
		tcp, err := l.tcp.Accept()
		switch {
		case err == nil:
			t.succeeded()
			c := l.accepted(netSocket{tcp.(tcpConn)}, AddrPort(tcp.RemoteAddr()), AddrPort(tcp.LocalAddr()))
			if l.admit(c) {
				c.start()
			}
		case l.isStopping():
			return
		default:
			select {
			case <-l.stopping:
			case <-time.After(t.failed(err)):
			}
		}
	}
}

// A socket is a connection's socket: a netSocket, or on Linux a descriptor. tryRead
// and tryWrite do not block.
type socket interface {
	io.ReadWriteCloser
	tryRead(p []byte) (int, error) // errWouldBlock if there are no data yet
	tryWrite(p []byte) int
	cork() // delays the next write until CloseWrite, or some 200 ms
	CloseRead() error
	CloseWrite() error
	SetLinger(seconds int) error
	SetReadDeadline(t time.Time) error
	SetWriteDeadline(t time.Time) error
}

var errWouldBlock = errors.New("the call would block")

// A netSocket is the socket of a connection without an acceptLoop. All its calls
// may block.
type netSocket struct{ tcpConn }

// A tcpConn is a *net.TCPConn, or a connection of Options.Listen.
type tcpConn interface {
	net.Conn
	CloseRead() error
	CloseWrite() error
	SetLinger(seconds int) error
}

func (netSocket) tryRead([]byte) (int, error) { return 0, errWouldBlock }
func (netSocket) tryWrite([]byte) int         { return 0 }
func (netSocket) cork()                       {}

// acceptErrors handles errors of accept, such as EMFILE. It logs the first one and
// makes the caller wait: open connections continue, and free descriptors when they
// end.
type acceptErrors struct {
	log       *slog.Logger
	address   any
	lastError time.Time // zero if accepting works
	pause     time.Duration
}

// succeeded records that a connection was accepted.
func (t *acceptErrors) succeeded() {
	if !t.lastError.IsZero() && time.Since(t.lastError) > time.Second {
		t.log.Info("Accepting TCP connections again", "address", t.address)
		t.lastError, t.pause = time.Time{}, 0
	}
}

// failed records an error and returns how long to wait before the next attempt.
func (t *acceptErrors) failed(err error) time.Duration {
	if t.lastError.IsZero() {
		t.log.Error("Accepting TCP connections failed, retrying", "address", t.address, "error", err)
	}
	t.lastError = time.Now()
	t.pause = min(max(2*t.pause, 5*time.Millisecond), time.Second)
	return t.pause
}

// admit adds a connection and reports whether it is within the limits. Otherwise it
// closes the connection.
func (l *Listener) admit(c *conn) bool {
	var refused *metrics.Counter
	var evicted *conn
	// A client over its own limit costs no other one a connection.
	if l.conns.isFull(c) {
		refused = l.counts.overClient
	} else if !l.conns.share.Acquire() {
		refused = l.counts.overTotal
	} else if refused, evicted = l.conns.add(c); refused != nil {
		l.conns.share.Release()
	}

	if evicted != nil {
		l.end(evicted)
	}
	if refused != nil {
		refused.Add(1)
		_ = c.sock.SetLinger(0) // the kernel keeps no state
		_ = c.sock.Close()
	}
	return refused == nil
}

// conns holds the TCP connections of a listener.
type conns struct {
	running sync.WaitGroup // goroutines of connections, and of the acceptLoop
	memory  connMemory

	mu         sync.Mutex
	byID       map[int64]*conn
	lastID     int64
	clients    map[netip.Addr]*clientConns
	openings   openings
	empty      follow.Signal // the last connection has ended
	leaving    []*conn       // to be passed to another process
	left       follow.Signal // leaving has grown
	checking   bool          // check is going to be called
	contention contention
	spare      *clientConns // of a client without connections, for the next client
	share      *descriptors.Share
	evicted    atomic.Int32 // connections that do not count, and whose sockets are about to be closed
}

// A clientConns has the number of a client's connections, and their turns.
type clientConns struct {
	n      int
	turns  turns
	opened int // see openings; in the period
	period int
}

func (s *conns) init() {
	s.byID, s.clients = map[int64]*conn{}, map[netip.Addr]*clientConns{}
	s.empty, s.left = follow.NewSignal(), follow.NewSignal()
}

// ClientKey returns the key under which connections of a client are counted: see slots.Client.
func ClientKey(addr netip.Addr) netip.Addr { return slots.Client(addr) }

// add adds c, unless there are too many connections: then it returns the counter of
// the reason. At the limit of the listener, or without memory, it evicts the connection that yields to
// c (see places.go), or if there is none refuses c.
func (s *conns) add(c *conn) (refused *metrics.Counter, evicted *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isOverLimit(c, c.client) {
		return c.l.counts.overClient, nil
	}
	var choice choice
	if len(s.byID) >= c.l.o.MaxConns || !s.memory.reserve(len(s.byID)) {
		choice = s.openings.choose(c.client, s.connsOf(c.client))
		if evicted = s.replaceable(&choice, c.l); evicted == nil {
			return c.l.counts.overTotal, nil
		}
		s.remove(evicted)
		s.memory.force()
	}

	s.lastID++
	c.id = s.lastID
	s.byID[c.id] = c
	s.openings.add(c.client, choice)
	s.addTo(c, c.client)
	if !s.checking {
		s.checking = true
		time.AfterFunc(s.checkInterval(c.l), func() { s.check(c.l) })
	}
	return nil, evicted
}

// connsOf returns the number of a client's connections.
func (s *conns) connsOf(client netip.Addr) int {
	if of := s.clients[client]; of != nil {
		return of.n
	}
	return 0
}

// isOverLimit reports whether a client has as many connections as it may have. Connections
// whose client is not known yet have no limit of their own.
func (s *conns) isOverLimit(c *conn, client netip.Addr) bool {
	return client.IsValid() && s.connsOf(client) >= c.l.o.MaxConnsPerClient
}

// isFull is isOverLimit for a new connection.
func (s *conns) isFull(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.isOverLimit(c, c.client)
}

// addTo counts c for a client.
func (s *conns) addTo(c *conn, key netip.Addr) {
	of := s.clients[key]
	if of == nil {
		if of, s.spare = s.spare, nil; of == nil {
			of = &clientConns{turns: newTurns()}
		}
		s.clients[key] = of
	}
	of.n++
	of.period = -1 // opened may be too low
	c.client, c.of, c.turns = key, of, of.turns
}

// identify counts c for the client at an address, which was not known before. It returns
// false if c must be closed: it was evicted, or the client has too many connections.
func (s *conns) identify(c *conn, peer netip.AddrPort) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byID[c.id] != c {
		return false
	}
	client := ClientKey(peer.Addr())
	if s.isOverLimit(c, client) {
		c.l.counts.overClient.Add(1)
		return false
	}

	s.removeFrom(c.client)
	s.openings.add(client, choice{})
	s.addTo(c, client)
	c.peer = peer
	return true
}

// replaceable returns the connection that yields, or nil. It searches all connections. That takes some
// ten microseconds for each accept at the limit; below it there is no order to maintain.
func (s *conns) replaceable(choice *choice, l *Listener) (found *conn) {
	now := time.Duration(l.clock(time.Now()))
	for _, c := range s.byID {
		if c.of.period != s.openings.period {
			c.of.opened, c.of.period = s.openings.count(c.client), s.openings.period
		}
		if choice.prefers(placed{
			client: c.client, conns: c.of.n, opened: c.of.opened,
			busy: c.serving.Load() || c.inFlight() > 0, asked: c.asked.Load(),
			idle: now - time.Duration(c.lastActive.Load()), held: now - c.opened,
		}) {
			found = c
		}
	}
	return found
}

// evict closes the connection that yields to one of another listener. It reports whether there is one.
func (l *Listener) evict() bool {
	l.conns.mu.Lock()
	evicted := l.conns.replaceable(&choice{others: true}, l)
	if evicted != nil {
		l.conns.remove(evicted)
	}
	l.conns.mu.Unlock()

	if evicted != nil {
		l.end(evicted)
	}
	return evicted != nil
}

// end ends a connection that was evicted, and counts no more. Its own goroutine closes the socket, so
// that among many new connections such sockets could use up the descriptors that are left for
// upstreams and files: end waits until there are few, for some milliseconds at most.
func (l *Listener) end(evicted *conn) {
	l.counts.evicted.Add(1)
	evicted.evict()

	few := int32(max(4, l.o.MaxConns/8))
	for i := 0; i < 20 && l.conns.evicted.Load() > few; i++ {
		if i < 10 {
			runtime.Gosched()
		} else {
			time.Sleep(100 * time.Microsecond)
		}
	}
}

// removeClosed removes a connection that has ended.
func (s *conns) removeClosed(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(c)
	if len(s.byID) == 0 {
		s.empty.Send()
	}
}

func (s *conns) remove(c *conn) {
	if s.byID[c.id] != c {
		return
	}
	delete(s.byID, c.id)
	s.removeFrom(c.client)
	s.memory.release()
	s.share.Release()
}

// removeFrom counts one connection less for a client.
func (s *conns) removeFrom(key netip.Addr) {
	of := s.clients[key]
	if of.n--; of.n == 0 {
		s.spare = of
		delete(s.clients, key)
	}
}

func (s *conns) count() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return float64(len(s.byID))
}

func (s *conns) list() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.byID))
}

// get returns a connection, or nil if it has ended.
func (s *conns) get(id int64) *conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byID[id]
}

// checkInterval returns the time between two calls of check.
func (s *conns) checkInterval(l *Listener) time.Duration {
	limits := l.limits.Load()
	return min(limits.IdleTimeout/16, limits.keepGoroutine/4)
}

// check wakes the connections that have reached the idle timeout, and connections that
// should release their goroutine, and updates the contention. It is called as long as there
// are connections.
func (s *conns) check(l *Listener) {
	now := time.Now()
	for _, c := range s.list() {
		if c.isIdle(now) || l.loop != nil && c.isQuiet(now) && !c.isWaiting() {
			c.wake()
		}
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	s.contention.update(len(s.clients))
	if s.checking = len(s.byID) > 0; s.checking {
		time.AfterFunc(s.checkInterval(l), func() { s.check(l) })
	}
}

// wake makes the readers of all connections notice that the listener stops or its
// limits have changed.
func (s *conns) wake() {
	for _, c := range s.list() {
		c.wake()
	}
}

// wait blocks until all connections have ended. When ctx ends it cuts the
// remaining ones, and closes the sockets of connections whose queries are still parked. No
// connections may be added.
func (s *conns) wait(ctx context.Context) {
	for len(s.list()) > 0 && ctx.Err() == nil {
		select {
		case <-s.empty:
		case <-ctx.Done():
		}
	}

	for _, c := range s.list() {
		c.cut()
	}
	s.running.Wait()
	for _, c := range s.list() {
		c.mu.Lock()
		if !c.writing { // drain closes it
			c.closeLocked()
		}
		c.mu.Unlock()
	}
}
