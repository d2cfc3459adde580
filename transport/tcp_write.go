package transport

import (
	"errors"
	"net"
	"os"
	"time"

	"github.com/seamark/seamark/dns"
)

// Bounds on replies that wait to be written, in bytes: sixteen of the largest for one
// connection, and for all connections of a listener what a small pod can spare.
// Clients over the limits are disconnected.
const (
	maxQueued    = 1 << 20
	maxQueuedAll = 16 << 20
)

// Send queues the reply of a parked query. It does not wait for the client. The
// goroutine that is writing to the connection also writes the queue; if there is
// none, Send starts one.
func (c *conn) Send(q *dns.Query) {
	if len(q.Packet()) > datagram {
		<-c.l.large
	}
	switch reply := q.Reply(); c.enqueue(reply) {
	case overLimit:
		c.l.counts.slowReader.Add(1)
		c.cut()
		c.release(1)
	case connCut:
		c.release(1)
	}
}

// An enqueueResult is what enqueue did with a reply.
type enqueueResult uint8

const (
	enqueued  enqueueResult = iota // the writer releases the query
	overLimit                      // too many replies are not read by the client
	connCut                        // the connection is cut
)

func (c *conn) enqueue(reply []byte) enqueueResult {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead {
		return connCut
	}
	if len(reply) > 0 { // otherwise it was dropped
		size := int64(len(reply) + 2)
		if c.queue == nil {
			c.queue = c.l.buffers.Get().(*buffer)
		}
		waiting := len(c.queue.b)
		if waiting > 0 && waiting+int(size) > maxQueued {
			return overLimit
		}
		if c.l.queued.Add(size) > maxQueuedAll {
			c.l.queued.Add(-size)
			return overLimit
		}
		c.queue.add(reply)
	}
	c.queued++
	if !c.writing {
		c.writing = true
		c.l.conns.running.Go(c.writeLate)
	}
	return enqueued
}

// writeLate writes the queue until it is empty.
func (c *conn) writeLate() {
	c.mu.Lock()
	last := c.drain()
	c.mu.Unlock()
	if last {
		c.closeGracefully()
	}
}

// flush writes the replies of the reader and waits for the client to accept them: a
// client that does not read is not read from.
func (c *conn) flush() bool {
	if c.out == nil {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.writing {
		c.writerDone.Wait()
	}
	c.writing = true
	return c.writeOut()
}

// flushInitial writes what there was to write when the reader was started.
func (c *conn) flushInitial() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writeOut()
}

// writeOut writes the reader's replies and the queue. The caller holds c.mu and has
// set c.writing.
func (c *conn) writeOut() bool {
	if c.out != nil {
		c.write(c.out)
		c.out = nil
		c.messageStart = time.Now() // the message timeout excludes the time of writing
	}
	c.drain() // returns false: the reader holds a reference
	return !c.dead
}

// drain writes the queue until it is empty, releases its queries and resets
// c.writing. It reports whether no references are left. The caller holds c.mu and
// has set c.writing.
func (c *conn) drain() (last bool) {
	for c.queued > 0 {
		b, n := c.queue, c.queued
		c.queue, c.queued = nil, 0
		if b != nil {
			size := int64(len(b.b))
			c.write(b)
			c.l.queued.Add(-size)
		}
		c.lastActive.Store(c.l.clock(time.Now()))
		last = c.refs.Add(-n) == 0
		select {
		case c.written <- struct{}{}:
		default:
		}
	}
	c.writing = false
	c.writerDone.Broadcast()
	return last
}

// write writes and frees b. The caller holds c.mu, which is released while write
// blocks, and has set c.writing.
func (c *conn) write(b *buffer) {
	if !c.dead {
		c.mu.Unlock()
		c.writeNow(b.b)
		c.mu.Lock()
	}
	c.l.free(b)
}

func (c *conn) writeNow(p []byte) {
	timeout := c.l.limits.Load().WriteTimeout
	// As in setReadDeadline, but the deadline must not be early.
	if now := time.Now(); c.writeDeadline.Sub(now) < timeout {
		c.writeDeadline = now.Add(timeout + timeout/8)
		_ = c.tcp.SetWriteDeadline(c.writeDeadline)
	}
	_, err := c.tcp.Write(p)
	switch {
	case err == nil:
		return
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.l.counts.slowReader.Add(1)
	case !errors.Is(err, net.ErrClosed) && !errors.Is(err, os.ErrClosed):
		c.l.counts.sendTCP.Add(1)
	}
	c.cut()
}

// cut ends the connection at once. Its reader and writer get errors, and the replies
// of its parked queries are discarded.
func (c *conn) cut() {
	c.mu.Lock()
	dead, tcp := c.dead, c.tcp
	c.dead = true
	c.mu.Unlock()
	if dead {
		return
	}
	close(c.cutDone)
	if tcp != nil { // otherwise startReader resets it
		reset(tcp)
	}
}
