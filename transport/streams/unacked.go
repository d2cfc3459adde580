package streams

import (
	"net/http"
	"sync"
	"time"

	"github.com/seamark/seamark/sys/memory"
)

// A client may leave as much unacknowledged as the congestion window of its connection has, which grows to 12 MB
// with what the client acknowledges before. The library keeps that until the connection ends. So a connection
// counts its window in the memory for connections, and is slowed down before the window grows further.

const (
	// freeWindow is the window of a connection that counts in its memory.
	freeWindow = 64 << 10
	// leastWindow and mostWindow bound the window from which on a connection is slowed down.
	leastWindow, mostWindow = 128 << 10, 1 << 20
	// windowShare is how many connections of that window the memory for connections has room for.
	windowShare = 16
)

// slowWindow returns the window from which on connections are slowed down.
func slowWindow(b *memory.Budget) int64 {
	return max(leastWindow, min(mostWindow, b.Max(memory.QUIC)/windowShare))
}

// A pacer slows the large replies of one connection down.
type pacer struct {
	most int64 // bytes in a round-trip time, with a window of as many or more

	mu   sync.Mutex
	next time.Time // of a reply
}

// pace is called before a large reply, or a part of one, is passed to the connection. It counts the congestion
// window, and waits with a large one until the client has had time to acknowledge the replies before.
func (c *connection) pace(bytes int) {
	stats := c.stats()
	window := int64(stats.CongestionWindow)
	if window <= freeWindow {
		return
	}

	rate := c.pacer.most
	if !c.sessions.Grow(c.Session, window) {
		rate = freeWindow // other clients may have all memory
	}
	if window < rate {
		return
	}

	if wait := c.pacer.wait(stats.SmoothedRTT * time.Duration(bytes) / time.Duration(rate)); wait > 0 {
		turn := time.NewTimer(wait)
		defer turn.Stop()
		waitFor(c, turn.C)
	}
}

// wait returns the time until the turn of a reply, after which another one has to wait for a time.
func (p *pacer) wait(after time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.next.Before(now) {
		p.next = now
	}
	turn := p.next.Sub(now)
	p.next = p.next.Add(after)
	return turn
}

// A pacedHandler answers the requests of one connection over HTTP/3.
type pacedHandler struct {
	http.Handler
	c *connection
}

func (h pacedHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.Handler.ServeHTTP(pacedWriter{w, h.c}, r)
}

type pacedWriter struct {
	http.ResponseWriter
	c *connection
}

func (w pacedWriter) Write(p []byte) (int, error) {
	if len(p) > smallMessage {
		w.c.pace(len(p))
	}
	return w.ResponseWriter.Write(p)
}
