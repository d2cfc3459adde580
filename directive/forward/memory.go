package forward

import (
	"io"

	"github.com/seamark/seamark/sys/memory"
)

// The memory of a socket or connection to an upstream that is counted in the server's budget, in bytes: its
// goroutine, its table of queries, a small buffer, and the kernel's part.
const (
	socketMemory = 20 << 10
	streamMemory = 24 << 10
	tlsMemory    = 56 << 10
	httpMemory   = 80 << 10
	quicMemory   = 96 << 10
)

// readBuffer is the size of the buffer in which a connection receives replies. A larger one is counted apart.
const readBuffer = 4 << 10

// reserve reserves memory for another socket or connection to u, which has some. An upstream has one in any
// case: one beyond the budget is closed as soon as no query waits on it.
func (u *upstream) reserve(open int, bytes int64) error {
	return u.set.memory.ReserveLeast(memory.Upstreams, bytes, open, 1)
}

// unreserve ends the use of memory that was reserved.
func (u *upstream) unreserve(bytes int64) { u.set.memory.Release(memory.Upstreams, bytes) }

// keepsIdle reports whether there is memory for sockets and connections on which no query waits.
func (u *upstream) keepsIdle() bool { return !u.set.memory.Exceeded(memory.Upstreams) }

// A replyBuffer is the memory in which replies are received. It grows with what has been received, not with the
// size that an upstream announces.
type replyBuffer struct {
	upstream *upstream
	bytes    []byte
}

func newReplyBuffer(u *upstream) *replyBuffer { return &replyBuffer{u, make([]byte, readBuffer)} }

// grow makes room for more of a message of a size, of which the buffer is full.
func (b *replyBuffer) grow(message int) error {
	old := len(b.bytes)
	size := min(2*old, max(message, old+1))
	if err := b.upstream.set.memory.Reserve(memory.Upstreams, int64(size-old)); err != nil {
		return err
	}
	b.bytes = append(make([]byte, 0, size), b.bytes...)[:size]
	return nil
}

// shrink makes the buffer small again, if the received part of the next message fits.
func (b *replyBuffer) shrink(filled int) {
	if len(b.bytes) > readBuffer && filled < readBuffer {
		b.upstream.unreserve(int64(len(b.bytes) - readBuffer))
		b.bytes = append(make([]byte, 0, readBuffer), b.bytes[:filled]...)[:readBuffer]
	}
}

// readAll reads all of r, which has most bytes at the most.
func (u *upstream) readAll(r io.Reader, most int) ([]byte, error) {
	b, filled := newReplyBuffer(u), 0
	defer func() { u.unreserve(int64(len(b.bytes) - readBuffer)) }()
	for {
		if filled == len(b.bytes) {
			if err := b.grow(most + 1); err != nil {
				return nil, err
			}
		}
		n, err := r.Read(b.bytes[filled:])
		filled += n
		switch {
		case err == io.EOF:
			return b.bytes[:filled], nil
		case err != nil:
			return nil, err
		}
	}
}
