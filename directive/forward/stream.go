package forward

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/wire"
)

const (
	// usualStreams is how many connections an upstream has at most, unless more
	// than throng questions wait on each.
	usualStreams = 4
	mostStreams  = 16
	throng       = 64
	// mostResent is how many connections may end on one attempt without being
	// its failure.
	mostResent = 4
	// dialTime is the least that a connection may take to come about.
	dialTime = time.Second
)

// A stream is a connection to one upstream, over TCP or TLS. Many questions
// wait on it, and answers may come in any order (RFC 7766 §6.2.1.1).
type stream struct {
	table
	to      *upstream
	ready   chan struct{} // closed when the connection has been made, or not
	err     error         // why not
	conn    net.Conn
	born    time.Time
	last    atomic.Int64 // when a question was sent, or something came
	heard   time.Time    // when the last whole message came; the reader's
	retired atomic.Bool

	writing sync.Mutex // held from the table to the wire
}

// sendStream sends a over a connection, and waits until it is made.
func (u *upstream) sendStream(a *attempt) {
	for range 3 { // a connection may be closed in between
		s, reused := u.stream(a.fresh)
		if s == nil {
			break
		}
		<-s.ready
		if s.err != nil {
			u.failed(a, s.err)
			return
		}
		a.reused = reused
		if s.send(a) {
			return
		}
	}
	u.failed(a, errBusy)
}

// stream gives the connection with the fewest questions, a new one if fresh or
// if there are too few. reused says that it has been made already.
func (u *upstream) stream(fresh bool) (s *stream, reused bool) {
	now := time.Now()
	u.mu.Lock()
	defer u.mu.Unlock()
	u.streams = slices.DeleteFunc(u.streams, func(s *stream) bool {
		if age := u.options().maxAge; age > 0 && now.Sub(s.born) > age {
			s.retired.Store(true)
		}
		return s.retired.Load()
	})
	least := 0
	for _, have := range u.streams {
		if load := have.load(); s == nil || load < least {
			s, least = have, load
		}
	}
	n := len(u.streams)
	if s != nil && (n >= mostStreams || !fresh && (least < throng || n >= u.options().kept(usualStreams) && least < crowd)) {
		select {
		case <-s.ready:
			reused = true
		default:
		}
		u.counted.hit(u.proto())
		return s, reused
	}
	u.counted.miss(u.proto())
	s = &stream{to: u, ready: make(chan struct{}), born: now}
	s.last.Store(now.UnixNano())
	if !u.set.spawn(s.run) {
		return nil, false
	}
	u.streams = append(u.streams, s)
	return s, false
}

// proto is the upstream's place in series: 1 for TCP, 2 for TLS.
func (u *upstream) proto() int {
	if u.scheme == overTLS {
		return 2
	}
	return 1
}

// run makes the connection and reads it until it ends.
func (s *stream) run() {
	err := s.dial()
	if err != nil {
		s.retired.Store(true)
		s.err = err
	}
	close(s.ready)
	if err == nil {
		s.read()
	}
}

func (s *stream) dial() error {
	o := s.to.options()
	ctx, cancel := context.WithTimeout(s.to.set.ctx, max(o.readTimeout, dialTime))
	defer cancel()
	conn, err := o.dialer("tcp", s.to.addr.Addr()).DialContext(ctx, "tcp", s.to.addr.String())
	if err != nil {
		return err
	}
	if s.to.scheme == overTLS {
		secure := tls.Client(conn, s.to.set.tlsFor(s.to.target))
		if err := secure.HandshakeContext(ctx); err != nil {
			_ = conn.Close()
			return &net.OpError{Op: "handshake", Net: "tcp", Addr: conn.RemoteAddr(), Err: err}
		}
		conn = secure
	}
	s.conn = conn
	return nil
}

// send puts a into the table and writes it. It says false if there is no room.
func (s *stream) send(a *attempt) bool {
	s.writing.Lock()
	defer s.writing.Unlock()
	if !s.add(a) {
		return false
	}
	framed := append(binary.BigEndian.AppendUint16(make([]byte, 0, 2+len(a.packet)), uint16(len(a.packet))), a.packet...)
	s.last.Store(time.Now().UnixNano())
	_ = s.conn.SetWriteDeadline(time.Now().Add(s.to.options().readTimeout))
	if _, err := s.conn.Write(framed); err != nil {
		s.hangUp() // the reader says so to all who wait
	}
	return true
}

// hangUp ends the connection; its reader does the rest. It does not wait for
// TLS to say goodbye.
func (s *stream) hangUp() {
	s.retired.Store(true)
	select {
	case <-s.ready:
	default:
		return // the dial ends with the set's context
	}
	if s.err != nil {
		return
	}
	if secure, ok := s.conn.(*tls.Conn); ok {
		_ = secure.NetConn().Close()
		return
	}
	_ = s.conn.Close()
}

// read gives out what comes. What has come of a message stays in buf when the
// deadline is over.
func (s *stream) read() {
	defer s.hangUp()
	defer context.AfterFunc(s.to.set.ctx, s.hangUp)()
	var p parser
	buf, have := make([]byte, 4096), 0
	u := s.to
	_ = s.conn.SetReadDeadline(time.Now().Add(u.tick()))
	for {
		n, err := s.conn.Read(buf[have:])
		have += n
		if n > 0 {
			s.last.Store(time.Now().UnixNano())
			buf, have = s.messages(buf, have, &p)
		}
		switch {
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded):
			now := time.Now()
			if s.sweep(now) || s.done(now) {
				return
			}
			_ = s.conn.SetReadDeadline(now.Add(u.tick()))
		default:
			s.broken(err)
			return
		}
	}
}

// messages gives out the whole ones of buf[:have] and keeps the rest, with room
// behind it.
func (s *stream) messages(buf []byte, have int, p *parser) ([]byte, int) {
	off := 0
	for have-off >= 2 {
		end := off + 2 + int(binary.BigEndian.Uint16(buf[off:]))
		if end > have {
			break
		}
		s.to.read(&s.table, buf[off+2:end], p, wire.MaxMessage)
		s.heard = time.Now()
		off = end
	}
	have = copy(buf, buf[off:have])
	if need := 2; have >= 2 {
		need += int(binary.BigEndian.Uint16(buf))
		if need > len(buf) {
			buf = append(make([]byte, 0, need), buf[:have]...)[:need]
		}
	}
	return buf, have
}

// broken ends the attempts on a connection that has ended. A server may close
// one that has been idle just when it is used again, or after each answer: then,
// a few times, a new one is made.
func (s *stream) broken(err error) {
	s.hangUp()
	switch {
	case errors.Is(err, net.ErrClosed) && s.to.set.ctx.Err() != nil:
		err = errStopped
	case errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed):
		err = &net.OpError{Op: "read", Net: "tcp", Source: s.conn.LocalAddr(), Addr: s.conn.RemoteAddr(), Err: errHungUp}
	}
	s.writing.Lock() // who writes has its packet in hand
	waiting := s.close()
	s.writing.Unlock()
	for _, a := range waiting {
		again := (a.reused && a.resent == 0 || !s.heard.IsZero() && a.resent < mostResent) && err != errStopped
		a.fresh = true
		a.resent++
		if !again || !s.to.set.spawn(func() { s.to.sendStream(a) }) {
			s.to.failed(a, err)
		}
	}
}

// sweep ends what has waited too long. A connection on which nothing whole came
// meanwhile is dead, whatever was sent on it.
func (s *stream) sweep(now time.Time) (dead bool) {
	for _, a := range s.expire(now.Add(-s.to.options().readTimeout)) {
		dead = dead || s.heard.Before(a.sent)
		s.to.failed(a, timedOut("tcp", s.conn.LocalAddr(), s.conn.RemoteAddr()))
	}
	if dead {
		s.broken(timedOut("tcp", s.conn.LocalAddr(), s.conn.RemoteAddr()))
	}
	return dead
}

// done closes a connection that nobody uses, or that has had its time.
func (s *stream) done(now time.Time) bool {
	if s.load() > 0 {
		return false
	}
	if now.UnixNano()-s.last.Load() > int64(s.to.options().expire) || s.to.tooMany(s) {
		s.retired.Store(true)
	}
	if !s.retired.Load() {
		return false
	}
	s.broken(errHungUp)
	return true
}

// tooMany says whether more idle connections are held than max_idle_conns
// allows; s is one of them.
func (u *upstream) tooMany(s *stream) bool {
	most := u.options().maxIdle
	if most == 0 {
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
	return idle > most
}
