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

	"github.com/seamark/seamark/wire"
)

const (
	// usualSockets is how many an upstream has when several questions are under
	// way at a time: an answer must be forged for the right one of them.
	usualSockets = 4
	// mostSockets and crowd bound what a slow upstream makes of them.
	mostSockets = 32
	crowd       = 512
	// leastUses and mostUses is after how many questions a socket makes way for
	// one with another port.
	leastUses, mostUses = 1024, 2048
	// mostGuesses is how many packets with a wrong id or question a socket takes
	// before its questions go over TCP.
	mostGuesses = 64
)

// A socket is connected to one upstream. Many questions wait on it, and one
// goroutine reads it.
type socket struct {
	table
	to      *upstream
	conn    net.Conn
	uses    int // left; guarded by the upstream's mutex
	born    time.Time
	retired atomic.Bool
}

// sendUDP sends a in a datagram.
func (u *upstream) sendUDP(a *attempt) {
	for range 3 { // a socket may be closed in between
		s, err := u.socket(a.fresh)
		if err != nil {
			u.failed(a, err)
			return
		}
		a.local = s.conn.LocalAddr()
		if !s.add(a) {
			continue
		}
		if _, err := s.conn.Write(a.packet); err != nil && s.take(a) {
			u.failed(a, err)
		}
		return
	}
	u.failed(a, errBusy)
}

// socket gives one to send by, a new one if fresh or if there are too few.
func (u *upstream) socket(fresh bool) (*socket, error) {
	now := time.Now()
	u.mu.Lock()
	defer u.mu.Unlock()
	life := u.options().expire
	if age := u.options().maxAge; age > 0 {
		life = min(life, age)
	}
	u.sockets = slices.DeleteFunc(u.sockets, func(s *socket) bool {
		old := s.uses <= 0 || now.Sub(s.born) > life || s.retired.Load()
		if old {
			s.retired.Store(true)
		}
		return old
	})
	if n := len(u.sockets); n > 0 && (!fresh || n >= mostSockets) {
		s := u.sockets[rand.IntN(n)]
		load := s.load()
		if n >= mostSockets || load == 0 || load < crowd && n >= u.options().kept(usualSockets) {
			s.uses--
			u.counted.hit(0)
			return s, nil
		}
	}
	u.counted.miss(0)
	conn, err := u.options().dialer("udp", u.addr.Addr()).DialContext(u.set.ctx, "udp", u.addr.String())
	if err != nil {
		return nil, err
	}
	s := &socket{to: u, conn: conn, uses: leastUses + rand.IntN(mostUses-leastUses), born: now}
	if !u.set.spawn(s.read) {
		_ = conn.Close()
		return nil, errStopped
	}
	u.sockets = append(u.sockets, s)
	return s, nil
}

// kept is how many sockets or connections are held for later.
func (o *options) kept(usual int) int {
	if o.maxIdle > 0 {
		return min(o.maxIdle, usual)
	}
	return usual
}

// read gives out what comes until nobody waits for anything more.
func (s *socket) read() {
	var p parser
	buf := make([]byte, wire.AdvertisedUDPSize+1)
	u, guesses := s.to, 0
	defer context.AfterFunc(u.set.ctx, func() { _ = s.conn.Close() })()
	_ = s.conn.SetReadDeadline(time.Now().Add(u.tick()))
	for {
		n, err := s.conn.Read(buf)
		switch {
		case err == nil:
			if u.read(&s.table, buf[:n], &p, wire.AdvertisedUDPSize) {
				guesses++
			}
			if guesses > mostGuesses {
				s.end(errGuessed)
				return
			}
		case errors.Is(err, os.ErrDeadlineExceeded):
			now := time.Now()
			s.sweep(now)
			if s.done(now) {
				return
			}
			_ = s.conn.SetReadDeadline(now.Add(u.tick()))
		default:
			// The upstream's machine says that nobody listens, or we stop.
			if errors.Is(err, net.ErrClosed) {
				err = errStopped
			}
			s.end(err)
			return
		}
	}
}

// sweep ends what has waited too long.
func (s *socket) sweep(now time.Time) {
	for _, a := range s.expire(now.Add(-s.to.options().readTimeout)) {
		s.to.failed(a, timedOut("udp", s.conn.LocalAddr(), s.conn.RemoteAddr()))
	}
}

// done closes a socket that has had its time.
func (s *socket) done(now time.Time) bool {
	if now.Sub(s.born) > s.to.options().expire {
		s.retired.Store(true)
	}
	if !s.retired.Load() || s.load() > 0 {
		return false
	}
	s.end(errBusy) // for those that came in this moment
	return true
}

// end closes the socket, and ends the attempts on it.
func (s *socket) end(err error) {
	s.retired.Store(true)
	_ = s.conn.Close()
	for _, a := range s.close() {
		s.to.failed(a, err)
	}
}
