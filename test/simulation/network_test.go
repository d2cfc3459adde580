package simulation

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"
)

// A conn is one end of a connection in memory: a stream, or datagrams.
type conn struct {
	in, out       *queue
	local, remote net.Addr
	datagrams     bool
}

// A queue is one direction of a connection. Its receiver reads packets in order, at the
// time at which they arrive.
type queue struct {
	mu       sync.Mutex
	changed  *sync.Cond
	packets  []packet // arrived
	last     time.Time
	err      error // after the packets
	dead     bool  // packets are lost
	deadline time.Time
	timer    *time.Timer
	closed   chan struct{} // closed with the receiver
	closedAt time.Time
}

// A packet is a part of a stream, or a datagram. read, if not nil, is called when the
// receiver has read it.
type packet struct {
	data []byte
	read func()
}

var errReset = &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}

func newQueue() *queue {
	q := &queue{closed: make(chan struct{})}
	q.changed = sync.NewCond(&q.mu)
	return q
}

// connect returns the two ends of a connection.
func connect(network string, from, to netip.AddrPort) (client, server *conn) {
	var local, remote net.Addr = net.TCPAddrFromAddrPort(from), net.TCPAddrFromAddrPort(to)
	if network == "udp" {
		local, remote = net.UDPAddrFromAddrPort(from), net.UDPAddrFromAddrPort(to)
	}
	up, down := newQueue(), newQueue()
	client = &conn{in: down, out: up, local: local, remote: remote, datagrams: network == "udp"}
	server = &conn{in: up, out: down, local: remote, remote: local, datagrams: network == "udp"}
	return client, server
}

// atOnce is the shortest delay. The function of a timer that is due at once would run on the
// goroutine that sets it, and the race detector of Go 1.26 has crashed in one.
const atOnce = 1

// send delivers a packet after some time, and after the packets that were sent before it
// unless they are datagrams.
func (c *conn) send(data []byte, delay time.Duration, read func()) {
	q := c.out
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	at := now.Add(max(delay, atOnce))
	if !c.datagrams && !at.After(q.last) {
		at = q.last.Add(1)
	}
	q.last = at
	p := packet{append([]byte(nil), data...), read}
	time.AfterFunc(at.Sub(now), func() { q.deliver(p) })
}

func (q *queue) deliver(p packet) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err == nil && !q.dead {
		q.packets = append(q.packets, p)
		q.changed.Broadcast()
	}
}

// fail ends a direction: its receiver gets err after the packets that have arrived.
func (q *queue) fail(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err == nil && !q.dead {
		q.err = err
		q.changed.Broadcast()
	}
}

// end sends an end of stream after the packets that were sent before.
func (c *conn) end() {
	q := c.out
	q.mu.Lock()
	delay := max(0, time.Until(q.last)+1)
	q.mu.Unlock()
	time.AfterFunc(max(delay, atOnce), func() { q.fail(io.EOF) })
}

// reset ends both directions at once.
func (c *conn) reset() {
	c.in.fail(errReset)
	c.out.fail(errReset)
}

// die ends c like a machine that has lost its power: it reads nothing more, and its peer
// receives nothing more, not even an error.
func (c *conn) die() {
	c.out.mu.Lock()
	c.out.dead = true
	c.out.mu.Unlock()
	c.in.fail(errReset)
}

func (c *conn) Read(buf []byte) (n int, err error) {
	q := c.in
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		switch {
		case closed(q.closed):
			return 0, &net.OpError{Op: "read", Net: c.local.Network(), Source: c.local, Addr: c.remote, Err: net.ErrClosed}
		case !q.deadline.IsZero() && !time.Now().Before(q.deadline):
			return 0, &net.OpError{Op: "read", Net: c.local.Network(), Source: c.local, Addr: c.remote, Err: os.ErrDeadlineExceeded}
		case len(q.packets) > 0:
			p := &q.packets[0]
			n = copy(buf, p.data)
			if p.data = p.data[n:]; len(p.data) == 0 || c.datagrams {
				if p.read != nil {
					p.read()
				}
				q.packets = q.packets[1:]
			}
			return n, nil
		case q.err != nil:
			return 0, q.err
		}
		q.changed.Wait()
	}
}

func closed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func (c *conn) Write(data []byte) (int, error) {
	c.in.mu.Lock()
	halfOpen := c.in.dead
	c.in.mu.Unlock()
	c.out.mu.Lock()
	err := c.out.err
	c.out.mu.Unlock()
	switch {
	case closed(c.in.closed):
		err = net.ErrClosed
	case halfOpen:
		err = nil
	}
	if err != nil {
		return 0, &net.OpError{Op: "write", Net: c.local.Network(), Source: c.local, Addr: c.remote, Err: err}
	}
	c.send(data, time.Millisecond, nil)
	return len(data), nil
}

// CloseRead makes reads fail. CloseWrite ends what c sends.
func (c *conn) CloseRead() error  { c.in.fail(io.EOF); return nil }
func (c *conn) CloseWrite() error { c.end(); return nil }

// SetLinger does nothing: Close discards nothing that was sent.
func (c *conn) SetLinger(int) error { return nil }

// Close ends both directions. The peer reads the end of the stream.
func (c *conn) Close() error {
	q := c.in
	q.mu.Lock()
	if closed(q.closed) {
		q.mu.Unlock()
		return net.ErrClosed
	}
	close(q.closed)
	q.closedAt = time.Now()
	q.changed.Broadcast()
	if q.timer != nil {
		q.timer.Stop()
	}
	q.mu.Unlock()
	c.out.fail(io.EOF)
	return nil
}

// openAfter reports whether the receiver was still open after a time.
func (q *queue) openAfter(then time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closedAt.IsZero() || q.closedAt.After(then)
}

func (c *conn) LocalAddr() net.Addr  { return c.local }
func (c *conn) RemoteAddr() net.Addr { return c.remote }

func (c *conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

func (c *conn) SetReadDeadline(t time.Time) error {
	q := c.in
	q.mu.Lock()
	defer q.mu.Unlock()
	q.deadline = t
	if q.timer != nil {
		q.timer.Stop()
	}
	if !t.IsZero() {
		q.timer = time.AfterFunc(time.Until(t), func() {
			q.mu.Lock()
			defer q.mu.Unlock()
			q.changed.Broadcast()
		})
	}
	q.changed.Broadcast()
	return nil
}

// SetWriteDeadline does nothing: Write does not block.
func (c *conn) SetWriteDeadline(time.Time) error { return nil }
