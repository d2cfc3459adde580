package streams

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/transport"
)

// blocked answers no request before it is released.
type blocked struct{ release chan struct{} }

func (b blocked) ServeHTTP(http.ResponseWriter, *http.Request) { <-b.release }

// requestListener returns a listener whose requests are answered by a handler.
func requestListener(t *testing.T, handler http.Handler) *HTTPS {
	t.Helper()
	l, err := ListenHTTPS(t.Context(), netip.MustParseAddrPort("127.0.0.1:0"), Options{Options: transport.Options{Metrics: new(metrics.Registry)}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Stop)
	l.handler = handler
	return l
}

// serveFrom serves a request of a client, and reports whether it was not refused.
func (l *HTTPS) serveFrom(ctx context.Context, client string) (served bool) {
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
	r.RemoteAddr = client
	defer func() {
		if recover() == http.ErrAbortHandler {
			served = false
		}
	}()
	l.ServeHTTP(httptest.NewRecorder(), r)
	return true
}

// A client has half of the memory for requests, and another one a quarter of it meanwhile. A
// request counts until its stream ends, also if it is answered.
func TestRequestsShares(t *testing.T) {
	release := make(chan struct{})
	l := requestListener(t, blocked{release})
	streams, end := context.WithCancel(t.Context())
	defer end()
	size := sizeOf(httptest.NewRequest(http.MethodGet, "/", nil))
	var running sync.WaitGroup
	admitted := func(client string, tries int) (n int64) {
		results := make(chan bool, tries)
		for range tries {
			used := l.requests.used.Load()
			running.Go(func() { results <- l.serveFrom(streams, client) })
			for l.requests.used.Load() == used && len(results) == 0 {
				time.Sleep(time.Microsecond)
			}
			if len(results) > 0 {
				break
			}
			n++
		}
		return n
	}
	first := admitted("192.0.2.1:1", maxRequestBytes/requestBytes)
	if want := maxRequestBytes / 2 / size; first != want {
		t.Errorf("one client has %d requests, want %d", first, want)
	}
	second := admitted("[2001:db8::1]:1", maxRequestBytes/requestBytes)
	if want := maxRequestBytes / 4 / size; second < want-1 || second > want+1 {
		t.Errorf("a second client has %d requests, want %d", second, want)
	}
	if third := admitted("192.0.2.3:1", 1); third != 1 {
		t.Error("the request of a third client is refused")
	}
	close(release)
	running.Wait()
	if used, want := l.requests.used.Load(), (first+second+1)*size; used != want {
		t.Errorf("after the answers %d bytes are counted, want %d", used, want)
	}
	end()
	for deadline := time.Now().Add(time.Minute); l.requests.used.Load() != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("after the end of the streams %d bytes are counted, want 0", l.requests.used.Load())
		}
	}
}

// A client that resets many streams at once is disconnected for a second, and others are not.
func TestRequestsUseless(t *testing.T) {
	l := requestListener(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	conns := map[string]net.Conn{}
	for _, client := range []string{"127.0.7.1", "127.0.7.2"} {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(client)}}
		c, err := d.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		accepted, err := l.tcp.Accept()
		if err != nil {
			t.Fatal(err)
		}
		l.requests.setState(accepted, http.StateActive)
		conns[client] = c
	}
	reset, cancel := context.WithCancel(t.Context())
	cancel()
	for range maxUseless + maxUseless/2 { // some are forgotten meanwhile
		l.serveFrom(reset, "127.0.7.1:1")
	}
	if l.serveFrom(t.Context(), "127.0.7.1:1") {
		t.Error("the client is served, want a refused request")
	}
	if !l.serveFrom(t.Context(), "127.0.7.2:1") {
		t.Error("another client is refused")
	}
	_ = conns["127.0.7.1"].SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := conns["127.0.7.1"].Read(make([]byte, 1)); err == nil || isTimeout(err) {
		t.Errorf("the connection of the client: got error %v, want a closed connection", err)
	}
	_ = conns["127.0.7.2"].SetReadDeadline(time.Now())
	if _, err := conns["127.0.7.2"].Read(make([]byte, 1)); !isTimeout(err) {
		t.Errorf("the connection of another client: got error %v, want an open connection", err)
	}
}

func isTimeout(err error) bool {
	e, ok := err.(net.Error)
	return ok && e.Timeout()
}

// Clients without requests are forgotten.
func TestRequestsForgetClients(t *testing.T) {
	var r requests
	r.init(func(netip.Addr, time.Time) {}, nil)
	for i := range 5 * maxIdleClients {
		r.client(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}))
	}
	n := 0
	r.clients.Range(func(any, any) bool { n++; return true })
	if n > 2*maxIdleClients {
		t.Errorf("got %d clients, want at most %d", n, 2*maxIdleClients)
	}
}
