package trace

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/wire"
)

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
	log   *chaintest.Log
}

func plan(directive string) (*config.Block, *chaintest.Log, error) {
	log := new(chaintest.Log)
	b, err := chaintest.Setup(".:53 {\n"+directive+"\n}\n", log.Logger(), config.Directive{Name: "trace", Setup: Setup})
	b.SetDirective("above")
	b.Handle(pass{})
	b.SetDirective("answers")
	b.Handle(handler{})
	return b, log, corefile.Sorted(append(b.Planned(), err)...)
}

// serve starts a server with a directive. prepare is called before the start.
func serve(t *testing.T, directive string, prepare ...func(*config.Block)) *testServer {
	t.Helper()
	b, out, err := plan(directive)
	if err != nil {
		t.Fatal(err)
	}
	for _, prepare := range prepare {
		prepare(b)
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
	q := dns.NewQuery(s)
	lent := make([]byte, 0, 4096)
	q.Reset(wire.AppendRequest(nil, 4, wire.FlagRD, []byte(chaintest.Name(name)), wire.TypeTXT), dns.UDP, time.Now())
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
	chaintest.Eventually(s.t, "the parked query", func() bool { return s.lot.Parked() == 0 })
}

// metric returns the value of a series, "" if there is none.
func (s *testServer) metric(series string) string { return chaintest.Metric(s.block.Metrics, series) }

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
	b, _, err := plan("trace {\n every 1000000000\n}")
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

// Without an ENDPOINT spans are sent to the usual port of a collector on this host.
func TestDefaultEndpoint(t *testing.T) {
	for directive, want := range map[string]string{"trace": "localhost:9411", "trace otlp": "localhost:4318"} {
		c := newCollector(t)
		var dialed atomic.Value
		s := serve(t, directive, func(b *config.Block) {
			b.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
				dialed.Store(address)
				return new(net.Dialer).DialContext(ctx, network, c.Listener.Addr().String())
			}
		})
		s.ask("www.example.org.")
		s.stop() // which sends the spans that wait

		if at := dialed.Load(); at != want {
			t.Errorf("%s: got a connection to %v, want %s", directive, at, want)
		}
		if n := len(c.all()); n == 0 {
			t.Errorf("%s: got no spans", directive)
		}
	}
}

// A reload keeps the exporter of an equal directive.
func TestReload(t *testing.T) {
	c := newCollector(t)
	s := serve(t, "trace zipkin "+c.URL+"/api/v2/spans")
	before := config.Find[*Trace](s.block)[0].out
	for every, same := range map[string]bool{"every 7": true, "service other": false} {
		b, _, err := plan("trace " + c.URL + "/api/v2/spans {\n " + every + "\n}")
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
		b, _, err := plan(line)
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
