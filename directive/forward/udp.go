package forward

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/sys/clock"
	"github.com/seamark/seamark/wire"
)

const (
	// defaultSockets is the number of sockets to an upstream with several waiting
	// queries. A forged reply must be sent to the port of the right one.
	defaultSockets = 4
	// maxSockets and maxSocketLoad bound the sockets to a slow upstream, and the
	// queries on each before another is opened.
	maxSockets    = 32
	maxSocketLoad = 512
	// A socket is replaced by one with another port after a random number of
	// queries, minUses to maxUses.
	minUses, maxUses = 1024, 2048
	// maxSpoofed is the number of packets with a wrong ID or question after which
	// a socket's queries are sent over TCP instead.
	maxSpoofed = 64
)

// A socket is a UDP socket connected to one upstream. Many queries wait on it,
// and one goroutine reads it.
type socket struct {
	attemptTable
	upstream *upstream
	conn     net.Conn
	uses     int // remaining; guarded by upstream.mu
	opened   time.Time
	retired  atomic.Bool
}

// sendUDP sends a in a datagram.
func (u *upstream) sendUDP(a *attempt) {
	randomizes, exact := u.letterCase.randomizes()
	a.randomCase, a.exactCase = nil, exact
	if randomizes && !a.probe && u.options().letterCase == "auto" {
		a.randomCase = inRandomCase(a.request.question)
	}

	var err error
	for range 3 { // a socket may be closed at any time
		var s *socket
		s, err = u.socket(a.fresh)
		if isLocal(err) && u.sendOverOpenStream(a) {
			return
		}
		if err != nil {
			u.fail(a, err)
			return
		}

		a.socket = s
		if err = s.add(a); err != nil {
			continue
		}
		s.wake(u, s.conn)
		if err := trySend(s.conn, a.packet()); err != nil && s.take(a) {
			u.fail(a, err)
		}
		return
	}
	u.fail(a, err)
}

// socket returns a socket to send on: a new one if fresh is set, or if too many queries
// wait on each.
func (u *upstream) socket(fresh bool) (*socket, error) {
	now := time.Now()
	u.mu.Lock()
	defer u.mu.Unlock()

	lifetime := u.options().expire
	if age := u.options().maxAge; age > 0 {
		lifetime = min(lifetime, age)
	}
	var expired []*socket // which are used if no other can be opened
	u.sockets = slices.DeleteFunc(u.sockets, func(s *socket) bool {
		switch {
		case s.retired.Load():
			return true
		case s.uses <= 0 || now.Sub(s.opened) > lifetime:
			expired = append(expired, s)
			return true
		}
		return false
	})

	if n := len(u.sockets); n > 0 && (!fresh || n >= maxSockets) {
		s := u.sockets[rand.IntN(n)]
		load := s.load()
		if n >= maxSockets || load == 0 || load < maxSocketLoad && n >= u.options().idleLimit(defaultSockets) {
			s.uses--
			u.metrics.reused[0].Add(1)
			retire(expired)
			return s, nil
		}
	}

	open := append(u.sockets, expired...)
	conn, err := u.openSocket(len(open))
	if isLocal(err) && len(open) > 0 {
		u.metrics.reused[0].Add(1)
		u.sockets = open
		return open[rand.IntN(len(open))], nil
	}
	u.metrics.opened[0].Add(1)
	retire(expired)
	if err != nil {
		return nil, err
	}

	s := &socket{upstream: u, conn: conn, uses: minUses + rand.IntN(maxUses-minUses), opened: now}
	if !u.set.spawn(s.read) {
		_ = conn.Close()
		u.unreserve(socketMemory)
		return nil, errStopped
	}
	u.sockets = append(u.sockets, s)
	return s, nil
}

// remove removes a socket that is closed. The next query would do so, but there may be none for long.
func (u *upstream) remove(s *socket) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.sockets = slices.DeleteFunc(u.sockets, func(other *socket) bool { return other == s })
}

// openSocket opens a socket beside others, and reserves its memory.
func (u *upstream) openSocket(open int) (net.Conn, error) {
	if err := u.reserve(open, socketMemory); err != nil {
		return nil, err
	}
	conn, err := u.set.dial(u.set.ctx, "udp", u.addr)
	if err != nil {
		u.unreserve(socketMemory)
	}
	return conn, err
}

// idleLimit returns the number of sockets or connections to keep open: defaultLimit, or
// max_idle_conns if that is less.
func (o *upstreamOptions) idleLimit(defaultLimit int) int {
	if o.maxIdleConns > 0 {
		return min(o.maxIdleConns, defaultLimit)
	}
	return defaultLimit
}

// read reads packets until the socket is closed.
func (s *socket) read() {
	defer s.upstream.remove(s)
	defer s.upstream.unreserve(socketMemory)
	var p parser
	buf := make([]byte, wire.AdvertisedUDPSize+1)
	u, suspicious := s.upstream, 0
	defer context.AfterFunc(u.set.ctx, func() { _ = s.conn.Close() })()
	s.sweepLater(u, s.conn, time.Now())

	for {
		n, err := s.conn.Read(buf)

		switch {
		case err == nil:
			if u.receive(&s.attemptTable, buf[:n], &p, wire.AdvertisedUDPSize) {
				suspicious++
			}
			if suspicious > maxSpoofed {
				s.closeWith(errSpoofed)
				return
			}
		case errors.Is(err, os.ErrDeadlineExceeded):
			now := time.Now()
			s.failOverdue(now)
			if s.closeIfDone(now) {
				return
			}
			s.sweepLater(u, s.conn, now)
		default:
			// An ICMP error such as "connection refused", or Stop closed the socket.
			if errors.Is(err, net.ErrClosed) {
				err = errStopped
			}
			s.closeWith(err)
			return
		}
	}
}

// retire makes sockets close once no attempt waits on them.
func retire(sockets []*socket) {
	for _, s := range sockets {
		s.retired.Store(true)
	}
}

// failOverdue fails the attempts that timed out.
func (s *socket) failOverdue(now time.Time) {
	for _, a := range s.expire(clock.At(now) - s.upstream.options().readTimeout) {
		s.upstream.fail(a, timeoutError("udp", s.conn.LocalAddr(), s.conn.RemoteAddr()))
	}
}

// closeIfDone closes the socket if no attempt waits on it and it has expired or been
// retired. It reports whether it has closed it.
func (s *socket) closeIfDone(now time.Time) bool {
	if now.Sub(s.opened) > s.upstream.options().expire || s.load() == 0 && !s.upstream.keepsIdle() {
		s.retired.Store(true)
	}
	if !s.retired.Load() || !s.closeUnused() {
		return false
	}
	_ = s.conn.Close()
	return true
}

// closeWith closes the socket and fails its attempts.
func (s *socket) closeWith(err error) {
	s.retired.Store(true)
	_ = s.conn.Close()
	for _, a := range s.close(err) {
		s.upstream.fail(a, err)
	}
}
