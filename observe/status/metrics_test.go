package status

import (
	"compress/gzip"
	"io"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/seamark/seamark/metrics"
)

func TestMetricsFormat(t *testing.T) {
	r := new(metrics.Registry)
	r.Counter("a_total", "Counts.").Add(7)
	for _, c := range []struct {
		accept string
		open   bool
	}{
		{"", false},
		{"*/*", false},
		{"text/plain", false},
		{"application/openmetrics-text", true},
		{"application/openmetrics-text; version=1.0.0", true},
		{"application/openmetrics-text; version=0.0.1", false},
		{"application/openmetrics-text; version=2.0.0, */*;q=0.1", false},
		{"application/openmetrics-text;q=0", false},
		{"application/openmetrics-text;q=0.5,text/plain;q=0.6", false},
		{"application/openmetrics-text;q=0.5,text/plain;q=0.5", true},
		{"application/openmetrics-text;q=0.5,*/*", false},
		{"application/openmetrics-text;q=0.5,text/*;q=0.4,*/*", true},
		{"application/openmetrics-text;q=nan", false},
		{"application/openmetrics-text;q=2,;,a/b;=", false},
		// Prometheus 2.42 and 3.5.
		{"application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1", true},
		{"application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,text/plain;version=0.0.4;q=0.2,*/*;q=0.1", true},
		{"text/plain;version=0.0.4;q=1,*/*;q=0.1", false}, // PrometheusText0.0.4 in scrape_protocols
	} {
		q, w := httptest.NewRequest("GET", "/metrics", nil), httptest.NewRecorder()
		if c.accept != "" {
			q.Header.Set("Accept", c.accept)
		}
		Metrics(r).ServeHTTP(w, q)
		format, line := textFormat, "\n# TYPE a_total counter\na_total 7\n"
		if c.open {
			format, line = openMetrics, "\n# TYPE a counter\na_total 7\n"
		}
		body := w.Body.String()
		if got := w.Result().Header.Get("Content-Type"); got != format || !strings.Contains("\n"+body, line) || strings.HasSuffix(body, "\n# EOF\n") != c.open {
			t.Errorf("Accept %q: got %s and\n%.300s\nwant %s with %q", c.accept, got, body, format, line)
		}
	}
}

func TestMetricsGzip(t *testing.T) {
	get := func(accept string) (encoding, body string) {
		t.Helper()
		q, w := httptest.NewRequest("GET", "/metrics", nil), httptest.NewRecorder()
		if accept != "" {
			q.Header.Set("Accept-Encoding", accept)
		}
		Metrics(new(metrics.Registry)).ServeHTTP(w, q)
		reply := w.Result()
		in := io.Reader(reply.Body)
		if encoding = reply.Header.Get("Content-Encoding"); encoding == "gzip" {
			unzipped, err := gzip.NewReader(reply.Body)
			if err != nil {
				t.Fatal(err)
			}
			in = unzipped
		}
		text, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		return encoding, string(text)
	}
	for accept, want := range map[string]string{
		"": "", "gzip": "gzip", "deflate, gzip;q=0.5": "gzip", "GZIP": "gzip", "gzip;q=0": "", "br": "", "identity;q=1, *;q=0": "",
	} {
		if encoding, body := get(accept); encoding != want || !strings.Contains(body, "\ngo_goroutines ") {
			t.Errorf("Accept-Encoding %q: got encoding %q and\n%.200s\nwant %q and the metrics", accept, encoding, body, want)
		}
	}
}
