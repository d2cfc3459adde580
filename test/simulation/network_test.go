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
	unread   int   // bytes of a stream that were sent
	deadline time.Time
	timer    *time.Timer
	latest   time.Time // the deadline of writes
	writing  *time.Timer
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
	q.unread += len(data)
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
			q.unread -= n
			q.changed.Broadcast() // the writer may wait
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
	err := c.awaitRoom()
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

// window is how much of a stream the peer may leave unread before Write blocks.
const window = 64 << 10

// awaitRoom blocks while the peer has not read what was sent, and returns the error of a write.
func (c *conn) awaitRoom() error {
	q := c.out
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.err == nil && !q.dead && !c.datagrams && q.unread > window && !closed(q.closed) && !closed(c.in.closed) {
		if !q.latest.IsZero() && !time.Now().Before(q.latest) {
			return os.ErrDeadlineExceeded
		}
		q.changed.Wait()
	}
	return q.err
}

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
	c.end() // what was sent arrives
	c.out.changed.Broadcast()
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
	c.in.setDeadline(t, &c.in.deadline, &c.in.timer)
	return nil
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	c.out.setDeadline(t, &c.out.latest, &c.out.writing)
	return nil
}

func (q *queue) setDeadline(t time.Time, deadline *time.Time, timer **time.Timer) {
	q.mu.Lock()
	defer q.mu.Unlock()
	*deadline = t
	if *timer != nil {
		(*timer).Stop()
	}
	if !t.IsZero() {
		*timer = time.AfterFunc(max(time.Until(t), atOnce), func() {
			q.mu.Lock()
			defer q.mu.Unlock()
			q.changed.Broadcast()
		})
	}
	q.changed.Broadcast()
}
