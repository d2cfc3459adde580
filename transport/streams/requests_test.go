package streams

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/test/race"
	"github.com/seamark/seamark/transport"
	"github.com/seamark/seamark/wire"
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
// request counts until it is answered.
func TestRequestsShares(t *testing.T) {
	release := make(chan struct{})
	l := requestListener(t, blocked{release})
	size := sizeOf(httptest.NewRequest(http.MethodGet, "/", nil))
	var running sync.WaitGroup
	admitted := func(client string, tries int) (n int64) {
		results := make(chan bool, tries)
		for range tries {
			used := l.requests.used.Load()
			running.Go(func() { results <- l.serveFrom(t.Context(), client) })
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
	if used := l.requests.used.Load(); used != 0 {
		t.Errorf("after the answers %d bytes are counted, want 0", used)
	}
}

// Small replies for which a client leaves no room count until it does, so that further requests are refused.
func TestRequestsWithoutWindow(t *testing.T) {
	l := requestListener(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("reply")) }))
	l.Serve()
	refused := l.o.Metrics.Counter("seamark_transport_connections_refused_total", "", "cap", "client")
	// 2,400 requests are 28 MB, of which a client may have 8. With many more it is disconnected.
	var conns []net.Conn
	preface := "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + "\x00\x00\x06\x04\x00\x00\x00\x00\x00" +
		"\x00\x04\x00\x00\x00\x00" // SETTINGS_INITIAL_WINDOW_SIZE
	for range 10 {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			break
		}
		defer c.Close()
		conns = append(conns, c)
		go func() { _, _ = io.Copy(io.Discard, c) }()
		_, err = c.Write([]byte(preface))
		for stream := uint32(1); err == nil && stream < 480; stream += 2 {
			_, err = c.Write(headersFrame(stream))
		}
	}
	chaintest.Eventually(t, "requests are refused", func() bool { return refused.Value() > 0 })

	for _, c := range conns {
		_ = c.Close()
	}
	chaintest.Eventually(t, "no request is counted", func() bool { return l.requests.used.Load() == 0 })
}

// headersFrame returns the HEADERS frame of a GET request without a body (RFC 9113 §6.2): :method, :scheme, :path
// and :authority in HPACK (RFC 7541).
func headersFrame(stream uint32) []byte {
	block := []byte{0x82, 0x86, 0x84, 0x01, 1, 'a'}
	frame := binary.BigEndian.AppendUint32([]byte{0, 0, byte(len(block)), 1, 5}, stream) // END_STREAM, END_HEADERS
	return append(frame, block...)
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

// A written is a ResponseWriter that keeps nothing.
type written struct{ header http.Header }

func (w written) Header() http.Header         { return w.header }
func (w written) Write(p []byte) (int, error) { return len(p), nil }
func (w written) WriteHeader(int)             {}

// address answers each query with an address.
type address struct{}

func (address) ServeDNS(q *dns.Query) dns.Verdict {
	q.Answer.Buf = wire.AppendRecordHeader(q.Answer.Buf, wire.OwnerIsQuestion, wire.TypeA, 5, 4)
	q.Answer.Buf = append(q.Answer.Buf, 192, 0, 2, 1)
	q.Answer.Append(wire.Answers, nil, 1)
	return dns.Done
}

// A request makes little garbage beside that of net/http: the query, the reply, and the fields of its header.
func TestRequestAllocations(t *testing.T) {
	if race.Enabled {
		t.Skip("a sync.Pool forgets at random with the race detector")
	}
	l, err := ListenHTTPS(t.Context(), netip.MustParseAddrPort("127.0.0.1:0"), Options{Options: transport.Options{Metrics: new(metrics.Registry)}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Stop)
	m := dns.NewMux(nil, func(*dns.Query, any) {})
	chain := &dns.Chain{Zone: "."}
	chain.Add("address", address{})
	if err := m.Route(wire.Root, chain); err != nil {
		t.Fatal(err)
	}
	l.Port().Swap(m)

	query := append(append([]byte{0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0}, "\x03own\x07example\x00"...), 0, 1, 0, 1)
	body := bytes.NewReader(query)
	r := httptest.NewRequest(http.MethodPost, path, io.NopCloser(body))
	r.ContentLength = int64(len(query))
	r.Header.Set("Content-Type", messageType)
	w := written{http.Header{}}
	if n := testing.AllocsPerRun(100, func() { body.Reset(query); l.ServeHTTP(w, r) }); n > 8 {
		t.Errorf("got %v allocations for a request, want 8 at most", n)
	}
	if got := w.header.Get("Cache-Control"); got != "max-age=5" {
		t.Errorf("got the header %v, want an answer for five seconds", w.header)
	}
}
