package trace

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/seamark/seamark/test/chaintest"
)

// A collector that does not answer costs queries nothing: the oldest spans are lost and
// counted, and the server stops in time.
func TestSlowCollector(t *testing.T) {
	c := newCollector(t)
	c.hold = make(chan struct{})
	s := serve(t, "trace otlp "+c.URL+" {\n zipkin_max_backlog_size 9\n zipkin_max_batch_size 3\n}")
	s.ask("first.example.")
	chaintest.Eventually(t, "the first request", func() bool { return len(c.all()) == 3 })
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
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	c := newCollector(t)
	c.hold = make(chan struct{})
	defer close(c.hold)
	s := serve(t, "trace zipkin "+c.URL+"/api/v2/spans {\n zipkin_max_batch_size 1\n}")
	for range 5 {
		s.ask("www.example.")
	}
	chaintest.Eventually(t, "a request", func() bool { return len(c.all()) > 0 })
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
