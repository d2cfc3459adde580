package trace

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlptrace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/wire"
)

// A received is a span as a test collector has it.
type received struct {
	trace, id, parent, name, kind string
	start, duration               time.Duration // since 1970
	tags                          map[string]string
	err                           string
	service                       string
}

// A testCollector accepts the spans of both protocols, checks them, and answers with status.
type testCollector struct {
	*httptest.Server
	t *testing.T

	mu       sync.Mutex
	status   int
	response []byte
	hold     chan struct{} // requests wait until it is closed
	batches  [][]received
	requests int
}

func newCollector(t *testing.T) *testCollector {
	c := &testCollector{t: t, status: http.StatusAccepted}
	c.Server = httptest.NewServer(c)
	t.Cleanup(c.Close)
	return c
}

func (c *testCollector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has given up
	}
	var spans []received
	switch r.Method + " " + r.URL.Path + " " + r.Header.Get("Content-Type") {
	case "POST /api/v2/spans application/json":
		spans = c.zipkin(body)
	case "POST /v1/traces application/x-protobuf":
		spans = c.otlp(body)
	default:
		c.t.Errorf("got the request %s %s with content type %q", r.Method, r.URL, r.Header.Get("Content-Type"))
	}
	c.mu.Lock()
	c.requests++
	hold, status, response := c.hold, c.status, c.response
	if status < 300 {
		c.batches = append(c.batches, spans)
	}
	c.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-r.Context().Done():
		}
	}
	w.Header().Set("Location", c.URL+"/elsewhere")
	w.WriteHeader(status)
	_, _ = w.Write(response)
}

// all returns all spans.
func (c *testCollector) all() (spans []received) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, b := range c.batches {
		spans = append(spans, b...)
	}
	return spans
}

// await returns all spans when there are n.
func (c *testCollector) await(n int) []received {
	c.t.Helper()
	eventually(c.t, fmt.Sprintf("%d spans", n), func() bool { return len(c.all()) >= n })
	return c.all()
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("timed out waiting for %s", what)
		}
	}
}

// zipkin decodes a list of spans by the schema of Zipkin's interface.
func (c *testCollector) zipkin(body []byte) (spans []received) {
	var list []struct {
		TraceID        string `json:"traceId"`
		ID             string `json:"id"`
		ParentID       string `json:"parentId"`
		Name           string `json:"name"`
		Kind           string `json:"kind"`
		Timestamp      int64  `json:"timestamp"`
		Duration       int64  `json:"duration"`
		Shared         bool   `json:"shared"`
		Debug          bool   `json:"debug"`
		LocalEndpoint  zipkinTestEndpoint
		RemoteEndpoint zipkinTestEndpoint
		Tags           map[string]string `json:"tags"`
	}
	d := json.NewDecoder(strings.NewReader(string(body)))
	d.DisallowUnknownFields()
	if err := d.Decode(&list); err != nil {
		c.t.Errorf("decoding Zipkin's spans: %v\n%s", err, body)
	}
	hexadecimal := regexp.MustCompile(`^[0-9a-f]{16}$|^[0-9a-f]{32}$`)
	for _, s := range list {
		if !hexadecimal.MatchString(s.TraceID) || !hexadecimal.MatchString(s.ID) || len(s.ID) != 16 || s.ParentID != "" && len(s.ParentID) != 16 ||
			s.Timestamp < 1 || s.Duration < 1 || s.Kind != "" && s.Kind != "SERVER" && s.Kind != "CLIENT" {
			c.t.Errorf("got an invalid span of Zipkin: %+v", s)
		}
		if s.RemoteEndpoint != (zipkinTestEndpoint{}) {
			s.Tags["remote"] = s.RemoteEndpoint.String()
		}
		if s.LocalEndpoint.Port != 0 {
			s.Tags["local"] = s.LocalEndpoint.String()
		}
		r := received{s.TraceID, s.ID, s.ParentID, s.Name, s.Kind, time.Duration(s.Timestamp) * time.Microsecond,
			time.Duration(s.Duration) * time.Microsecond, s.Tags, s.Tags["error"], s.LocalEndpoint.ServiceName}
		delete(r.tags, "error")
		spans = append(spans, r)
	}
	return spans
}

type zipkinTestEndpoint struct {
	ServiceName string     `json:"serviceName"`
	IPv4        netip.Addr `json:"ipv4"`
	IPv6        netip.Addr `json:"ipv6"`
	Port        int        `json:"port"`
}

func (e zipkinTestEndpoint) String() string {
	if e.IPv4.IsValid() {
		return fmt.Sprintf("%s:%d", e.IPv4, e.Port)
	}
	return fmt.Sprintf("[%s]:%d", e.IPv6, e.Port)
}

// otlp decodes a request by OpenTelemetry's own messages.
func (c *testCollector) otlp(body []byte) (spans []received) {
	var request collector.ExportTraceServiceRequest
	if err := (proto.UnmarshalOptions{}).Unmarshal(body, &request); err != nil {
		c.t.Errorf("decoding OTLP: %v", err)
	}
	for _, rs := range request.ResourceSpans {
		service := ""
		for _, a := range rs.Resource.Attributes {
			if a.Key == "service.name" {
				service = a.Value.GetStringValue()
			}
		}
		for _, ss := range rs.ScopeSpans {
			if ss.Scope.Name != "seamark" {
				c.t.Errorf("got the scope %q, want seamark", ss.Scope.Name)
			}
			for _, s := range ss.Spans {
				if len(s.ProtoReflect().GetUnknown()) > 0 || len(s.TraceId) != 16 || len(s.SpanId) != 8 || s.EndTimeUnixNano < s.StartTimeUnixNano {
					c.t.Errorf("got an invalid span of OTLP: %v", s)
				}
				r := received{hex.EncodeToString(s.TraceId), hex.EncodeToString(s.SpanId), hex.EncodeToString(s.ParentSpanId), s.Name,
					map[otlptrace.Span_SpanKind]string{1: "", 2: "SERVER", 3: "CLIENT"}[s.Kind],
					time.Duration(s.StartTimeUnixNano), time.Duration(s.EndTimeUnixNano - s.StartTimeUnixNano), map[string]string{}, "", service}
				for _, a := range s.Attributes {
					r.tags[a.Key] = a.Value.GetStringValue()
					if n := a.Value.GetIntValue(); n != 0 {
						r.tags[a.Key] = fmt.Sprint(n)
					}
				}
				if s.Status != nil {
					if s.Status.Code != otlptrace.Status_STATUS_CODE_ERROR {
						c.t.Errorf("got the status %v, want an error", s.Status)
					}
					r.err = s.Status.Message
				}
				if host, ok := r.tags["client.address"]; ok {
					r.tags["remote"], r.tags["local"] = host+":"+r.tags["client.port"], r.tags["server.address"]+":"+r.tags["server.port"]
				} else if host, ok := r.tags["server.address"]; ok {
					r.tags["remote"] = host + ":" + r.tags["server.port"]
				}
				for _, key := range []string{"client.address", "client.port", "server.address", "server.port"} {
					delete(r.tags, key)
				}
				spans = append(spans, r)
			}
		}
	}
	return spans
}

type output struct {
	mu sync.Mutex
	b  strings.Builder
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// A handler answers queries by the first label of their names.
type handler struct{}

func (handler) ServeDNS(q *dns.Query) dns.Verdict {
	switch string(q.Name()[1 : 1+q.Name()[0]]) {
	case "drop":
		return dns.Drop
	case "panic":
		panic("test panic")
	case "servfail":
		q.Fail(wire.ServFail)
		return dns.Done
	case "wait", "silent", "error":
		return dns.Wait
	}
	q.RCode = wire.NXDomain
	return dns.Done
}

func (handler) Resolve(_ context.Context, q *dns.Query) error {
	e := &dns.Exchange{Upstream: netip.MustParseAddrPort("192.0.2.53:53"), Proto: dns.TCP, Sent: time.Now(), Query: q.Packet()}
	if q.Name()[1] != 's' {
		e.Received = time.Now()
		e.Reply = append([]byte(nil), q.Packet()...)
		e.Reply[3] = byte(wire.NXDomain)
	}
	if q.Trace() != nil {
		q.Trace().ObserveExchange(q, e)
	}
	if q.Name()[1] == 'e' {
		return errors.New("no upstream \xff" + strings.Repeat("x", 1000))
	}
	return nil
}

// A pass passes queries on and sees their answers.
type pass struct{}

func (pass) ServeDNS(*dns.Query) dns.Verdict { return dns.Next }
func (pass) FinishDNS(*dns.Query)            {}

// A testServer is a running server block without sockets.
type testServer struct {
	t     *testing.T
	block *config.Block
	start *config.Start
	port  *dns.Port
	lot   *dns.ParkingLot
	log   *output
}

func plan(t testing.TB, directive string) (*config.Block, *output, error) {
	t.Helper()
	servers, err := corefile.Parse("Corefile", []byte(".:53 {\n"+directive+"\n}\n"))
	if err != nil {
		t.Fatal(err)
	}
	out := &output{}
	b := &config.Block{Zones: []wire.Name{wire.Root}, Log: slog.New(slog.NewTextHandler(out, nil)), Metrics: &metrics.Registry{}, Chain: &dns.Chain{}}
	b.SetDirective("trace")
	err = Setup(b, servers[0].Directives)
	for _, name := range []string{"above", "answers"} {
		b.SetDirective(name)
		if name == "above" {
			b.Handle(pass{})
		} else {
			b.Handle(handler{})
		}
	}
	return b, out, corefile.Sorted(append(b.Planned(), err)...)
}

func serve(t *testing.T, directive string) *testServer {
	t.Helper()
	b, out, err := plan(t, directive)
	if err != nil {
		t.Fatal(err)
	}
	s := &testServer{t: t, block: b, start: config.NewStart(context.Background(), nil), port: &dns.Port{}, lot: dns.NewParkingLot(10), log: out}
	if err := b.Started(s.start); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.stop)
	mux := dns.NewMux(s.lot, nil)
	if err := mux.Route(wire.Root, b.Chain.CopyFor("dns://:53", ".")); err != nil {
		t.Fatal(err)
	}
	s.port.Swap(mux)
	return s
}

func (s *testServer) stop() { s.start.Stop(); s.start = config.NewStart(context.Background(), nil) }

// Send implements dns.Sender.
func (s *testServer) Send(*dns.Query) {}

// ask serves a query and waits until it has been observed.
func (s *testServer) ask(name string) {
	s.t.Helper()
	n, err := wire.ParseName(name)
	if err != nil {
		s.t.Fatal(err)
	}
	q := dns.NewQuery(s)
	lent := make([]byte, 0, 4096)
	q.Reset(wire.AppendRequest(nil, 4, wire.FlagRD, []byte(n), wire.TypeTXT), dns.UDP, time.Now())
	q.Peer, q.Local = netip.MustParseAddrPort("10.0.0.1:53012"), netip.MustParseAddrPort("10.0.0.2:53")
	outcome := dns.Answered
	func() {
		defer func() {
			if cause := recover(); cause != nil {
				outcome = s.port.Recover(q, lent, cause)
			}
		}()
		outcome = s.port.Serve(q, lent)
	}()
	if outcome != dns.Parked {
		q.Observe(time.Now())
		return
	}
	eventually(s.t, "the parked query", func() bool { return s.lot.Parked() == 0 })
}

// metric returns the value of a series, "" if there is none.
func (s *testServer) metric(series string) string {
	s.t.Helper()
	var text strings.Builder
	if err := s.block.Metrics.WriteText(&text); err != nil {
		s.t.Fatal(err)
	}
	for line := range strings.Lines(text.String()) {
		if value, ok := strings.CutPrefix(line, series+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// shape returns the spans as text: each with its parent's name, tags and error.
func shape(spans []received) string {
	names := map[string]string{}
	for _, s := range spans {
		names[s.id] = s.name
	}
	var b strings.Builder
	for _, s := range spans {
		fmt.Fprintf(&b, "%s<%s %s %v %s\n", s.name, names[s.parent], s.kind, s.tags, s.err)
	}
	return b.String()
}

// Both protocols have the spans of answered, failed and dropped queries.
func TestSpans(t *testing.T) {
	for _, kind := range []string{"zipkin", "otlp"} {
		t.Run(kind, func(t *testing.T) {
			c := newCollector(t)
			path := map[string]string{"zipkin": "/api/v2/spans"}[kind]
			for name, want := range map[string]string{
				"Www.example.": `servedns< SERVER map[coredns.io/name:www.example. coredns.io/proto:udp coredns.io/rcode:NXDOMAIN coredns.io/remote:10.0.0.1 coredns.io/type:TXT local:10.0.0.2:53 remote:10.0.0.1:53012 seamark.io/directive:answers seamark.io/server:dns://:53 seamark.io/zone:.] 
above<servedns  map[] 
answers<servedns  map[] 
`,
				"wait.example.": `servedns< SERVER map[coredns.io/name:wait.example. coredns.io/proto:udp coredns.io/rcode:NOERROR coredns.io/remote:10.0.0.1 coredns.io/type:TXT local:10.0.0.2:53 remote:10.0.0.1:53012 seamark.io/directive:answers seamark.io/server:dns://:53 seamark.io/zone:.] 
above<servedns  map[] 
answers<servedns  map[] 
connect<answers CLIENT map[coredns.io/proto:tcp coredns.io/rcode:NXDOMAIN peer.address:192.0.2.53:53 remote:192.0.2.53:53] 
`,
				"silent.example.": `servedns< SERVER map[coredns.io/name:silent.example. coredns.io/proto:udp coredns.io/rcode:NOERROR coredns.io/remote:10.0.0.1 coredns.io/type:TXT local:10.0.0.2:53 remote:10.0.0.1:53012 seamark.io/directive:answers seamark.io/server:dns://:53 seamark.io/zone:.] 
above<servedns  map[] 
answers<servedns  map[] 
connect<answers CLIENT map[coredns.io/proto:tcp peer.address:192.0.2.53:53 remote:192.0.2.53:53] no reply
`,
				"servfail.example.": `servedns< SERVER map[coredns.io/name:servfail.example. coredns.io/proto:udp coredns.io/rcode:SERVFAIL coredns.io/remote:10.0.0.1 coredns.io/type:TXT local:10.0.0.2:53 remote:10.0.0.1:53012 seamark.io/directive:answers seamark.io/server:dns://:53 seamark.io/zone:.] SERVFAIL
above<servedns  map[] 
answers<servedns  map[] 
`,
				"panic.example.": `servedns< SERVER map[coredns.io/name:panic.example. coredns.io/proto:udp coredns.io/rcode:SERVFAIL coredns.io/remote:10.0.0.1 coredns.io/type:TXT local:10.0.0.2:53 remote:10.0.0.1:53012 seamark.io/server:dns://:53 seamark.io/zone:.] panic: test panic
above<servedns  map[] 
answers<servedns  map[] 
`,
				"drop.example.": `servedns< SERVER map[coredns.io/name:drop.example. coredns.io/proto:udp coredns.io/remote:10.0.0.1 coredns.io/type:TXT local:10.0.0.2:53 remote:10.0.0.1:53012 seamark.io/directive:answers seamark.io/server:dns://:53 seamark.io/zone:.] dropped
above<servedns  map[] 
answers<servedns  map[] 
`,
			} {
				s := serve(t, "trace "+kind+" "+c.URL+path+" {\n service test\n}")
				began := time.Duration(time.Now().UnixNano())
				s.ask(name)
				s.stop()
				spans := c.all()
				if got := shape(spans); got != want {
					t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
				}
				for _, s := range spans {
					if s.trace != spans[0].trace || s.service != "test" {
						t.Errorf("%s: got %+v, want the trace %s and the service test", name, s, spans[0].trace)
					}
					// Zipkin's times are whole microseconds.
					if s.start < began-time.Microsecond || s.start+s.duration > spans[0].start+spans[0].duration+2*time.Microsecond {
						t.Errorf("%s: span %s is outside of the query", name, s.name)
					}
				}
				if got, want := s.metric(`seamark_trace_spans_total{endpoint="`+s.endpoint()+`"}`), fmt.Sprint(len(spans)); got != want {
					t.Errorf("%s: got the metric %s, want %s", name, got, want)
				}
				c.mu.Lock()
				c.batches = nil
				c.mu.Unlock()
			}
		})
	}
}

// endpoint returns the label of the metrics.
func (s *testServer) endpoint() string { return config.Find[*Trace](s.block)[0].out.endpoint }

// Error texts are bounded and valid.
func TestErrorText(t *testing.T) {
	c := newCollector(t)
	s := serve(t, "trace otlp "+c.URL)
	s.ask("error.example.")
	s.stop()
	if got := c.await(1)[0].err; !strings.HasPrefix(got, "no upstream ?xxx") || len(got) > maxError {
		t.Errorf("got the error %q, want at most %d bytes", got, maxError)
	}
}

// One of AMOUNT queries is sent.
func TestEvery(t *testing.T) {
	for every, want := range map[string]int{"0": 0, "1": 12, "4": 3, "13": 0, "18446744073709551615": 0} {
		c := newCollector(t)
		s := serve(t, "trace zipkin "+c.URL+"/api/v2/spans {\n every "+every+"\n}")
		for range 12 {
			s.ask("www.example.")
		}
		s.stop()
		if got := strings.Count(shape(c.all()), "servedns< SERVER"); got != want {
			t.Errorf("every %s: got %d traces, want %d", every, got, want)
		}
	}
}

// Spans are sent in batches: a full one at once, others after the interval.
func TestBatches(t *testing.T) {
	c := newCollector(t)
	s := serve(t, "trace zipkin "+c.URL+"/api/v2/spans {\n zipkin_max_batch_size 6\n zipkin_max_batch_interval 1h\n}")
	s.ask("www.example.")
	s.ask("www.example.")
	c.await(6)
	s.ask("www.example.")
	s.stop() // sends the rest
	c.mu.Lock()
	defer c.mu.Unlock()
	var sizes []int
	for _, b := range c.batches {
		sizes = append(sizes, len(b))
	}
	if fmt.Sprint(sizes) != "[6 3]" {
		t.Errorf("got batches of %d spans, want [6 3]", sizes)
	}
}

func TestInterval(t *testing.T) {
	c := newCollector(t)
	s := serve(t, "trace zipkin "+c.URL+"/api/v2/spans {\n zipkin_max_batch_interval 1ms\n}")
	for i := range 3 {
		s.ask("www.example.")
		c.await(3 * (i + 1))
	}
}

// A collector that does not answer costs queries nothing: the oldest spans are lost and
// counted, and the server stops in time.
func TestSlowCollector(t *testing.T) {
	c := newCollector(t)
	c.hold = make(chan struct{})
	s := serve(t, "trace otlp "+c.URL+" {\n zipkin_max_backlog_size 9\n zipkin_max_batch_size 3\n}")
	s.ask("first.example.")
	eventually(t, "the first request", func() bool { return len(c.all()) == 3 })
	for i := range 10 {
		s.ask(fmt.Sprintf("n%d.example.", i))
	}
	series := `seamark_trace_lost_spans_total{endpoint="` + s.endpoint() + `"}`
	if got := s.metric(series); got != "21" {
		t.Errorf("%s: got %q, want 21", series, got)
	}
	if want := `level=WARN msg="trace: Lost spans" url=` + s.endpoint() + ` count=3 error="the collector is too slow: too many spans wait"`; strings.Count(s.log.String(), want) != 1 || strings.Count(s.log.String(), "\n") != 1 {
		t.Errorf("log: got\n%s\nwant one line\n%s", s.log, want)
	}
	close(c.hold)
	spans := c.await(12)
	if got := spans[len(spans)-3].tags["coredns.io/name"]; got != "n9.example." {
		t.Errorf("got the last name %s, want n9.example.", got)
	}
	s.stop()
	if got := s.metric(series); got != "21" {
		t.Errorf("%s: got %q, want 21", series, got)
	}
}

// A server that stops does not wait for a collector that does not answer.
func TestStopWithSilentCollector(t *testing.T) {
	c := newCollector(t)
	c.hold = make(chan struct{})
	defer close(c.hold)
	s := serve(t, "trace zipkin "+c.URL+"/api/v2/spans {\n zipkin_max_batch_size 1\n}")
	for range 5 {
		s.ask("www.example.")
	}
	eventually(t, "a request", func() bool { return len(c.all()) > 0 })
	s.stop()
	if got := s.metric(`seamark_trace_lost_spans_total{endpoint="` + s.endpoint() + `"}`); got != "15" {
		t.Errorf("got %s lost spans, want 15", got)
	}
}

// Failed requests are counted by their reason and logged with a limit.
func TestFailures(t *testing.T) {
	c := newCollector(t)
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	for _, test := range []struct {
		url, reason, log string
		status           int
	}{
		{c.URL, "503", `error="HTTP status 503 Service Unavailable"`, 503},
		{c.URL, "307", `error="HTTP status 307 Temporary Redirect"`, 307},
		{strings.Replace(c.URL, "//", "//user:secret@", 1), "404", `error="HTTP status 404 Not Found"`, 404},
		{closed.URL, "connection", "connection refused", 0},
	} {
		c.mu.Lock()
		c.status = test.status
		c.mu.Unlock()
		s := serve(t, "trace otlp "+test.url+" {\n zipkin_max_batch_size 3\n}")
		for range 3 {
			s.ask("www.example.")
		}
		s.stop()
		label := `{endpoint="` + s.endpoint() + `"`
		if got := s.metric("seamark_trace_failed_requests_total" + label + `,reason="` + test.reason + `"}`); got != "3" {
			t.Errorf("%s: got %q failed requests, want 3", test.reason, got)
		}
		if got := s.metric("seamark_trace_lost_spans_total" + label + "}"); got != "9" {
			t.Errorf("%s: got %q lost spans, want 9", test.reason, got)
		}
		if got := s.log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, test.log) || strings.Contains(got, "secret") {
			t.Errorf("%s: got the log\n%s\nwant one line with %s", test.reason, got, test.log)
		}
	}
	if len(c.all()) != 0 {
		t.Errorf("got %d spans, want none", len(c.all()))
	}
}

// A collector of OTLP may reject a part of a request.
func TestRejectedSpans(t *testing.T) {
	c := newCollector(t)
	response, err := proto.Marshal(&collector.ExportTraceServiceResponse{PartialSuccess: &collector.ExportTracePartialSuccess{RejectedSpans: 2, ErrorMessage: "too old"}})
	if err != nil {
		t.Fatal(err)
	}
	c.status, c.response = http.StatusOK, response
	s := serve(t, "trace otlp "+c.URL)
	s.ask("www.example.")
	s.stop()
	label := `{endpoint="` + s.endpoint() + `"}`
	if sent, lost := s.metric("seamark_trace_spans_total"+label), s.metric("seamark_trace_lost_spans_total"+label); sent != "1" || lost != "2" {
		t.Errorf("got %s spans sent and %s lost, want 1 and 2", sent, lost)
	}
}

// A response of any bytes and size does no harm.
func FuzzResponse(f *testing.F) {
	response, _ := proto.Marshal(&collector.ExportTraceServiceResponse{PartialSuccess: &collector.ExportTracePartialSuccess{RejectedSpans: 2, ErrorMessage: "too old"}})
	f.Add(response)
	f.Add([]byte{0x0a, 2, 0x0a, 0})          // rejected_spans is bytes
	f.Add([]byte{0x0a, 4, 0x08, 2, 0x0a, 0}) // and a number before them
	f.Add([]byte{0x08, 1})                   // partial_success is a number
	f.Fuzz(func(t *testing.T, response []byte) {
		var want collector.ExportTraceServiceResponse
		got := rejectedOTLP(response)
		// The generated code does not parse a text that is not UTF-8.
		if err := proto.Unmarshal(response, &want); err == nil && got != int(want.GetPartialSuccess().GetRejectedSpans()) {
			t.Errorf("%x: got %d, want %d", response, got, want.GetPartialSuccess().GetRejectedSpans())
		}
	})
}

// The metadata trace/traceid is the ID of the trace.
func TestMetadata(t *testing.T) {
	tr := &Trace{every: 2}
	q := dns.NewQuery(nil)
	if value, ok := tr.Metadata(q, "trace/traceid"); value != "" || !ok {
		t.Errorf("query without a trace: got %q, %v, want an empty value", value, ok)
	}
	if _, ok := tr.Metadata(q, "trace/other"); ok {
		t.Error("trace/other: got a value, want none")
	}
}

// Queries that are not selected allocate nothing.
func TestAllocations(t *testing.T) {
	b, _, err := plan(t, "trace {\n every 1000000000\n}")
	if err != nil {
		t.Fatal(err)
	}
	port, mux := &dns.Port{}, dns.NewMux(dns.NewParkingLot(1), nil)
	if err := mux.Route(wire.Root, b.Chain.CopyFor("dns://:53", ".")); err != nil {
		t.Fatal(err)
	}
	port.Swap(mux)
	q, lent := dns.NewQuery(nil), make([]byte, 0, 4096)
	packet := wire.AppendRequest(nil, 4, wire.FlagRD, []byte("\x03www\x00"), wire.TypeA)
	if n := testing.AllocsPerRun(1000, func() {
		q.Reset(packet, dns.UDP, time.Unix(0, 0))
		port.Serve(q, lent)
		q.Observe(time.Unix(0, 0))
	}); n != 0 {
		t.Errorf("got %v allocations, want none", n)
	}
}

// A reload keeps the exporter of an equal directive.
func TestReload(t *testing.T) {
	c := newCollector(t)
	s := serve(t, "trace zipkin "+c.URL+"/api/v2/spans")
	before := config.Find[*Trace](s.block)[0].out
	for every, same := range map[string]bool{"every 7": true, "service other": false} {
		b, _, err := plan(t, "trace "+c.URL+"/api/v2/spans {\n "+every+"\n}")
		if err != nil {
			t.Fatal(err)
		}
		next := config.NewStart(context.Background(), s.start)
		if err := b.Started(next); err != nil {
			t.Fatal(err)
		}
		if got := config.Find[*Trace](b)[0].out == before; got != same {
			t.Errorf("%s: got the same exporter %v, want %v", every, got, same)
		}
		next.Abort()
	}
}

func TestEndpoints(t *testing.T) {
	for line, want := range map[string]string{
		"trace":                       "zipkin http://localhost:9411/api/v2/spans",
		"trace localhost:1234":        "zipkin http://localhost:1234/api/v2/spans",
		"trace zipkin":                "zipkin http://zipkin/api/v2/spans",
		"trace Zipkin collector:9411": "zipkin http://collector:9411/api/v2/spans",
		"trace zipkin https://a.example:1/x/spans?t=B": "zipkin https://a.example:1/x/spans?t=B",
		"trace HTTP://collector:9411/api/v2/spans":     "zipkin http://collector:9411/api/v2/spans",
		"trace otlp":                                 "otlp http://localhost:4318/v1/traces",
		"trace otlp [fd00::1]:4318":                  "otlp http://[fd00::1]:4318/v1/traces",
		"trace OTLP https://collector:4318/":         "otlp https://collector:4318/v1/traces",
		"trace otlp http://collector/otlp/v1/traces": "otlp http://collector/otlp/v1/traces",
	} {
		b, _, err := plan(t, line)
		if err != nil {
			t.Errorf("%s: got error %v, want none", line, err)
			continue
		}
		o := config.Find[*Trace](b)[0].options
		if got := o.kind + " " + o.url; got != want {
			t.Errorf("%s: got %s, want %s", line, got, want)
		}
	}
}
