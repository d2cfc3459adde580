package transport

import (
	"errors"
	"net"
	"os"
	"time"

	"github.com/seamark/seamark/dns"
)

// Bounds for replies that wait to be written, in bytes: sixteen of the largest for
// one connection, whose client may read well and ask many at once; and for all of a
// listener what a small pod can spare. Who is over them does not read.
const (
	maxQueued    = 1 << 20
	maxQueuedAll = 16 << 20
)

// Send queues the reply of a query that was parked. It does not wait for the
// client: workers are everybody's. Whoever is writing already takes it along,
// otherwise a goroutine writes it.
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

// What becomes of a late reply.
type enqueueResult uint8

const (
	enqueued  enqueueResult = iota // the writer releases the query
	overLimit                      // the client has too many that it does not read
	connCut                        // the connection is cut
)

func (c *conn) enqueue(reply []byte) enqueueResult {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead {
		return connCut
	}
	if len(reply) > 0 { // or it was dropped
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

// writeLate writes late replies while there are any.
func (c *conn) writeLate() {
	c.mu.Lock()
	last := c.drain()
	c.mu.Unlock()
	if last {
		c.closeGracefully()
	}
}

// flush writes what the reader has gathered, and waits for the client to take
// it: who does not read is not read from.
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

// takeUp writes what there was to write when the connection was attended.
func (c *conn) flushInitial() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writeOut()
}

// writeOut writes what the reader has gathered, and what is queued. c.mu is
// held and c.writing is the caller's.
func (c *conn) writeOut() bool {
	if c.out != nil {
		c.write(c.out)
		c.out = nil
		c.messageStart = time.Now() // the client could not send while we did not read
	}
	c.drain() // never the last: the reader is still there
	return !c.dead
}

// drain writes the queue until it is empty, releases its queries, and lets
// others write. It says whether nobody is left. c.mu is held and c.writing is
// the caller's.
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

// write writes and frees b. c.mu is held, but not while it waits; c.writing is
// the caller's.
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
	// As in arm, but a deadline must not be early: it is set for an eighth more.
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

// cut ends the connection now. Whoever reads from it or writes to it sees that,
// and its parked queries go nowhere.
func (c *conn) cut() {
	c.mu.Lock()
	dead, tcp := c.dead, c.tcp
	c.dead = true
	c.mu.Unlock()
	if dead {
		return
	}
	close(c.cutDone)
	if tcp != nil { // or attend sees that it is dead
		reset(tcp)
	}
}
