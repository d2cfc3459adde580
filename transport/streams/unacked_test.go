package streams

import (
	"testing"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/seamark/seamark/sys/memory"
	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/transport"
)

// serveWindow starts a server whose connections have a congestion window and a round-trip time.
func serveWindow(t *testing.T, b *memory.Budget, window uint64, rtt time.Duration) *server {
	t.Helper()
	s := listen(t, Options{Options: transport.Options{Memory: b}})
	serve := s.serve
	s.serve = func(c *connection) {
		c.stats = func() quic.ConnectionStats { return quic.ConnectionStats{CongestionWindow: window, SmoothedRTT: rtt} }
		serve(c)
	}
	s.Serve()
	return s
}

// A client that may leave much unacknowledged gets its large replies one after the other.
func TestLargeWindowIsSlow(t *testing.T) {
	b := memory.New(64<<20, memory.FromGroup)
	const replies, rtt = 5, 100 * time.Millisecond
	s := serveWindow(t, b, uint64(slowWindow(b)), rtt)
	c := s.dial()
	begin := time.Now()
	var streams []*quic.Stream
	for range replies {
		streams = append(streams, c.ask("500.in."))
	}
	for _, stream := range streams {
		wantReply(t, stream, 500)
	}
	if took, least := time.Since(begin), (replies-1)*rtt*(50<<10)/time.Duration(slowWindow(b)); took < least {
		t.Errorf("%d replies of 50 KB took %v, want %v at least", replies, took, least)
	}
}

// The congestion window of a connection with large replies is in the memory for connections. Without memory
// it is not, and the connection goes on.
func TestWindowIsCounted(t *testing.T) {
	const window = 300 << 10
	b := memory.New(64<<20, memory.FromGroup)
	used := func() int64 { return b.Part(memory.QUIC).Used }
	s := serveWindow(t, b, window, 0)
	c := s.dial()
	wantReply(t, c.ask("1.in."), 1)
	before := used()
	for range 3 {
		wantReply(t, c.ask("500.in."), 500)
	}
	chaintest.Eventually(t, "the window is counted once", func() bool { return used() == before+window })
	_ = c.CloseWithError(0, "")
	chaintest.Eventually(t, "the memory is free", func() bool { return used() == 0 })

	c = s.dial()
	b.Force(memory.QUIC, b.Max(memory.QUIC))
	for range 3 {
		wantReply(t, c.ask("500.in."), 500)
	}
	_ = c.CloseWithError(0, "")
	chaintest.Eventually(t, "no memory of the connection", func() bool { return used() == b.Max(memory.QUIC) })
}
