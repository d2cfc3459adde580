package directive

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/observe/web"
)

// page requests the path over HTTP and returns the status code and the body.
func (r *testBlock) page(path string) (int, string) {
	r.t.Helper()
	site, err := web.Open(r.start, "127.0.0.1:0", web.TLS{})
	if err != nil {
		r.t.Fatal(err)
	}
	return get(r.t, site.Addr(), path)
}

func get(t *testing.T, addr, path string) (int, string) {
	t.Helper()
	resp, err := http.Get("http://" + addr + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func TestHealth(t *testing.T) {
	r := run(t, ".:53 {\nhealth 127.0.0.1:0\n}")
	if code, body := r.page("/health"); code != 200 || body != "OK" {
		t.Errorf("/health: got %d %q, want 200 \"OK\"", code, body)
	}
	wantErrors(t, ".:53 {\nhealth 8080 {\nlameduck -1s\n}\n}", `Corefile:2: health: want an address and a port such as :8080, got "8080"
Corefile:3: health: lameduck: want a duration of 0s..1h, got "-1s"`)
}

// /health answers during the start of the first plan.
func TestHealthDuringStart(t *testing.T) {
	b, err := plan(t, ".:53 {\nhealth 127.0.0.1:0\nready 127.0.0.1:0\n}")
	if err != nil {
		t.Fatal(err)
	}
	start := config.NewStart(context.Background(), nil)
	defer start.Stop()
	if err := b.Started(start); err != nil {
		t.Fatal(err)
	}
	site, err := web.Open(start, "127.0.0.1:0", web.TLS{})
	if err != nil {
		t.Fatal(err)
	}
	if code, _ := get(t, site.Addr(), "/health"); code != 200 {
		t.Errorf("/health: got %d, want 200", code)
	}
}

func TestLameduck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, err := plan(t, ".:53 {\nhealth {\nlameduck 5s\n}\n}")
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		config.Shutdown(t.Context(), b)
		if took := time.Since(start); took != 5*time.Second {
			t.Errorf("lameduck 5s: Shutdown took %v, want 5s", took)
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		config.Shutdown(short, b)
		if took := time.Since(start); took != 6*time.Second {
			t.Errorf("with a context of 1s: both took %v, want 6s", took)
		}
	})
}

func TestHTTPAddressInUse(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	for _, word := range []string{"health", "ready", "prometheus"} {
		b, err := plan(t, ".:53 {\n"+word+" "+ln.Addr().String()+"\n}")
		if err != nil {
			t.Fatal(err)
		}
		err = b.Started(config.NewStart(context.Background(), nil))
		if err == nil || !strings.HasPrefix(err.Error(), "Corefile:2: "+word+": listening on "+ln.Addr().String()+": address already in use") {
			t.Errorf("%s %s: got %v, want address already in use", word, ln.Addr(), err)
		}
	}
}

// Without an address the directives listen where CoreDNS does.
func TestHTTPAddressDefaults(t *testing.T) {
	for word, want := range map[string]string{
		"health": ":8080", "ready": ":8181", "prometheus": "localhost:9153", "pprof": "localhost:6053",
	} {
		b, err := plan(t, ".:53 {\n"+word+"\n}")
		if err != nil {
			t.Fatal(err)
		}
		pages := config.Find[interface {
			HTTPAddress() (addr string, from corefile.Directive)
		}](b)
		if len(pages) != 1 {
			t.Fatalf("%s: got %d addresses, want one", word, len(pages))
		}
		if got, _ := pages[0].HTTPAddress(); got != want {
			t.Errorf("%s: got address %s, want %s", word, got, want)
		}
	}
}

// The server polls its own /health page and counts failures.
func TestHealthPoll(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	r := run(t, ".:53 {\nhealth 127.0.0.1:0\n}")
	if got, want := r.metrics("coredns_health_request_failures_total"), "coredns_health_request_failures_total 0\n"; got != want {
		t.Errorf("before a failure: got %q, want %q", got, want)
	}
	const histogram = "coredns_health_request_duration_seconds"
	polls := func(suffix string) float64 {
		return r.block.Metrics.Values(func(string) bool { return true })[histogram+suffix]
	}
	for end := time.Now().Add(time.Minute); polls("_count") == 0 && time.Now().Before(end); {
		time.Sleep(20 * time.Millisecond)
	}
	if polls("_count") == 0 || polls("_sum") <= 0 {
		t.Errorf("after a minute: got %v polls of %vs, want at least one", polls("_count"), polls("_sum"))
	}
	p := newPoll("127.0.0.1:1", r.block) // no listener
	p.Stop()
	p.measure(t.Context())
	if p.failures.Value() != 1 || polls("_count") < 2 {
		t.Errorf("without a listener: got %d failures of %v polls, want 1 of at least 2", p.failures.Value(), polls("_count"))
	}
}
