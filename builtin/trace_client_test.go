package builtin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/metadata"
)

// A zipkinSpan has the fields of a span of Zipkin that a client's trace context determines.
type zipkinSpan struct {
	TraceID, ID, ParentID, Name, Kind string
	Shared, Debug                     bool
}

// A zipkinCollector keeps the spans that it gets.
type zipkinCollector struct {
	*httptest.Server
	mu    sync.Mutex
	spans []zipkinSpan
}

func newZipkinCollector(t *testing.T) *zipkinCollector {
	c := new(zipkinCollector)
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var spans []zipkinSpan
		if err := json.NewDecoder(r.Body).Decode(&spans); err != nil {
			t.Error(err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.spans = append(c.spans, spans...)
		w.WriteHeader(http.StatusAccepted)
	}))
	t.Cleanup(c.Close)
	return c
}

// roots returns the spans servedns.
func (c *zipkinCollector) roots() (roots []zipkinSpan) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		if s.Name == "servedns" {
			roots = append(roots, s)
		}
	}
	return roots
}

// A query over HTTP 1.1 to 3 and over gRPC continues the trace of its client. With
// client_server it has the client's span.
func TestTraceContinuesClientTrace(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	const (
		trace, id, above = "463ac35c9f6413ad48485a3953bb6124", "a2fb4a1d1a96d312", "0020000000000001"
		parent           = "00-" + trace + "-" + id + "-01"
	)
	headers := []struct {
		name   string
		header map[string]string
		want   *zipkinSpan // without client_server; nil if there is none
		above  string      // the parent with client_server
	}{
		{"none", nil, &zipkinSpan{}, ""},
		{"traceparent", map[string]string{"traceparent": parent}, &zipkinSpan{TraceID: trace, ParentID: id}, ""},
		{"b3", map[string]string{"b3": trace[16:] + "-" + id + "-d-" + above}, &zipkinSpan{TraceID: trace[16:], ParentID: id, Debug: true}, above},
		{"X-B3", map[string]string{"X-B3-TraceId": trace, "X-B3-SpanId": id, "X-B3-Sampled": "1"}, &zipkinSpan{TraceID: trace, ParentID: id}, ""},
		{"unsampled", map[string]string{"b3": trace + "-" + id + "-0"}, nil, ""},
		{"invalid", map[string]string{"traceparent": strings.ToUpper(parent)}, &zipkinSpan{}, ""},
	}
	clients := map[string]struct {
		scheme string
		ask    func(s *encrypted, header map[string]string) error
	}{
		"HTTP/1.1": {"https", overHTTP(httpClient(t, false))},
		"HTTP/2":   {"https", overHTTP(httpClient(t, true))},
		"HTTP/3":   {"https3", overHTTP(http3Client(t))},
		"gRPC": {"grpc", func(s *encrypted, header map[string]string) error {
			ctx := metadata.NewOutgoingContext(s.t.Context(), metadata.New(header))
			packet, reply := packed(s.t, "a.example."), []byte(nil)
			return s.grpcClient(s.t, skipVerify()).Invoke(ctx, grpcQuery, &packet, &reply)
		}},
	}
	for name, client := range clients {
		for _, shared := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/client_server %v", name, shared), func(t *testing.T) {
				c := newZipkinCollector(t)
				s := serveEncrypted(t, fmt.Sprintf(`%s://. {
    trace zipkin %s/api/v2/spans {
        zipkin_max_batch_interval 1ms
        client_server %v
    }%s`, client.scheme, c.URL, shared, answersExample))
				var want []*zipkinSpan
				for _, h := range headers {
					if err := client.ask(s, h.header); err != nil {
						t.Fatalf("%s: %v", h.name, err)
					}
					if h.want == nil {
						continue // the next span is that of the next query
					}
					want = append(want, h.want)
					s.eventually("there is the trace of "+h.name, func() bool { return len(c.roots()) == len(want) })
					got := c.roots()[len(want)-1]
					w := *h.want
					w.Name, w.Kind = "servedns", "SERVER"
					switch {
					case w.ParentID == "":
						w.TraceID, w.ID = got.TraceID, got.ID
					case shared:
						w.ID, w.ParentID, w.Shared = id, h.above, true
					case got.ID != id:
						w.ID = got.ID
					}
					if got != w || w.ParentID == "" && !w.Shared && got.TraceID == trace {
						t.Errorf("%s: got %+v, want %+v", h.name, got, w)
					}
				}
			})
		}
	}
}

// overHTTP returns a function that sends a query in a POST request.
func overHTTP(client *http.Client) func(s *encrypted, header map[string]string) error {
	return func(s *encrypted, header map[string]string) error {
		r, err := http.NewRequest(http.MethodPost, "https://127.0.0.1:"+s.port(0)+"/dns-query", bytes.NewReader(packed(s.t, "a.example.")))
		if err != nil {
			return err
		}
		r.Header.Set("Content-Type", messageType)
		for key, value := range header {
			r.Header.Set(key, value)
		}
		response, err := client.Do(r)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("HTTP status %s", response.Status)
		}
		return nil
	}
}
