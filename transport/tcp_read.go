package transport

import (
	"context"
	"errors"
	"os"
	"time"
)

// isLarge reports whether a message occupies one of the maxLarge places.
func isLarge(message []byte) bool { return 2+len(message) > inSize }

// growBuffer replaces the read buffer by one for a large message. It blocks until
// there are fewer than maxLarge of them, and fewer than a quarter of that of the client.
func (c *conn) growBuffer(size int) status {
	c.leaveLoop()
	ctx, cancel := context.WithTimeout(c.l.ctx, c.l.limits.Load().MessageTimeout)
	defer cancel()
	switch err := c.l.large.Acquire(ctx, c.client); {
	case c.l.isStopping() && err != nil:
		return ended
	case err != nil:
		return c.cutSlowSender()
	}

	c.messageStart = time.Now() // as in flush
	large := make([]byte, size)
	c.in = large[:copy(large, c.in)]
	c.freeBuffer()
	c.buf = large
	return reading
}

// freeBuffer releases the read buffer.
func (c *conn) freeBuffer() {
	switch {
	case len(c.buf) > inSize:
		c.l.large.Release(c.client)
	case c.buf != nil:
		c.l.inputs.Put((*[inSize]byte)(c.buf))
	}
	c.buf = nil
}

// doneReading reports whether the reader has read everything that it may read.
func (c *conn) doneReading() bool {
	most := c.l.limits.Load().MaxQueries
	return c.invalid || most > 0 && c.queries >= most
}

// fill reads more input. Before that it writes the replies that are ready.
func (c *conn) fill() status {
	if !c.flush() {
		return ended
	}

	if len(c.in) == 0 && len(c.buf) > inSize {
		c.freeBuffer()
	}
	if c.buf == nil {
		c.buf = c.l.inputs.Get().(*[inSize]byte)[:]
	}
	if len(c.in) >= 2 && c.messageEnd() > len(c.buf) {
		if s := c.growBuffer(c.messageEnd()); s != reading {
			return s
		}
	}

	have := copy(c.buf, c.in)
	n, s := c.read(c.buf[have:], have > 0)
	c.in = c.buf[:have+n]
	if have == 0 {
		c.messageStart = c.now
	}

	if s == reading {
		if c.reads++; c.reads == maxLoopReads || !c.readAll {
			c.leaveLoop()
		}
	}
	return s
}

// read blocks until data arrives or, within a message, the message timeout is over.
// Before a message it returns idling if the connection should wait in the
// acceptLoop.
func (c *conn) read(p []byte, inMessage bool) (n int, s status) {
	for {
		if c.l.isStopping() && c.mayReadLast(inMessage) {
			if n, err := c.readLast(p); err == nil {
				return n, reading
			}
		}
		if c.l.isStopping() || !inMessage && c.doneReading() {
			c.drainFirst = true
			return 0, ended
		}
		if c.l.passing.Load() {
			return 0, leaving
		}

		// A read that returned less than it could has left nothing to read at once.
		toLoop := c.onLoop || c.l.loop != nil && c.isQuiet(c.now)
		err := errWouldBlock
		if toLoop && !c.readAll || inMessage {
			n, err = c.sock.tryRead(p)
		}

		if err == errWouldBlock {
			if !inMessage && c.isIdle(c.now) {
				return 0, ended
			}
			if !inMessage && toLoop {
				return 0, idling
			}
			c.leaveLoop()
			n, err = c.readWithin(p, inMessage)
		}

		c.now = time.Now()
		switch {
		case n > 0:
			c.readAll = n < len(p)
			if c.l.isStopping() { // and Stop has not woken this connection yet
				c.isLast()
			}
			return n, reading
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return 0, ended
		case inMessage && c.now.Sub(c.messageStart) >= c.l.limits.Load().MessageTimeout:
			return 0, c.cutSlowSender()
		}
		_ = c.sock.SetReadDeadline(time.Time{}) // it was set by wake
	}
}

// mayReadLast reports whether the client may send a query although the listener stops:
// if it has sent none, since most clients connect and send one at once; if it has sent
// one within the last second; or if it has sent a part of one.
func (c *conn) mayReadLast(inMessage bool) bool {
	return inMessage || !c.hasReadLast && (c.queries == 0 || !c.isQuiet(c.now))
}

// readLast reads the last query of a connection, until Listener.lastQuery after the
// stop.
func (c *conn) readLast(p []byte) (int, error) {
	c.leaveLoop()
	deadline := c.l.stopTime.Add(c.l.lastQuery)
	for {
		_ = c.sock.SetReadDeadline(deadline)
		n, err := c.sock.Read(p)
		if c.now = time.Now(); errors.Is(err, os.ErrDeadlineExceeded) && c.now.Before(deadline) {
			continue // wake has set another one
		}
		c.isLast()
		return n, err
	}
}

// isLast is called when the last query of a connection was read, perhaps only a part of it. It makes the
// kernel send the end of the connection together with the reply, so that a client that waits for replies
// receives it before it sends another query.
func (c *conn) isLast() {
	c.hasReadLast = true
	c.sock.cork()
}

// readWithin reads and, within a message, blocks until the message timeout at most.
func (c *conn) readWithin(p []byte, inMessage bool) (int, error) {
	if inMessage {
		_ = c.sock.SetReadDeadline(c.messageStart.Add(c.l.limits.Load().MessageTimeout))
		if c.l.isStopping() || c.l.passing.Load() { // wake may have set a deadline before
			return 0, os.ErrDeadlineExceeded
		}
	}
	return c.sock.Read(p)
}
