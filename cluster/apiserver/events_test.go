package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/metrics"
)

// An eventServer is an API server for a Recorder, in memory and under a virtual clock. Every
// object that is asked for exists, unless its name is gone. Its fields may be set before requests.
type eventServer struct {
	t        *testing.T
	listener pipeListener
	away     bool // no connection is accepted
	// refuse returns the status and the body of the response to an Event; 0 accepts it.
	refuse func(namespace string) (code int, body string)
	hold   chan struct{} // requests wait until it is closed, if it is not nil

	mu       sync.Mutex
	requests []time.Time
	events   map[string]string // accepted, by NAMESPACE/NAME: the body
	order    []string          // the messages of the events, as they were accepted
	attempts int               // requests that create an Event
}

// pipeListener is a net.Listener of connections in memory.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (l pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}
func (l pipeListener) Close() error   { close(l.closed); return nil }
func (l pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

// newEventServer returns a server that the returned function closes.
func newEventServer(t *testing.T) (*eventServer, func()) {
	s := &eventServer{
		t: t, listener: pipeListener{make(chan net.Conn), make(chan struct{})}, events: map[string]string{},
	}
	server := &http.Server{Handler: s}
	go server.Serve(s.listener)
	return s, func() { server.Close() }
}

func (s *eventServer) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	s.mu.Lock()
	away := s.away
	s.mu.Unlock()
	if away {
		return nil, errors.New("connection refused")
	}
	near, far := net.Pipe()
	select {
	case s.listener.conns <- far:
		return near, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *eventServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	s.requests = append(s.requests, time.Now())
	hold, refuse := s.hold, s.refuse
	s.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-r.Context().Done():
		}
	}

	w.Header().Set("Content-Type", "application/json")
	if r.Method == http.MethodGet {
		s.list(w, r)
		return
	}
	namespace, ok := strings.CutPrefix(strings.TrimSuffix(r.URL.Path, "/events"), "/api/v1/namespaces/")
	if r.Method != http.MethodPost || !ok || r.Header.Get("Content-Type") != "application/json" {
		s.t.Errorf("got request %s %s of type %q, want one that creates an Event", r.Method, r.URL, r.Header.Get("Content-Type"))
	}
	if refuse != nil {
		if code, text := refuse(namespace); code != 0 {
			s.mu.Lock()
			s.attempts++
			s.mu.Unlock()
			w.WriteHeader(code)
			io.WriteString(w, text)
			return
		}
	}
	s.create(w, namespace, body)
}

func (s *eventServer) create(w http.ResponseWriter, namespace string, body []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attempts++
	var e struct {
		Metadata struct{ Name string }
		Message  string
	}
	if err := json.Unmarshal(body, &e); err != nil {
		s.t.Errorf("reading an Event: %v", err)
	}
	key := namespace + "/" + e.Metadata.Name
	if s.events[key] != "" {
		w.WriteHeader(http.StatusConflict)
		io.WriteString(w, apiStatus(http.StatusConflict, "AlreadyExists"))
		return
	}
	s.events[key] = string(body)
	s.order = append(s.order, e.Message)
	w.WriteHeader(http.StatusCreated)
	w.Write(body)
}

// list responds with the one object that is asked for.
func (s *eventServer) list(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name=")
	item := fmt.Sprintf(`{"metadata":{"name":%q,"uid":"uid-%s","resourceVersion":"17"}}`, name, name)
	if name == "gone" {
		item = ""
	}
	kind, version := "ConfigMap", "v1"
	if strings.HasSuffix(r.URL.Path, "dnsendpoints") {
		kind, version = "DNSEndpoint", "externaldns.k8s.io/v1alpha1"
	}
	fmt.Fprintf(w, `{"kind":"%sList","apiVersion":%q,"metadata":{"resourceVersion":"20"},"items":[%s]}`, kind, version, item)
}

func apiStatus(code int, reason string) string {
	return fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":%q,"reason":%q,"code":%d}`, reason, reason, code)
}

// A logText is a log. The goroutine of a Recorder writes it while a test reads it.
type logText struct {
	mu   sync.Mutex
	text string
}

func (l *logText) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text += string(line)
	return len(line), nil
}

func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text
}

// A recording is a Recorder with its log and metrics.
type recording struct {
	*Recorder
	log logText
	reg metrics.Registry
}

func (s *eventServer) record() *recording {
	r := new(recording)
	o := cluster.Options{Endpoint: "http://api.test", ConfigMapLabels: "dns", DNSEndpoints: true}
	r.Recorder = NewRecorder(o, "seamark", slog.New(slog.NewTextHandler(&r.log, nil)), &r.reg, s.dial)
	return r
}

// counted compares the counters of Events.
func (r *recording) counted(t *testing.T, written, existing, dropped int) {
	t.Helper()
	got := [3]uint64{r.written.Value(), r.existing.Value(), r.dropped.Value()}
	if want := [3]uint64{uint64(written), uint64(existing), uint64(dropped)}; got != want {
		t.Errorf("got %d Events written, existing and dropped, want %d", got, want)
	}
}

func shopKey(name string) cluster.Key { return cluster.Key{Namespace: "shop", Name: name} }

// pass lets time pass, and waits for what that causes.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// recorded runs a test of a Recorder under a virtual clock.
func recorded(t *testing.T, test func(t *testing.T, s *eventServer, r *recording)) {
	synctest.Test(t, func(t *testing.T) {
		s, stop := newEventServer(t)
		defer stop()
		r := s.record()
		defer r.Close()
		test(t, s, r)
	})
}

// An Event has all that kubectl describe shows with its object.
func TestRecorderEvent(t *testing.T) {
	recorded(t, func(t *testing.T, s *eventServer, r *recording) {
		r.Warn(cluster.DNSEndpoints, shopKey("web"), "", "NameTaken", "web.example.com belongs to bank/web")
		r.Warn(cluster.ConfigMaps, cluster.Key{Namespace: "bank", Name: "names"}, "v1", "Invalid", "line 3")
		at := time.Now().UTC().Format(time.RFC3339)
		synctest.Wait()
		for key, want := range map[string]string{
			"shop/" + eventName("web", "uid-web", "NameTaken", "web.example.com belongs to bank/web"): `"involvedObject":{"apiVersion":"externaldns.k8s.io/v1alpha1","kind":"DNSEndpoint","namespace":"shop","name":"web","uid":"uid-web","resourceVersion":"17"},` +
				`"type":"Warning","reason":"NameTaken","message":"web.example.com belongs to bank/web",`,
			"bank/" + eventName("names", "uid-names", "Invalid", "line 3"): `"involvedObject":{"apiVersion":"v1","kind":"ConfigMap","namespace":"bank","name":"names","uid":"uid-names","resourceVersion":"17"},` +
				`"type":"Warning","reason":"Invalid","message":"line 3",`,
		} {
			namespace, name, _ := strings.Cut(key, "/")
			want = `{"apiVersion":"v1","kind":"Event","metadata":{"namespace":"` + namespace + `","name":"` + name + `"},` + want +
				`"source":{"component":"seamark"},"reportingComponent":"seamark","firstTimestamp":"` + at + `","lastTimestamp":"` + at + `","count":1}`
			if got := s.events[key]; got != want {
				t.Errorf("%s: got\n%s\nwant\n%s", key, got, want)
			}
		}
		r.counted(t, 2, 0, 0)
		if r.log.String() != "" {
			t.Errorf("got log %s, want none", &r.log)
		}
	})
}

// Equal Events of several servers are one.
func TestRecorderReplicas(t *testing.T) {
	recorded(t, func(t *testing.T, s *eventServer, r *recording) {
		other := s.record()
		defer other.Close()
		for _, message := range []string{"line 3", "line 4"} {
			r.Warn(cluster.ConfigMaps, shopKey("names"), "", "Invalid", message)
			synctest.Wait()
			other.Warn(cluster.ConfigMaps, shopKey("names"), "", "Invalid", message)
			synctest.Wait()
		}
		if len(s.events) != 2 || s.attempts != 4 {
			t.Errorf("got %d Events by %d requests, want 2 by 4", len(s.events), s.attempts)
		}
		r.counted(t, 2, 0, 0)
		other.counted(t, 0, 2, 0)
		if log := r.log.String() + other.log.String(); log != "" {
			t.Errorf("got log %s, want none", log)
		}
	})
}

// One Event of each object may be pending, the newest, and a bounded number in all.
func TestRecorderPending(t *testing.T) {
	recorded(t, func(t *testing.T, s *eventServer, r *recording) {
		s.hold = make(chan struct{})
		r.Warn(cluster.ConfigMaps, shopKey("held"), "", "Invalid", "first")
		synctest.Wait()
		for i := range 3 {
			r.Warn(cluster.ConfigMaps, shopKey("held"), "", "Invalid", fmt.Sprint("again ", i))
			r.Warn(cluster.ConfigMaps, shopKey("other"), "", "Invalid", fmt.Sprint("other ", i))
			r.Warn(cluster.DNSEndpoints, shopKey("other"), "", "Invalid", fmt.Sprint("endpoint ", i))
		}
		close(s.hold)
		synctest.Wait()
		if got := fmt.Sprintf("%q", s.order); got != `["first" "again 2" "other 2" "endpoint 2"]` {
			t.Errorf("got the Events %s, want the first and the newest ones", got)
		}

		pass(time.Minute) // the burst is there again
		s.hold = make(chan struct{})
		r.Warn(cluster.ConfigMaps, shopKey("held"), "", "Invalid", "second")
		synctest.Wait()
		for i := range maxPendingEvents + 200 {
			r.Warn(cluster.ConfigMaps, shopKey(fmt.Sprint(i)), "", "Invalid", "many")
		}
		r.counted(t, 4, 0, 200)
		close(s.hold)
		pass(50 * time.Minute)
		r.counted(t, 4+1+maxPendingEvents, 0, 200)
	})
}

// Requests are limited to one a second, with a burst.
func TestRecorderRate(t *testing.T) {
	recorded(t, func(t *testing.T, s *eventServer, r *recording) {
		begin := time.Now()
		const events = 100
		for i := range events {
			r.Warn(cluster.ConfigMaps, shopKey(fmt.Sprint(i)), "", "Invalid", "many")
		}
		pass(2 * events * time.Second)
		r.counted(t, events, 0, 0)
		if len(s.requests) != 2*events {
			t.Errorf("got %d requests, want two for each of %d Events", len(s.requests), events)
		}
		for i, at := range s.requests {
			if want := time.Duration(i+1-eventBurst) * time.Second; at.Sub(begin) < want-time.Millisecond {
				t.Errorf("request %d was sent after %v, want %v or later", i+1, at.Sub(begin), want)
			}
		}
	})
}

// Without the permission there is one line in the log in an hour, with the rule, and few requests. Other
// namespaces are not affected, and a permission that is granted later is used.
func TestRecorderForbidden(t *testing.T) {
	recorded(t, func(t *testing.T, s *eventServer, r *recording) {
		var granted atomic.Bool
		s.refuse = func(namespace string) (int, string) {
			if namespace == "shop" && !granted.Load() {
				return http.StatusForbidden, apiStatus(http.StatusForbidden, "Forbidden")
			}
			return 0, ""
		}
		const message = "Writing Events forbidden, grant it to the service account"
		for i := range 3 {
			r.Warn(cluster.ConfigMaps, shopKey(fmt.Sprint(i)), "", "Invalid", "line 3")
		}
		r.Warn(cluster.ConfigMaps, cluster.Key{Namespace: "bank", Name: "names"}, "", "Invalid", "line 3")
		pass(5 * time.Minute)
		r.Warn(cluster.ConfigMaps, shopKey("meanwhile"), "", "Invalid", "line 3")
		pass(30 * time.Minute)
		r.counted(t, 1, 0, 0)
		if n := strings.Count(r.log.String(), message); n != 1 || strings.Count(r.log.String(), "\n") != 1 {
			t.Errorf("got log\n%s\nwant one line", &r.log)
		}
		if want := `namespace=shop error=Forbidden rule="{apiGroups: [\"\"], resources: [events], verbs: [create]}"`; !strings.Contains(r.log.String(), want) {
			t.Errorf("got log %s, want %s", &r.log, want)
		}
		if refused := s.attempts - len(s.events); refused != 4 { // at once, and every ten minutes
			t.Errorf("got %d refused requests, want 4", refused)
		}

		granted.Store(true)
		pass(forbiddenEventWait + time.Minute)
		r.counted(t, 5, 0, 0)

		granted.Store(false)
		r.Warn(cluster.ConfigMaps, shopKey("late"), "", "Invalid", "line 3")
		pass(time.Minute)
		if n := strings.Count(r.log.String(), message); n != 1 {
			t.Errorf("got %d lines within an hour, want 1", n)
		}
		pass(maxEventAge)
		r.counted(t, 5, 0, 1) // too old
		if n := strings.Count(r.log.String(), message); n != 2 {
			t.Errorf("got %d lines after more than an hour, want 2", n)
		}
	})
}

// While the API server is away, Events wait, and are dropped after an hour.
func TestRecorderServerAway(t *testing.T) {
	recorded(t, func(t *testing.T, s *eventServer, r *recording) {
		away := func(away bool) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.away = away
		}
		away(true)
		r.Warn(cluster.ConfigMaps, shopKey("names"), "", "Invalid", "line 3")
		pass(30 * time.Minute)
		away(false)
		pass(longestEventWait)
		r.counted(t, 1, 0, 0)

		away(true)
		r.Warn(cluster.ConfigMaps, shopKey("names"), "", "Invalid", "line 4")
		pass(maxEventAge)
		r.counted(t, 1, 0, 1)
		if r.log.String() != "" {
			t.Errorf("got log %s, want none: the feeds log it", &r.log)
		}
	})
}

// An Event that the API server refuses is not tried again, and neither is one whose object or
// namespace is gone.
func TestRecorderRefused(t *testing.T) {
	terminating := `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"details":{"causes":[{"reason":"NamespaceTerminating"}]}}`
	for _, c := range []struct {
		name     string
		code     int
		body     string
		attempts int
		log      string
	}{
		{"names", http.StatusUnprocessableEntity, apiStatus(http.StatusUnprocessableEntity, "Invalid"), 1, `msg="Event rejected" kind=ConfigMap namespace=shop name=names`},
		{"names", http.StatusNotFound, apiStatus(http.StatusNotFound, "NotFound"), 1, ""},
		{"names", http.StatusForbidden, terminating, 1, ""},
		{"gone", 0, "", 0, ""},
	} {
		recorded(t, func(t *testing.T, s *eventServer, r *recording) {
			s.refuse = func(string) (int, string) { return c.code, c.body }
			r.Warn(cluster.ConfigMaps, shopKey(c.name), "", "Invalid", "line 3")
			pass(2 * maxEventAge)
			r.counted(t, 0, 0, 1)
			if s.attempts != c.attempts || !strings.Contains(r.log.String(), c.log) || (r.log.String() != "") != (c.log != "") {
				t.Errorf("%s, status %d: got %d attempts and log %q, want %d and %q", c.name, c.code, s.attempts, &r.log, c.attempts, c.log)
			}
		})
	}
}

// Close does not wait for a request that is not answered, for the limit of requests, or for Events that
// are tried again.
func TestRecorderClose(t *testing.T) {
	recorded(t, func(t *testing.T, s *eventServer, r *recording) {
		s.hold = make(chan struct{})
		for i := range 100 {
			r.Warn(cluster.ConfigMaps, shopKey(fmt.Sprint(i)), "", "Invalid", "line 3")
		}
		synctest.Wait()
		begin := time.Now()
		r.Close()
		if took := time.Since(begin); took > 0 {
			t.Errorf("Close took %v, want no wait", took)
		}
		r.Warn(cluster.ConfigMaps, shopKey("late"), "", "Invalid", "line 3")
		r.Close()
		if len(s.requests) != 1 {
			t.Errorf("got %d requests, want 1", len(s.requests))
		}
	})
}

// A request that is not answered ends, and is sent again.
func TestRecorderDeadline(t *testing.T) {
	recorded(t, func(t *testing.T, s *eventServer, r *recording) {
		s.hold = make(chan struct{})
		r.Warn(cluster.ConfigMaps, shopKey("names"), "", "Invalid", "line 3")
		pass(eventTimeout - time.Second)
		s.mu.Lock()
		s.hold = nil
		before := len(s.requests)
		s.mu.Unlock()
		pass(time.Minute)
		if before != 1 {
			t.Errorf("got %d requests before the deadline, want 1", before)
		}
		r.counted(t, 1, 0, 0)
	})
}

// A Recorder for a folder, and one for kinds that are not watched, writes nothing.
func TestRecorderNothing(t *testing.T) {
	dial := func(context.Context, string, string) (net.Conn, error) {
		t.Error("a connection is opened")
		return nil, errors.New("no connection")
	}
	var reg metrics.Registry
	r := NewRecorder(cluster.Options{Manifests: t.TempDir(), DNSEndpoints: true}, "seamark", slog.New(slog.DiscardHandler), &reg, dial)
	r.Warn(cluster.DNSEndpoints, shopKey("web"), "", "Invalid", "")
	r.Close()
	r = NewRecorder(cluster.Options{Endpoint: "http://api.test", DNSEndpoints: true}, "seamark", slog.New(slog.DiscardHandler), &reg, dial)
	r.Warn(cluster.ConfigMaps, shopKey("names"), "", "Invalid", "")
	if len(r.pending) > 0 {
		t.Error("an Event of a kind that is not watched is pending")
	}
	r.Close()
}

// The name of an Event is a valid one, and differs with each of its parts.
func TestEventName(t *testing.T) {
	seen := map[string]bool{}
	for _, parts := range [][4]string{
		{"web", "u", "r", "m"}, {"web", "u2", "r", "m"}, {"web", "u", "r2", "m"}, {"web", "u", "r", "m2"}, {"web", "ur", "", "m"},
		{strings.Repeat("a", 253), "u", "r", "m"}, {strings.Repeat("a", 235) + ".-b", "u", "r", "m"},
	} {
		name := eventName(parts[0], parts[1], parts[2], parts[3])
		if seen[name] {
			t.Errorf("%q: got the name %s again", parts, name)
		}
		seen[name] = true
		if problems := validation.IsDNS1123Subdomain(name); problems != nil {
			t.Errorf("%q: got %s: %v", parts, name, problems)
		}
	}
}

func TestShorten(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", ""}, {"12345678", "12345678"}, {"123456789", "12345…"}, {"1234éé9", "1234…"}, {"a\xffb", "a\uFFFDb"}, {"\xff\xff\xff", "\uFFFD"},
	} {
		if got := shorten(c.text, 8); got != c.want {
			t.Errorf("%q: got %q, want %q", c.text, got, c.want)
		}
	}
}
