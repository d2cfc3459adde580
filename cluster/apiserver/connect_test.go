package apiserver

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seamark/seamark/test/bound"

	"github.com/seamark/seamark/cluster"
)

// All feeds share one connection, also if they begin at the same time.
func TestSharedConnection(t *testing.T) {
	a := &fakeServer{objects: map[string]string{"services": webAndEmpty}, ended: make(chan struct{})}
	ca := serveTLS(t, a)
	r := newRelay(t, a.Listener.Addr().String())
	f, _ := watchCluster(t, cluster.Options{Endpoint: "https://" + r.addr, CA: ca})
	f.waitForCall(t, "listed services shop/empty shop/web")
	f.waitForCall(t, "listed endpointslices ")
	f.waitForCall(t, "listed namespaces ")
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.frozen); n != 1 {
		t.Errorf("%d connections of feeds that began together, want 1", n)
	}
}

// A list over a frozen connection is requested again over another one: the probe that
// finds that the API server answers does not take the place of the frozen one.
func TestStalledListConnection(t *testing.T) {
	var lists atomic.Int32
	hung := make(chan struct{})
	a := &fakeServer{objects: map[string]string{"services": webAndEmpty}, ended: make(chan struct{})}
	a.refuse = func(r *http.Request) int {
		if strings.HasSuffix(r.URL.Path, "/services") && lists.Add(1) == 1 {
			close(hung)
			<-r.Context().Done()
		}
		return 0
	}
	ca := serveTLS(t, a)
	r := newRelay(t, a.Listener.Addr().String())
	f := watchWithTimeouts(t, cluster.Options{Endpoint: "https://" + r.addr, CA: ca, NoEndpoints: true}, shortTimeouts())
	<-hung
	r.freeze()
	frozen := time.Now()
	f.waitForCall(t, "listed services shop/empty shop/web")
	// HTTP/2's pings would have closed the connection after 45 s.
	bound.AtMost(t, "the list", time.Since(frozen), 30*time.Second)
}

// A roundTripper is a function.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A handshakeTimeout is an error as net/http returns it.
type handshakeTimeout struct{}

func (handshakeTimeout) Error() string   { return "net/http: TLS handshake timeout" }
func (handshakeTimeout) Timeout() bool   { return true }
func (handshakeTimeout) Temporary() bool { return true }

// After handshakes that time out the next one waits, for any request. Each timeout doubles
// the limit of the wait.
func TestHandshakeTimeouts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const handshake = 10 * time.Second
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var ended []time.Time // of handshakes, one at a time
		var handshakes atomic.Int32
		c := newConnector(roundTripper(func(*http.Request) (*http.Response, error) {
			if handshakes.Add(1) != 1 {
				t.Error("two handshakes at the same time")
			}
			time.Sleep(handshake)
			ended = append(ended, time.Now())
			handshakes.Add(-1)
			return nil, handshakeTimeout{}
		}))
		req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "https://127.0.0.1/", nil)
		var running sync.WaitGroup
		for range 3 {
			running.Go(func() {
				for ctx.Err() == nil {
					_, _ = c.RoundTrip(req)
				}
			})
		}
		time.Sleep(10 * time.Minute)
		cancel()
		running.Wait()
		for i, limit := 1, c.first; i < len(ended); i, limit = i+1, min(2*limit, c.longest) {
			if wait := ended[i].Sub(ended[i-1]) - handshake; wait > limit {
				t.Errorf("wait %d took %v, want at most %v", i, wait, limit)
			}
		}
		// Each takes 10 s, and waits for 10 s on average.
		if n := len(ended); n < 20 || n > 45 {
			t.Errorf("%d handshakes in ten minutes, want about 30", n)
		}
		synctest.Wait()
	})
}

// Only timeouts of handshakes make others wait: other errors return at once.
func TestConnectorErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, err := range []error{
			&net.OpError{Op: "dial", Err: errors.New("connection refused")},
			&net.OpError{Op: "dial", Err: handshakeTimeout{}}, // no reply to the first packet
			errors.New("tls: bad certificate"),
			context.Canceled,
		} {
			c := newConnector(roundTripper(func(*http.Request) (*http.Response, error) { return nil, err }))
			req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://127.0.0.1/", nil)
			began := time.Now()
			for range 10 {
				if _, got := c.RoundTrip(req); got != err {
					t.Errorf("got the error %v, want %v", got, err)
				}
			}
			if took := time.Since(began); took != 0 {
				t.Errorf("%v: ten requests took %v", err, took)
			}
		}
	})
}

// Probes that are not answered are sent at growing intervals, whatever the resource.
func TestProbeBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := defaultTimeouts()
		var b probeBackoff
		var last time.Time
		limit, n := time.Duration(0), 0
		for began := time.Now(); time.Since(began) < 10*time.Minute; time.Sleep(limits.probeInterval) {
			if !b.begin(limits) {
				continue
			}
			if b.begin(limits) {
				t.Error("a probe may be sent during another one")
			}
			if wait := time.Since(last); n > 0 && (wait < limit/2 || wait > limit+limits.probeInterval) {
				t.Errorf("probe %d was sent %v after the previous one, want between %v and %v", n, wait, limit/2, limit)
			}
			time.Sleep(limits.probe)
			b.end(false, limits)
			last, n = time.Now(), n+1
			limit = min(max(2*limit, time.Second), limits.probeBackoff)
		}
		if n < 600/18 || n > 60 {
			t.Errorf("%d probes in ten minutes, want about 45", n)
		}
		for !b.begin(limits) {
			time.Sleep(limits.probeInterval)
		}
		b.end(true, limits)
		if !b.begin(limits) {
			t.Error("no probe may be sent after one that was answered")
		}
	})
}
