package forward

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/sys/clock"
	"github.com/seamark/seamark/wire"
)

const (
	// defaultStreams is the maximum number of connections to an upstream, unless
	// maxStreamLoad queries wait on each.
	defaultStreams = 4
	maxStreams     = 16
	maxStreamLoad  = 64
	// maxResent is the number of connections that may be closed while an attempt
	// waits on them, before the attempt fails.
	maxResent = 4
	// minDialTimeout is the minimum timeout for connecting.
	minDialTimeout = time.Second
)

// A stream is a TCP or TLS connection to one upstream. Many queries wait on it,
// and replies arrive in any order (RFC 7766 §6.2.1.1).
type stream struct {
	attemptTable
	upstream     *upstream
	connected    atomic.Bool // conn is set
	conn         net.Conn
	opened       time.Time
	lastActivity atomic.Int64  // the time of the last query sent or data received
	lastMessage  time.Duration // of package clock: the last complete message; owned by the reader
	retired      atomic.Bool

	writeMu sync.Mutex // held while adding to the table and writing
}

// sendStream sends a over a connection. It may block while it writes.
func (u *upstream) sendStream(a *attempt) {
	var err error
	for range 3 { // a connection may be closed at any time
		var s *stream
		if s, err = u.stream(a); s != nil {
			err = s.send(a)
		}
		if err == nil || err == errStopped {
			break
		}
		a.fresh = true
	}

	if err != nil {
		u.fail(a, err)
	}
}

// stream returns the connection with the fewest waiting queries. If a.fresh is set or too many
// queries wait on each, it returns nil, and a waits on a new one. That has a before it connects: so
// a ends with the connection's own error, however soon that fails.
func (u *upstream) stream(a *attempt) (*stream, error) {
	now := time.Now()
	u.mu.Lock()
	defer u.mu.Unlock()
	u.streams = slices.DeleteFunc(u.streams, func(s *stream) bool {
		if age := u.options().maxAge; age > 0 && now.Sub(s.opened) > age {
			s.retired.Store(true)
		}
		return s.retired.Load()
	})

	var s *stream
	leastLoad := 0
	for _, other := range u.streams {
		if load := other.load(); s == nil || load < leastLoad {
			s, leastLoad = other, load
		}
	}

	// From idleLimit connections on, each takes as many queries as a socket.
	n := len(u.streams)
	hasRoom := leastLoad < maxStreamLoad || leastLoad < maxSocketLoad && n >= u.options().idleLimit(defaultStreams)
	if s != nil && (n >= maxStreams || !a.fresh && hasRoom || u.reserve(n, u.streamMemory()) != nil) {
		u.metrics.reused[u.proto()].Add(1)
		return s, nil
	}
	if s == nil {
		_ = u.reserve(0, u.streamMemory())
	}

	u.metrics.opened[u.proto()].Add(1)
	s = &stream{upstream: u, opened: now}
	s.lastActivity.Store(int64(clock.At(now)))
	a.reused = false
	_ = s.add(a) // an empty table has room
	if !u.set.spawn(s.run) {
		u.unreserve(u.streamMemory())
		return nil, errStopped
	}
	u.streams = append(u.streams, s)
	return nil, nil
}

// streamMemory returns the memory of a connection.
func (u *upstream) streamMemory() int64 {
	if u.scheme == schemeTLS {
		return tlsMemory
	}
	return streamMemory
}

// proto returns the index of the upstream's protocol in upstreamMetrics: 1 for
// TCP, 2 for TLS, 3 for QUIC.
func (u *upstream) proto() int {
	switch u.scheme {
	case schemeTLS:
		return 2
	case schemeQUIC:
		return 3
	}
	return 1
}

// run connects, sends the attempts that wait for the connection, and reads until the
// connection ends.
func (s *stream) run() {
	defer s.upstream.unreserve(s.upstream.streamMemory())
	if err := s.dial(); err != nil {
		s.failDial(err)
		return
	}
	s.upstream.noTCPUntil.Store(math.MinInt64)

	s.writeMu.Lock()
	s.connected.Store(true)
	s.write(s.restart()...)
	s.writeMu.Unlock()

	s.read()
}

// failDial sends the attempts that wait for the connection in another way, or fails them.
func (s *stream) failDial(err error) {
	u, local := s.upstream, isLocal(err)
	s.retired.Store(true)
	if !local {
		u.noTCPUntil.Store(int64(clock.Now() + noTCPFor))
	}

	for _, a := range s.close(err) {
		switch {
		case local && u.sendOverOpenStream(a):
		case a.mayUseUDP && !a.requester.isFinished():
			a.useStream, a.mayUseUDP = false, false
			u.sendUDP(a)
		default:
			u.fail(a, err)
		}
	}
}

// sendOverOpenStream sends a over a connection that is open, if there is one.
func (u *upstream) sendOverOpenStream(a *attempt) bool {
	u.mu.Lock()
	open := slices.DeleteFunc(slices.Clone(u.streams), func(s *stream) bool {
		return !s.connected.Load() || s.retired.Load()
	})
	u.mu.Unlock()

	useStream, randomCase := a.useStream, a.randomCase
	a.useStream, a.randomCase = true, nil
	if slices.ContainsFunc(open, func(s *stream) bool { return s.send(a) == nil }) {
		return true
	}
	a.useStream, a.randomCase = useStream, randomCase
	return false
}

func (s *stream) dial() error {
	o := s.upstream.options()
	ctx, cancel := context.WithTimeout(s.upstream.set.ctx, max(o.readTimeout, minDialTimeout))
	defer cancel()

	conn, err := s.upstream.set.dial(ctx, "tcp", s.upstream.addr)
	if err != nil {
		return err
	}
	if s.upstream.scheme == schemeTLS {
		secure := tls.Client(conn, s.upstream.set.tlsConfig(s.upstream.upstreamID))
		if err := secure.HandshakeContext(ctx); err != nil {
			_ = conn.Close()
			return &net.OpError{Op: "handshake", Net: "tcp", Addr: conn.RemoteAddr(), Err: err}
		}
		conn = secure
	}
	s.conn = conn
	return nil
}

// send adds a to the table and writes it, now or once the connection is made. It
// returns an error if the table is full or closed.
func (s *stream) send(a *attempt) error {
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	a.reused = s.connected.Load()
	if err := s.add(a); err != nil {
		return err
	}
	if a.reused {
		s.wake(s.upstream, s.conn)
		s.write(a)
	}
	return nil
}

// write writes attempts. The caller holds writeMu.
func (s *stream) write(attempts ...*attempt) {
	var framed []byte
	for _, a := range attempts {
		packet := a.packet()
		framed = append(binary.BigEndian.AppendUint16(framed, uint16(len(packet))), packet...)
	}

	s.lastActivity.Store(int64(clock.Now()))
	_ = s.conn.SetWriteDeadline(time.Now().Add(s.upstream.options().readTimeout))
	if _, err := s.conn.Write(framed); err != nil {
		s.disconnect() // the reader fails all waiting attempts
	}
}

// disconnect closes the connection, without TLS's closing handshake. The reader
// fails the waiting attempts.
func (s *stream) disconnect() {
	s.retired.Store(true)
	if !s.connected.Load() {
		return // dialing ends with the set's context
	}
	if secure, ok := s.conn.(*tls.Conn); ok {
		_ = secure.NetConn().Close()
		return
	}
	_ = s.conn.Close()
}

// read reads messages until the connection ends. Read deadlines make it fail
// overdue attempts; a partial message stays in buf.
func (s *stream) read() {
	defer s.disconnect()
	defer context.AfterFunc(s.upstream.set.ctx, s.disconnect)()

	var p parser
	u := s.upstream
	buf, filled := newReplyBuffer(u), 0
	defer buf.shrink(0)
	s.sweepLater(u, s.conn, time.Now())
	for {
		n, err := s.conn.Read(buf.bytes[filled:])
		filled += n
		if n > 0 {
			s.lastActivity.Store(int64(clock.Now()))
			var full error
			filled, full = s.handleMessages(buf, filled, &p)
			err = cmp.Or(full, err)
		}

		switch {
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded):
			now := time.Now()
			if s.failOverdue(now) || s.closeIfDone(now) {
				return
			}
			buf.shrink(filled)
			s.sweepLater(u, s.conn, now)
		default:
			s.fail(err)
			return
		}
	}
}

// handleMessages processes the complete messages in the first bytes of b. It returns how many bytes of the next
// one follow, for more of which it makes room.
func (s *stream) handleMessages(b *replyBuffer, filled int, p *parser) (rest int, err error) {
	buf, off := b.bytes, 0
	for filled-off >= 2 {
		end := off + 2 + int(binary.BigEndian.Uint16(buf[off:]))
		if end > filled {
			break
		}
		if s.upstream.receive(&s.attemptTable, buf[off+2:end], p, wire.MaxMessage) {
			s.handleStray()
		} else {
			s.lastMessage = clock.Now()
		}
		off = end
	}

	rest = copy(buf, buf[off:filled])
	if rest == len(buf) {
		err = b.grow(2 + int(binary.BigEndian.Uint16(buf)))
	}
	return rest, err
}

// handleStray ends the attempt that a message without a known ID must be meant for, since nobody
// else can send one over a connection. If there are several, it closes the connection.
func (s *stream) handleStray() {
	if a := s.takeOnly(); a != nil {
		s.upstream.endFaulty(a, wrongQuestion)
	} else if s.load() > 0 {
		s.disconnect()
	}
}

// fail ends the connection and its attempts. A server may close an idle connection, or
// close it after each reply. Then the attempts are sent again over a new connection, up
// to maxResent times.
func (s *stream) fail(err error) {
	s.disconnect()
	switch {
	case errors.Is(err, net.ErrClosed) && s.upstream.set.ctx.Err() != nil:
		err = errStopped
	case errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed):
		err = &net.OpError{
			Op: "read", Net: "tcp", Source: s.conn.LocalAddr(), Addr: s.conn.RemoteAddr(), Err: errClosed,
		}
	}

	s.writeMu.Lock() // send may have added an attempt that is not written yet
	waiting := s.close(err)
	s.writeMu.Unlock()

	var resent []*attempt
	for _, a := range waiting {
		resend := (a.reused && a.resent == 0 || s.lastMessage > 0 && a.resent < maxResent) && err != errStopped
		a.fresh, a.closed = true, len(waiting) == 1 && err != errStopped && !isTimeout(err)
		a.resent++
		if resend {
			resent = append(resent, a)
		} else {
			s.upstream.fail(a, err)
		}
	}
	s.upstream.resend(resent, err)
}

// resend sends attempts whose connection has ended with err.
func (u *upstream) resend(attempts []*attempt, err error) {
	send := func() {
		for _, a := range attempts {
			u.sendStream(a)
		}
	}
	if len(attempts) == 0 || u.set.spawn(send) {
		return
	}
	for _, a := range attempts {
		u.fail(a, err)
	}
}

// failOverdue fails the attempts that timed out. It closes the connection if no complete
// message has been received since one of them was sent.
func (s *stream) failOverdue(now time.Time) (dead bool) {
	for _, a := range s.expire(clock.At(now) - s.upstream.options().readTimeout) {
		dead = dead || s.lastMessage < a.sent
		s.upstream.fail(a, timeoutError("tcp", s.conn.LocalAddr(), s.conn.RemoteAddr()))
	}
	if dead {
		s.fail(timeoutError("tcp", s.conn.LocalAddr(), s.conn.RemoteAddr()))
	}
	return dead
}

// closeIfDone closes the table if no attempt waits and the connection has expired or been retired.
// It reports whether it has closed it.
func (s *stream) closeIfDone(now time.Time) bool {
	if s.load() > 0 {
		return false
	}
	unused := clock.At(now) - time.Duration(s.lastActivity.Load())
	if unused > s.upstream.options().expire || s.upstream.exceedsMaxIdle() || !s.upstream.keepsIdle() {
		s.retired.Store(true)
	}
	return s.retired.Load() && s.closeUnused()
}

// exceedsMaxIdle reports whether the upstream has more idle connections than
// max_idle_conns.
func (u *upstream) exceedsMaxIdle() bool {
	limit := u.options().maxIdleConns
	if limit == 0 {
		return false
	}

	u.mu.Lock()
	defer u.mu.Unlock()
	idle := 0
	for _, other := range u.streams {
		if !other.retired.Load() && other.load() == 0 {
			idle++
		}
	}
	return idle > limit
}
