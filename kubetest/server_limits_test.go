package kubetest

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/seamark/seamark/test/bound"
)

// A barrier holds requests to an API server until enough of them wait, or until
// no more arrive.
type barrier struct {
	http.Handler
	enough int
	open   chan struct{} // closed when enough requests wait

	mu      sync.Mutex
	waiting int
	most    int // greatest number of waiting requests
	came    []time.Time
}

// newBarrier puts a barrier in front of the proxy and returns its URL.
func newBarrier(t *testing.T, p *Proxy, enough int) (*barrier, string) {
	t.Helper()
	to := must(url.Parse(p.URL()))(t)
	forward := &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }}
	g := &barrier{Handler: forward, enough: enough, open: make(chan struct{})}
	front := httptest.NewServer(g)
	t.Cleanup(front.Close)
	t.Cleanup(front.CloseClientConnections)
	return g, front.URL
}

func (g *barrier) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	g.came = append(g.came, time.Now())
	g.waiting++
	g.most = max(g.most, g.waiting)
	if len(g.came) == g.enough {
		close(g.open)
	}
	g.mu.Unlock()
	ctx, cancel := context.WithTimeout(r.Context(), time.Second)
	defer cancel()
	select {
	case <-g.open:
	case <-ctx.Done(): // No more requests arrive.
	}
	g.mu.Lock()
	g.waiting--
	g.mu.Unlock()
	g.Handler.ServeHTTP(w, r)
}

// behindBarrier starts a server with these options, waits for its data, and
// returns the greatest number of concurrent requests and the time from the first
// to the third one.
func behindBarrier(t *testing.T, p *Proxy, options ...string) (most int, third time.Duration) {
	t.Helper()
	g, at := newBarrier(t, p, 3)
	d := serve(t, corefileOf(append(options, "endpoint "+at)...))
	d.await(shopNames()...)
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.most, g.came[2].Sub(g.came[0])
}

// The limits of requests apply to the server's watches, three here.
func TestServerLimits(t *testing.T) {
	t.Parallel()
	api := start(t)
	writer(t, api).shop()
	p := must(NewProxy(api))(t)
	t.Cleanup(p.Close)
	t.Run("none", func(t *testing.T) {
		most, third := behindBarrier(t, p)
		if most != 3 {
			t.Errorf("without limits: got %d requests at a time, want 3", most)
		}
		bound.AtMost(t, "the third request without limits", third, 2*time.Second)
	})
	for limit := 1; limit <= 2; limit++ {
		t.Run(fmt.Sprintf("apiserver_max_inflight %d", limit), func(t *testing.T) {
			if most, _ := behindBarrier(t, p, fmt.Sprintf("apiserver_max_inflight %d", limit)); most != limit {
				t.Errorf("requests at a time: got %d, want %d", most, limit)
			}
		})
	}
	t.Run("apiserver_qps", func(t *testing.T) {
		if _, third := behindBarrier(t, p, "apiserver_qps 4", "apiserver_burst 1"); third < 450*time.Millisecond {
			t.Errorf("the third request came after %v, want half a second", third)
		}
	})
	t.Run("apiserver_burst", func(t *testing.T) {
		// Without the burst it would come after 20 s.
		_, third := behindBarrier(t, p, "apiserver_qps 0.1", "apiserver_burst 3")
		bound.AtMost(t, "the third request", third, 5*time.Second)
	})
}

// certificate writes a client certificate and its key. The API server authorizes
// every client, so any will do.
func certificate(t *testing.T, api *Server) (cert, key string) {
	t.Helper()
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	for file, text := range map[string][]byte{cert: api.info.Cert, key: api.info.Key} {
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}
