package transport

import (
	"encoding/binary"
	"errors"
	"io"
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

// A buffer holds replies, each preceded by its length.
type buffer struct{ b []byte }

func (b *buffer) add(reply []byte) {
	b.b = binary.BigEndian.AppendUint16(b.b, uint16(len(reply)))
	b.b = append(b.b, reply...)
}

// free returns a buffer to the pool, unless it has grown too large.
func (l *Listener) free(b *buffer) {
	if cap(b.b) <= 4*outSize {
		b.b = b.b[:0]
		l.buffers.Put(b)
	}
}

// Send queues the reply of a parked query. It does not wait for the client. The
// goroutine that is writing to the connection also writes the queue; if there is
// none, Send starts one.
func (c *conn) Send(q *dns.Query) {
	if isLarge(q.Packet()) {
		c.l.large.Release(c.client)
	}
	if !c.enqueue(q.Reply()) {
		c.release(1)
	}
}

// Stream writes a message of a parked query. It waits for the client to accept it: the
// zone transfer of a client that does not read stops, and is cut off after the write
// timeout.
func (c *conn) Stream(message []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.writing && !c.isCut {
		c.changed.Wait()
	}
	if !c.isCut {
		b := c.l.buffers.Get().(*buffer)
		b.add(message)
		c.writing = true
		c.write(b)
		c.lastActive.Store(c.l.clock(time.Now()))
		c.drain() // returns false: the query holds a reference
	}
	if c.isCut {
		return net.ErrClosed
	}
	return nil
}

// enqueue queues a reply, for a writer that releases its query. It returns false if
// the connection is cut. It cuts the connection if the client does not read its
// replies and too many wait.
func (c *conn) enqueue(reply []byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isCut {
		return false
	}

	if len(reply) > 0 { // otherwise it was dropped
		if c.queue == nil {
			c.queue = c.l.buffers.Get().(*buffer)
		}

		size := int64(len(reply) + 2)
		if n := len(c.queue.b); n > 0 && n+int(size) > maxQueued || c.l.queued.Load()+size > maxQueuedAll ||
			c.l.o.Memory.ReserveReply(c.client, size) != nil {
			c.l.counts.slowReader.Add(1)
			c.cutLocked()
			return false
		}
		c.l.queued.Add(size)
		c.queue.add(reply)
	}

	c.queued++
	if !c.writing {
		c.writing = true
		c.l.conns.running.Go(c.writeQueue)
	}
	return true
}

// writeQueue writes the queue until it is empty.
func (c *conn) writeQueue() {
	c.mu.Lock()
	last := c.drain()
	c.mu.Unlock()
	if last {
		c.closeGracefully()
	}
}

// flush writes the replies of the reader, and the queue. It waits for the client to
// accept them: a client that does not read is not read from. It returns false if the
// connection is cut.
func (c *conn) flush() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.out == nil {
		return !c.isCut
	}
	for c.writing {
		c.leaveLoop()
		c.changed.Wait()
	}

	out, n := c.out, 0
	c.out = nil
	if c.queued == 0 && !c.isCut {
		n = c.sock.tryWrite(out.b)
	}
	if n == len(out.b) {
		c.l.free(out)
		return true
	}

	out.b = out.b[:copy(out.b, out.b[n:])]
	c.leaveLoop()
	c.writing = true
	c.write(out)
	c.messageStart = time.Now() // the message timeout excludes the time of writing
	c.drain()                   // returns false: the reader holds a reference
	return !c.isCut
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
			c.l.o.Memory.ReleaseReply(c.client, size)
		}
		c.lastActive.Store(c.l.clock(time.Now()))
		last = c.refs.Add(-n) == 0
		c.changed.Broadcast()
	}
	c.writing = false
	c.changed.Broadcast()
	c.closeCut()
	return last
}

// write writes and frees b. The caller holds c.mu, which is released while write
// blocks, and has set c.writing.
func (c *conn) write(b *buffer) {
	if !c.isCut {
		c.mu.Unlock()
		c.writeNow(b.b)
		c.mu.Lock()
	}
	c.l.free(b)
}

func (c *conn) writeNow(p []byte) {
	n := c.sock.tryWrite(p)
	if n == len(p) {
		return
	}

	// The client has not read what the kernel keeps for it.
	size := int64(len(p)-n) + blockedSize
	if c.l.o.Memory.ReserveReply(c.client, size) != nil {
		c.l.counts.slowReader.Add(1)
		c.cut()
		return
	}
	defer c.l.o.Memory.ReleaseReply(c.client, size)

	_ = c.sock.SetWriteDeadline(time.Now().Add(c.l.limits.Load().WriteTimeout))
	_, err := c.sock.Write(p[n:])
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
	defer c.mu.Unlock()
	c.cutLocked()
}

// evict is cut for a connection that does not count any more.
func (c *conn) evict() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed && !c.evicted {
		c.evicted = true
		c.l.conns.evicted.Add(1)
	}
	c.cutLocked()
}

func (c *conn) cutLocked() {
	if c.isCut {
		return
	}
	c.isCut = true
	c.changed.Broadcast()
	if s, ok := c.sock.(*tlsSocket); ok {
		s.records.handshake.end()
	}

	// When the socket is closed the kernel discards unsent data and keeps no state of
	// the connection. Until then blocked calls return at once.
	_ = c.sock.SetLinger(0)
	_ = c.sock.CloseRead()
	_ = c.sock.CloseWrite()
	if c.waiting {
		c.waiting = false
		c.start()
	}
	c.closeCut()
}

// closeCut closes the socket of a connection that was cut, unless a reader or a writer uses it: the
// last of them calls closeCut again. Parked queries may take seconds, and no limit counts the socket
// meanwhile. The caller holds c.mu.
func (c *conn) closeCut() {
	// With a reader refs may be one too low: see serveQuery.
	refs := c.refs.Load()
	inUse := refs >= readerRef-1 || c.writing || c.closing
	if c.isCut && !inUse && (refs > 0 || !c.leaving) {
		c.closeLocked()
	}
}

// closeGracefully closes the connection. If it is closed with unread data, the kernel
// sends a reset, and replies that are on their way may be lost. If there may be such
// data, closeGracefully shuts down the sending side first and allows the client half a
// second to read the replies and close its side.
func (c *conn) closeGracefully() {
	const drainTimeout = 500 * time.Millisecond
	if c.leaving && c.l.conns.leave(c) {
		return
	}

	c.mu.Lock()
	c.closing = true
	cut := c.isCut
	c.mu.Unlock()
	if s, ok := c.sock.(*tlsSocket); ok && !cut {
		_ = s.tls.CloseWrite() // fails if the connection is cut meanwhile
	}

	c.mu.Lock()
	drain := c.drainFirst && !c.isCut && c.sock.CloseWrite() == nil
	c.mu.Unlock()
	if drain {
		_ = c.sock.SetReadDeadline(time.Now().Add(drainTimeout))
		_, _ = io.Copy(io.Discard, c.sock)
	}
	c.close()
	c.l.conns.removeClosed(c)
}

// close closes the socket, which nothing uses any more.
func (c *conn) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closeLocked()
}

func (c *conn) closeLocked() {
	if c.closed {
		return
	}
	c.closed, c.closing, c.isCut = true, true, true
	_ = c.sock.Close()
	if c.evicted {
		c.l.conns.evicted.Add(-1)
	}
}
