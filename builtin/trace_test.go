package builtin

import (
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// A trace has a span of each directive that a query has passed, also those of a sub-query,
// and one of the upstream's reply.
func TestTrace(t *testing.T) {
	var mu sync.Mutex
	var spans []*otlp.Span
	c := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var request collector.ExportTraceServiceRequest
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = proto.Unmarshal(body, &request)
		}
		if err != nil {
			t.Error(err)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		spans = append(spans, request.ResourceSpans[0].ScopeSpans[0].Spans...)
	}))
	t.Cleanup(c.Close)
	upstream := dnsUpstream(t)
	s := serveEncrypted(t, fmt.Sprintf(`. {
    trace otlp %s {
        zipkin_max_batch_interval 1ms
    }
    cache
    template IN A alias.example {
        answer "{{ .Name }} 60 IN CNAME www.example."
    }
    forward . %s
}`, c.URL, upstream))
	// tree returns the spans of a query, each below its parent.
	tree := func(name string) string {
		mu.Lock()
		spans = nil
		mu.Unlock()
		s.query(0, name)
		var below func(parent []byte, depth int) string
		below = func(parent []byte, depth int) (text string) {
			for _, s := range spans {
				if string(s.ParentSpanId) == string(parent) {
					text += strings.Repeat("  ", depth) + s.Name
					for _, a := range s.Attributes {
						if a.Key == "peer.address" || a.Key == "coredns.io/name" && s.Kind == otlp.Span_SPAN_KIND_INTERNAL {
							text += " " + a.Value.GetStringValue()
						}
					}
					text += "\n" + below(s.SpanId, depth+1)
				}
			}
			return text
		}
		s.eventually("there is a trace of "+name, func() bool {
			mu.Lock()
			defer mu.Unlock()
			return slices.ContainsFunc(spans, func(s *otlp.Span) bool { return len(s.ParentSpanId) == 0 })
		})
		mu.Lock()
		defer mu.Unlock()
		for _, s := range spans {
			if string(s.TraceId) != string(spans[0].TraceId) {
				t.Errorf("got the trace IDs %s and %s, want one", hex.EncodeToString(s.TraceId), hex.EncodeToString(spans[0].TraceId))
			}
		}
		return below(nil, 0)
	}
	for _, c := range []struct{ name, want string }{
		{"www.example.", "servedns\n  cache\n  template\n  forward\n    connect " + upstream + "\n"},
		{"www.example.", "servedns\n  cache\n  template\n  forward\n"},
		{"alias.example.", "servedns\n  cache\n  template\n    cache www.example.\n    template www.example.\n    forward www.example.\n"},
	} {
		if got := tree(c.name); got != c.want {
			t.Errorf("%s: got\n%swant\n%s", c.name, got, c.want)
		}
	}
}
