package streams

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/transport"
)

// overlapping answers each request when the next one has arrived, or the end, so that a connection is never idle.
type overlapping struct {
	mu   sync.Mutex
	last chan struct{}
	end  chan struct{}
}

func (o *overlapping) ServeHTTP(http.ResponseWriter, *http.Request) {
	next := make(chan struct{})
	o.mu.Lock()
	if o.last != nil {
		close(o.last)
	}
	o.last = next
	o.mu.Unlock()

	select {
	case <-next:
	case <-o.end:
	}
}

// A connection of HTTP/2 that always has a request ends without losing one: its client learns that it has to
// open another connection.
func TestHTTP2StopWithConstantRequests(t *testing.T) {
	handler := &overlapping{end: make(chan struct{})}
	l := requestListener(t, handler)
	l.Serve()

	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	client := &http.Client{Transport: &http.Transport{Protocols: protocols}}
	var running sync.WaitGroup
	ended := sync.OnceFunc(func() { close(handler.end) })
	for range 2 {
		running.Go(func() {
			defer ended()
			for {
				reply, err := client.Get("http://" + l.tcp.Address.String() + path)
				if errors.Is(err, syscall.ECONNREFUSED) {
					return
				}
				if err != nil {
					t.Errorf("got error %v, want only that of a new connection", err)
					return
				}
				_, _ = io.Copy(io.Discard, reply.Body)
				_ = reply.Body.Close()
			}
		})
	}
	chaintest.Eventually(t, "a request waits for the next one", func() bool {
		handler.mu.Lock()
		defer handler.mu.Unlock()
		return handler.last != nil
	})

	l.Stop()
	running.Wait()
}

// A failingSocket fails at its first read.
type failingSocket struct {
	net.PacketConn
	reads atomic.Int32
}

func (s *failingSocket) ReadFrom(p []byte) (int, net.Addr, error) {
	if s.reads.Add(1) == 1 {
		return 0, nil, errors.New("no memory")
	}
	return s.PacketConn.ReadFrom(p)
}

func (s *failingSocket) File() (*os.File, error) { return s.PacketConn.(*net.UDPConn).File() }

// After an error of the socket QUIC is served again.
func TestQUICServesAfterSocketError(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	socket := new(failingSocket)
	var log bytes.Buffer
	s := listen(t, Options{Options: transport.Options{
		Log: slog.New(slog.NewTextHandler(&log, nil)),
		ListenPacket: func(ctx context.Context, network, _ string) (c net.PacketConn, err error) {
			var config net.ListenConfig
			socket.PacketConn, err = config.ListenPacket(ctx, network, "127.0.0.1:0")
			return socket, err
		},
	}})
	s.addr = transport.AddrPort(socket.LocalAddr())
	s.Serve()
	chaintest.Eventually(t, "the socket is read again", func() bool { return socket.reads.Load() > 1 })
	wantReply(t, s.dial().ask("1.in."), 1)
	s.Stop()
	if n := strings.Count(log.String(), "Reading QUIC packets failed, retrying"); n != 1 {
		t.Errorf("got %d errors in the log, want one:\n%s", n, log.String())
	}
}
