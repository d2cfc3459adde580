package trace

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
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

	"github.com/seamark/seamark/test/chaintest"
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
	chaintest.Eventually(c.t, fmt.Sprintf("%d spans", n), func() bool { return len(c.all()) >= n })
	return c.all()
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
