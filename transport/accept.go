package transport

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// accept accepts connections until the listener stops.
func (l *Listener) accept() {
	if l.o.Portable || !runAcceptLoop(l) {
		l.acceptAll()
	}
}

// acceptAll accepts connections with package net and gives each a goroutine.
func (l *Listener) acceptAll() {
	t := acceptErrors{l: l}
	for {
		c, err := l.tcp.Accept()
		switch {
		case err == nil:
			t.succeeded()
			l.admit(c.(*net.TCPConn))
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

// acceptErrors handles errors of accept, such as EMFILE. It logs the first one and
// makes the caller wait: open connections continue, and free descriptors when they
// end.
type acceptErrors struct {
	l         *Listener
	lastError time.Time // zero if accepting works
	pause     time.Duration
}

// succeeded notes that a connection was accepted.
func (t *acceptErrors) succeeded() {
	if !t.lastError.IsZero() && time.Since(t.lastError) > time.Second {
		t.l.o.Log.Info("accepting tcp connections again", "address", t.l.addr)
		t.lastError, t.pause = time.Time{}, 0
	}
}

// failed notes an error and returns how long to wait before the next attempt.
func (t *acceptErrors) failed(err error) time.Duration {
	if t.lastError.IsZero() {
		t.l.o.Log.Error("accepting tcp connections failed, retrying", "address", t.l.addr, "error", err)
	}
	t.lastError = time.Now()
	t.pause = min(max(2*t.pause, 5*time.Millisecond), time.Second)
	return t.pause
}

// admit serves a connection, or closes it at once if there are too many.
func (l *Listener) admit(tcp *net.TCPConn) {
	c := newConn(l, addrPort(tcp.RemoteAddr()), addrPort(tcp.LocalAddr()))
	ok, evicted := l.admits(c)
	if evicted != nil {
		evicted.cut()
	}
	if ok {
		c.startReader(tcp)
	} else {
		reset(tcp)
	}
}

// admits counts a connection and reports whether it is within the limits. evicted is
// the connection to close in its place, or nil.
func (l *Listener) admits(c *conn) (ok bool, evicted *conn) {
	refused, evicted := l.conns.add(c, l.o.MaxConns, l.o.MaxConnsPerClient)
	if evicted != nil {
		l.counts.evicted.Add(1)
	}
	switch refused {
	case overClient:
		l.counts.overClient.Add(1)
	case overTotal:
		l.counts.overTotal.Add(1)
	}
	return refused == admitted, evicted
}

// reset closes a connection without waiting for its client: the kernel discards
// unsent data and keeps no state of the connection.
func reset(tcp socket) {
	_ = tcp.SetLinger(0)
	_ = tcp.Close()
}

// conns holds the TCP connections of a listener.
type conns struct {
	running sync.WaitGroup // goroutines of connections
	loop    atomic.Pointer[acceptLoop]

	mu      sync.Mutex
	all     map[*conn]struct{}
	clients map[netip.Addr]int
	empty   chan struct{} // receives a value when the last connection ends
}

func (s *conns) init() {
	s.all, s.clients = map[*conn]struct{}{}, map[netip.Addr]int{}
	s.empty = make(chan struct{}, 1)
}

// A refusal is the reason why a connection is refused.
type refusal uint8

const (
	admitted refusal = iota
	overClient
	overTotal
)

// clientKey returns the key under which connections of a client are counted: an IPv4
// address, or the /64 of an IPv6 address, within which a host may choose its
// address.
func clientKey(addr netip.Addr) netip.Addr {
	if addr.Is4() {
		return addr
	}
	p, err := addr.WithZone("").Prefix(64)
	if err != nil {
		return addr
	}
	return p.Addr()
}

// add admits c, unless there are too many connections. At the limit of the listener
// it evicts the connection that has been idle longest (RFC 7766 §6.2.3 allows that);
// if none is idle, it refuses c.
func (s *conns) add(c *conn, most, mostOfClient int) (why refusal, evicted *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.clients[c.client] >= mostOfClient {
		return overClient, nil
	}
	if len(s.all) >= most {
		if evicted = s.idlest(); evicted == nil {
			return overTotal, nil
		}
		s.remove(evicted)
	}
	s.all[c] = struct{}{}
	s.clients[c.client]++
	return admitted, evicted
}

// idlest searches all connections. That takes some ten microseconds for each accept
// at the limit; below it there is no order to maintain.
func (s *conns) idlest() (idlest *conn) {
	for c := range s.all {
		if c.inFlight() == 0 && (idlest == nil || c.lastActive.Load() < idlest.lastActive.Load()) {
			idlest = c
		}
	}
	return idlest
}

// removeClosed removes a connection that has ended.
func (s *conns) removeClosed(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(c)
	if len(s.all) == 0 {
		select {
		case s.empty <- struct{}{}:
		default:
		}
	}
}

func (s *conns) remove(c *conn) {
	if _, ok := s.all[c]; !ok {
		return
	}
	delete(s.all, c)
	if s.clients[c.client]--; s.clients[c.client] == 0 {
		delete(s.clients, c.client)
	}
}

func (s *conns) count() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return float64(len(s.all))
}

func (s *conns) list() (list []*conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.all {
		list = append(list, c)
	}
	return list
}

// wake makes the readers of all connections notice that the listener stops or its
// limits have changed.
func (s *conns) wake() {
	if d := s.loop.Load(); d != nil {
		d.wake()
	}
	for _, c := range s.list() {
		c.mu.Lock()
		if c.tcp != nil && !c.closing {
			_ = c.tcp.SetReadDeadline(pastDeadline())
		}
		c.mu.Unlock()
	}
}

// wait blocks until all connections have ended. When ctx ends it cuts those that are
// left. No connections may be added.
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
}
