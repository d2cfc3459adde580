package streams

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"syscall"
	"testing"

	"github.com/seamark/seamark/test/chaintest"
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
