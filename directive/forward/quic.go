package forward

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/seamark/seamark/sys/clock"
	"github.com/seamark/seamark/sys/follow"
	"github.com/seamark/seamark/sys/memory"
)

// Error codes of DNS over QUIC (RFC 9250 §4.3).
const (
	doqNoError          quic.ApplicationErrorCode = 0
	doqProtocolError    quic.ApplicationErrorCode = 2
	doqRequestCancelled quic.StreamErrorCode      = 3
)

const (
	// minSilence is the default of upstreamSet.minSilence. Upstreams acknowledge a query within the
	// round-trip time and 25 ms.
	minSilence = 100 * time.Millisecond
	// endTimeout is how long to wait for the end of a stream after its reply.
	endTimeout = 100 * time.Millisecond
)

// A quicConn is a connection over QUIC to one upstream (RFC 9250), or the attempt to open one.
// Each query has a stream of its own.
type quicConn struct {
	upstream *upstream
	opened   time.Time
	ctx      context.Context // ends when the connection has to be closed
	cancel   context.CancelFunc
	ready    follow.Event // closed when conn or err is set
	conn     *quic.Conn
	err      error
	answered atomic.Bool
	used     follow.Signal // queries becomes 1

	// Guarded by upstream.mu.
	queries int
	retired bool
	unused  time.Duration // of package clock: when queries became 0
}

// exchangeQUIC sends a query on a stream and returns the reply. If the connection ends
// meanwhile, it sends the query over a new one: upstreams close idle connections, and restart.
func (u *upstream) exchangeQUIC(ctx context.Context, packet []byte) (answer []byte, err error) {
	for sent := range maxResent {
		c := u.quicConn()
		if c == nil {
			return nil, errStopped
		}
		reused := c.ready.Happened()
		answer, err = c.exchange(ctx, packet)
		ended := ctx.Err() == nil && endsConnection(err)
		c.release(ended)
		if !ended || errors.Is(err, errDoQProtocol) || (!reused || sent > 0) && !c.answered.Load() {
			break
		}
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", u, err)
	}
	return answer, err
}

// endsConnection reports whether err concerns a connection, and not only a stream.
func endsConnection(err error) bool {
	var reset *quic.StreamError
	_, full := errors.AsType[*memory.Error](err)
	return err != nil && !full && !errors.As(err, &reset) && !errors.Is(err, os.ErrDeadlineExceeded)
}

// quicConn returns the connection for a query, which has to release it. If there is none it
// begins to open one. It returns nil if the set of upstreams stops.
func (u *upstream) quicConn() *quicConn {
	u.mu.Lock()
	defer u.mu.Unlock()
	maxAge := u.options().maxAge
	if c := u.quic; c != nil && (c.hasEnded() || maxAge > 0 && time.Since(c.opened) > maxAge) {
		c.retire()
	}

	if u.quic != nil {
		u.metrics.reused[u.proto()].Add(1)
	} else {
		u.metrics.opened[u.proto()].Add(1)
		c := &quicConn{upstream: u, opened: time.Now(), ready: follow.NewEvent(), used: follow.NewSignal()}
		c.ctx, c.cancel = context.WithCancel(u.set.ctx)
		if !u.set.spawn(c.run) {
			c.cancel()
			return nil
		}
		u.quic = c
	}

	if u.quic.queries++; u.quic.queries == 1 {
		u.quic.used.Send()
	}
	return u.quic
}

// retire makes queries use another connection. The caller holds upstream.mu.
func (c *quicConn) retire() {
	c.retired = true
	if c.upstream.quic == c {
		c.upstream.quic = nil
	}
	if c.queries == 0 {
		c.cancel()
	}
}

// release is called when a query has ended. ended reports whether its connection has, too.
func (c *quicConn) release(ended bool) {
	c.upstream.mu.Lock()
	defer c.upstream.mu.Unlock()
	c.queries--
	c.unused = clock.Now()
	if ended || c.retired {
		c.retire()
	}
}

// hasEnded reports whether the connection is closed, or could not be opened.
func (c *quicConn) hasEnded() bool {
	return c.ready.Happened() && (c.conn == nil || c.conn.Context().Err() != nil)
}

// run opens the connection, and closes it when it has expired or been retired.
func (c *quicConn) run() {
	defer c.cancel()
	u := c.upstream
	ctx, cancel := context.WithTimeout(c.ctx, max(u.options().readTimeout, minDialTimeout))
	defer cancel()

	_ = u.reserve(0, quicMemory) // an upstream has one connection
	defer u.unreserve(quicMemory)
	socket, err := u.set.dial(ctx, "udp", u.addr)
	if err != nil {
		c.err = err
		close(c.ready)
		return
	}
	defer func() { _ = socket.Close() }()
	transport := &quic.Transport{Conn: quicSocket{socket}}
	defer func() { _ = transport.Close() }()

	config := u.set.tlsConfig(u.upstreamID)
	config.NextProtos = []string{"doq"}
	c.conn, c.err = transport.Dial(ctx, socket.RemoteAddr(), config, &quic.Config{
		HandshakeIdleTimeout:  max(u.options().readTimeout, minDialTimeout),
		MaxIdleTimeout:        u.options().expire + u.options().readTimeout,
		MaxIncomingStreams:    -1,
		MaxIncomingUniStreams: -1,
	})
	close(c.ready)
	if c.err != nil {
		return
	}

	defer func() { _ = c.conn.CloseWithError(doqNoError, "") }()
	c.watch()
}

// watch returns when the connection has ended or expired, or when the upstream seems not to know
// it any more: packets are sent, such as retransmissions of a query, and none is received.
func (c *quicConn) watch() {
	last, silent := c.conn.ConnectionStats(), false
	for {
		used := false
		select {
		case <-time.After(c.untilCheck(last)):
		case <-c.used:
			used = true
		case <-c.ctx.Done():
		case <-c.conn.Context().Done():
		}
		now := c.conn.ConnectionStats()
		received := now.PacketsReceived != last.PacketsReceived
		if c.ctx.Err() != nil || c.conn.Context().Err() != nil || silent && !received && !used {
			return
		}

		silent = !used && !received && now.PacketsSent != last.PacketsSent
		if last = now; used {
			last.PacketsSent = 0 // the query is going to be sent, or just was
		}
	}
}

// untilCheck returns the time until the next check of the connection. It retires a connection that
// has expired.
func (c *quicConn) untilCheck(stats quic.ConnectionStats) time.Duration {
	u := c.upstream
	u.mu.Lock()
	defer u.mu.Unlock()
	if c.queries > 0 {
		return max(u.set.minSilence, 2*stats.SmoothedRTT)
	}
	left := c.unused + u.options().expire - clock.Now()
	if left <= 0 {
		c.retire()
	}
	return max(left, time.Millisecond)
}

// exchange sends a query on a stream and returns the reply.
func (c *quicConn) exchange(ctx context.Context, packet []byte) ([]byte, error) {
	select {
	case <-c.ready:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if c.err != nil {
		return nil, c.err
	}

	s, err := c.conn.OpenStreamSync(ctx)
	if err != nil {
		return nil, err
	}
	defer s.CancelRead(doqRequestCancelled) // has no effect after the end of the stream
	if deadline, ok := ctx.Deadline(); ok {
		_ = s.SetDeadline(deadline)
	}

	if _, err := s.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(packet))), packet...)); err != nil {
		s.CancelWrite(doqRequestCancelled)
		return nil, err
	}
	_ = s.Close()

	answer, err := c.upstream.readStream(s)
	switch {
	case err == nil:
		c.answered.Store(true)
	case errors.Is(err, errDoQProtocol):
		_ = c.conn.CloseWithError(doqProtocolError, "")
	}
	return answer, err
}

var errDoQProtocol = errors.New("the upstream violates DNS over QUIC (RFC 9250)")

// readStream reads the reply on a stream, which has to be the only message, with the ID 0.
func (u *upstream) readStream(s *quic.Stream) (answer []byte, err error) {
	var size [2]byte
	if _, err = io.ReadFull(s, size[:]); err == nil {
		n := int(binary.BigEndian.Uint16(size[:]))
		if answer, err = u.readAll(io.LimitReader(s, int64(n)), n); err == nil && len(answer) < n {
			err = io.ErrUnexpectedEOF
		}
	}
	switch {
	case err == io.EOF, err == io.ErrUnexpectedEOF:
		return nil, fmt.Errorf("%w: incomplete reply", errDoQProtocol)
	case err != nil:
		return nil, err
	case len(answer) < 2 || answer[0] != 0 || answer[1] != 0:
		return nil, fmt.Errorf("%w: reply without the ID 0", errDoQProtocol)
	}

	_ = s.SetReadDeadline(time.Now().Add(endTimeout))
	if n, _ := s.Read(size[:1]); n > 0 {
		return nil, fmt.Errorf("%w: several replies to a query", errDoQProtocol)
	}
	return answer, nil
}

// A quicSocket is a connected UDP socket. In contrast to the unconnected ones of quic-go, its
// calls fail when the host of the upstream reports that the port is closed.
type quicSocket struct{ net.Conn }

func (s quicSocket) ReadFrom(p []byte) (int, net.Addr, error) {
	n, err := s.Read(p)
	return n, s.RemoteAddr(), err
}

func (s quicSocket) WriteTo(p []byte, _ net.Addr) (int, error) { return s.Write(p) }

// SetReadBuffer does nothing: the standard size is enough for the replies to several hundred
// queries. quic-go would print a warning without it.
func (s quicSocket) SetReadBuffer(int) error { return nil }

// SetWriteBuffer does nothing either.
func (s quicSocket) SetWriteBuffer(int) error { return nil }
