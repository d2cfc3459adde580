package apiserver

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seamark/seamark/test/bound"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/metrics"
)

// shortTimeouts returns the default timeouts divided by fifty, except for the
// limits that a test has to reach.
func shortTimeouts() timeouts {
	return timeouts{
		beforeProbe: 80 * time.Millisecond, probe: 500 * time.Millisecond, probeInterval: 10 * time.Millisecond, probeBackoff: 320 * time.Millisecond,
		watch: 320 * time.Millisecond, list: 20 * time.Second, silence: 20 * time.Second, noBookmarks: 20 * time.Second, confirm: 60 * time.Millisecond, compare: time.Second,
	}
}

func watchWithTimeouts(t *testing.T, o cluster.Options, limits timeouts) *recorder {
	t.Helper()
	f := new(recorder)
	runUntilCleanup(t, o, f, f, limits)
	return f
}

// runUntilCleanup runs the feeds until the test ends, and logs to w.
func runUntilCleanup(t *testing.T, o cluster.Options, sink cluster.Sink, w io.Writer, limits timeouts) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { runMonitored(ctx, o, sink, w, new(metrics.Registry), limits) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

// A faulty server stops sending at a byte of each response to a request for
// Services, until it is repaired.
type faulty struct {
	*fakeServer
	stallAt int  // the response stops before this byte; -1 is before the headers
	close   bool // the response breaks off there
	match   func(*http.Request) bool

	mu       sync.Mutex
	repaired bool
	stalled  int // responses
}

func (s *faulty) repair() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.repaired = true
}

func (s *faulty) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stalled
}

func (s *faulty) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	fault := !s.repaired && strings.HasSuffix(r.URL.Path, "/services") && (s.match == nil || s.match(r))
	if fault {
		s.stalled++
	}
	s.mu.Unlock()
	if !fault {
		s.fakeServer.ServeHTTP(w, r)
		return
	}
	s.fakeServer.ServeHTTP(&stallingWriter{ResponseWriter: w, left: s.stallAt, request: r, close: s.close}, r)
}

type stallingWriter struct {
	http.ResponseWriter
	left    int
	request *http.Request
	close   bool
}

func (w *stallingWriter) Write(b []byte) (int, error) {
	if len(b) <= w.left {
		w.left -= len(b)
		return w.ResponseWriter.Write(b)
	}
	if w.left >= 0 {
		_, _ = w.ResponseWriter.Write(b[:w.left])
		w.Flush()
	}
	if !w.close {
		<-w.request.Context().Done()
	}
	panic(http.ErrAbortHandler)
}

func (w *stallingWriter) Flush() { w.ResponseWriter.(http.Flusher).Flush() }

func serveFaulty(t *testing.T, s *faulty) *httptest.Server {
	t.Helper()
	s.ended = make(chan struct{})
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return server
}

// The Services of a list that stalls anywhere are delivered soon after the server
// has recovered, and the log names the stall once.
func TestStalledList(t *testing.T) {
	items, names := numbered(0, 20)
	for _, old := range []bool{false, true} {
		for _, c := range []struct {
			name    string
			stallAt int
			close   bool
		}{
			{"before the headers", -1, false}, {"after the headers", 0, false}, {"in the first object", 100, false},
			{"in the middle", 1000, false}, {"truncated", 1000, true},
		} {
			t.Run(fmt.Sprintf("%s, plain list %v", c.name, old), func(t *testing.T) {
				t.Parallel()
				s := &faulty{fakeServer: &fakeServer{old: old, objects: map[string]string{"services": items}}, stallAt: c.stallAt, close: c.close}
				if old { // The rejection of a streaming list does not count.
					s.match = func(r *http.Request) bool { return !r.URL.Query().Has("sendInitialEvents") }
				}
				server := serveFaulty(t, s)
				f := watchWithTimeouts(t, cluster.Options{Endpoint: server.URL, NoEndpoints: true}, shortTimeouts())
				f.waitForCall(t, "listed namespaces ")
				f.waitFor(t, "two faulty responses", func() bool { return s.count() >= 2 })
				if !c.close {
					f.waitFor(t, "warning", func() bool {
						log := f.logged.String()
						return strings.Contains(log, "API server does not respond") || strings.Contains(log, "List or watch stalled, retrying")
					})
				}
				s.repair()
				repaired := time.Now()
				f.waitForCall(t, "listed services "+names)
				bound.AtMost(t, "the list after the repair", time.Since(repaired), brokenWait+time.Second)
				f.do(func() {
					if n := strings.Count(f.logged.String(), "level=WARN"); n > 1 {
						t.Errorf("%d warnings, want at most 1:\n%s", n, &f.logged)
					}
				})
			})
		}
	}
}

// A server that needs longer for a list than the first limit, but answers small
// requests, gets the time that it needs.
func TestSlowList(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	limits := shortTimeouts()
	var attempts atomic.Int32
	a := serve(t, &fakeServer{old: true, objects: map[string]string{"services": webAndEmpty}, refuse: func(r *http.Request) int {
		q := r.URL.Query()
		if !strings.HasSuffix(r.URL.Path, "/services") || q.Has("watch") || q.Get("limit") == "1" {
			return 0
		}
		if attempts.Add(1) < 4 {
			<-r.Context().Done()
		}
		return 0
	}})

	begin := time.Now()
	f := watchWithTimeouts(t, cluster.Options{Endpoint: a.URL, NoEndpoints: true}, limits)
	f.waitForCall(t, "listed services shop/empty shop/web")

	// Timers are never early, so this lower limit holds on a busy machine too.
	if got, want := time.Since(begin), (1+2+4)*limits.beforeProbe; got < want {
		t.Errorf("list answered at the fourth attempt after %v, want at least %v: one, two and four times the first limit", got, want)
	}
	if n := attempts.Load(); n != 4 {
		t.Errorf("got %d attempts of a list that is answered at the fourth, want 4", n)
	}
}

// A watch that has been silent for too long, without bookmarks, is followed by a
// list, and so is the next one after twice the time.
func TestSilentWatch(t *testing.T) {
	a := serve(t, &fakeServer{objects: map[string]string{"services": webAndEmpty}})
	limits := shortTimeouts()
	limits.silence = 150 * time.Millisecond
	f := watchWithTimeouts(t, cluster.Options{Endpoint: a.URL, NoEndpoints: true}, limits)
	f.waitFor(t, "three lists", func() bool {
		return strings.Count(strings.Join(f.sink.lines, "\n"), "listed services shop/empty shop/web") >= 3
	})
	f.waitForLog(t, "List or watch stalled, retrying")
	f.waitForLog(t, "List or watch recovered\" kind=Service")
	for _, r := range a.received() {
		if !r.URL.Query().Has("sendInitialEvents") {
			t.Errorf("request %s, want only streaming lists", r.URL)
		}
	}
}

// The limit of silence doubles for a server without bookmarks, up to a limit, and
// is the usual one again after an event.
func TestSilenceLimit(t *testing.T) {
	d := newStallDetector(defaultTimeouts())
	for i, c := range []struct {
		events bool
		want   time.Duration
	}{{true, 90 * time.Second}, {false, 180 * time.Second}, {false, 360 * time.Second}, {false, 600 * time.Second}, {false, 600 * time.Second}, {true, 90 * time.Second}} {
		d.afterSilence(c.events)
		if got := d.allowedSilence(); got != c.want {
			t.Errorf("watch %d, events %v: next limit %v, want %v", i, c.events, got, c.want)
		}
	}
	d.afterSilence(false)
	d.bookmarked()
	if got, want := d.allowedSilence(), 90*time.Second; got != want {
		t.Errorf("after a bookmark: limit %v, want %v", got, want)
	}
	// The connections of two watches became half-open before their first bookmark.
	d.afterSilence(false)
	d.afterSilence(false)
	if got, want := d.allowedSilence(), 90*time.Second; got != want {
		t.Errorf("two watches without bookmarks, of a server that sends them: next limit %v, want %v", got, want)
	}
}

// A request stalls after the allowed silence if probes are answered, and after
// the longest limit if they are not.
func TestHasStalled(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		silence         time.Duration
		answered, watch bool
		earlier         int // stalls
		want            bool
	}{
		{3 * s, true, false, 0, false}, {4 * s, true, false, 0, true}, {4 * s, false, false, 0, false},
		{59 * s, false, true, 0, false}, {60 * s, false, true, 0, true},
		{7 * s, true, false, 1, false}, {8 * s, true, false, 1, true},
		{15 * s, true, true, 5, false}, {16 * s, true, true, 5, true}, {59 * s, true, false, 5, false}, {60 * s, true, false, 5, true},
	} {
		d := newStallDetector(defaultTimeouts())
		for range c.earlier {
			d.hasStalled(time.Minute-1, true, false)
		}
		if got := d.hasStalled(c.silence, c.answered, c.watch); got != c.want {
			t.Errorf("hasStalled(%v, answered %v, watch %v) after %d stalls = %v, want %v", c.silence, c.answered, c.watch, c.earlier, got, c.want)
		}
	}
}

// A request over a frozen connection is given up before HTTP/2's pings notice it,
// and the next one opens another connection.
func TestStalledConnection(t *testing.T) {
	a := &fakeServer{objects: map[string]string{}, ended: make(chan struct{})}
	ca := serveTLS(t, a)
	r := newRelay(t, a.Listener.Addr().String())
	limits := shortTimeouts()
	limits.silence = 150 * time.Millisecond
	f := watchWithTimeouts(t, cluster.Options{Endpoint: "https://" + r.addr, CA: ca, NoEndpoints: true}, limits)
	f.waitForCall(t, "listed services ")
	r.freeze()
	a.change("services", `{"metadata":{"namespace":"shop","name":"new"}}`, 0)
	f.waitForCall(t, "listed services shop/new")
}

// A server that accepts connections and never reads from them is the same as one
// that never responds.
func TestUnreadConnection(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := watchWithTimeouts(t, cluster.Options{Endpoint: "http://" + ln.Addr().String(), NoEndpoints: true}, shortTimeouts())
	f.waitForLog(t, "API server does not respond")
	a := &fakeServer{objects: map[string]string{"services": webAndEmpty}, ended: make(chan struct{})}
	server := httptest.NewUnstartedServer(a)
	server.Listener.Close()
	server.Listener = ln
	server.Start()
	t.Cleanup(server.Close)
	f.waitForCall(t, "listed services shop/empty shop/web")
}
