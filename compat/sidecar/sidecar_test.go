package sidecar

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// lines is a log buffer that is safe for concurrent use.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// start runs a sidecar until the end of the test or until stop, which returns Run's
// error.
func start(t *testing.T, o Options) (base string, log *lines, stop func() error) {
	t.Helper()
	log = new(lines)
	o.Log = slog.New(slog.NewTextHandler(log, nil))
	o.Listen = "127.0.0.1:0"
	if err := o.Check(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() { result <- Run(ctx, o) }()
	stop = sync.OnceValue(func() error { cancel(); return <-result })
	t.Cleanup(func() { _ = stop() })
	address := regexp.MustCompile(`msg="Serving status pages" address=(\S+)`)
	for range 12_000 {
		if found := address.FindStringSubmatch(log.String()); found != nil {
			return "http://" + found[1], log, stop
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("no status pages after a minute; log:\n%s", log)
	return "", nil, nil
}

func get(t *testing.T, url string) (code int, body, contentType string) {
	t.Helper()
	r, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(text), r.Header.Get("Content-Type")
}

// waitFor requests a page until it has the status code and contains text.
func waitFor(t *testing.T, url string, code int, text string) (body string) {
	t.Helper()
	var got int
	for range 6000 {
		got, body, _ = get(t, url)
		if got == code && strings.Contains(body, text) {
			return body
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("%s: got %d %q after 6000 requests, want %d %q", url, got, body, code, text)
	return ""
}

func TestRun(t *testing.T) {
	before := runtime.NumGoroutine()
	var c fakeDnsmasq
	c.set(map[string]uint64{"hits": 10, "misses": 20, "evictions": 30, "insertions": 40, "cachesize": 1000})
	addr := listen(t, func(m *dns.Msg, network string) [][]byte {
		switch q := m.Question[0]; {
		case q.Qclass == dns.ClassCHAOS:
			return c.reply(m, network)
		case q.Qtype == dns.TypeANY:
			return [][]byte{pack(m, func(r *dns.Msg) { r.Rcode = dns.RcodeRefused })}
		}
		return always("a.example. 5 IN SRV 10 100 53 b.example.")(m, network)
	})
	serving := runtime.NumGoroutine() - before
	base, log, stop := start(t, Options{
		Probes: []Probe{
			{"good", addr, "a.example.", time.Second, dns.TypeSRV},
			{"any", addr, "a.example.", time.Second, dns.TypeANY},
			{"later", addr, "a.example.", 1000 * time.Hour, dns.TypeSRV},
		},
		Dnsmasq: addr, Poll: 50 * time.Millisecond, Path: "/metrics", Namespace: "kubedns",
	})

	var h struct {
		IsOk           *bool
		LatencySeconds *float64
		Err            *string
	}
	decode := func(body string) {
		t.Helper()
		h.IsOk, h.LatencySeconds, h.Err = nil, nil, nil
		d := json.NewDecoder(strings.NewReader(body))
		d.DisallowUnknownFields()
		if err := d.Decode(&h); err != nil || h.IsOk == nil || h.LatencySeconds == nil || h.Err == nil {
			t.Fatalf("page %s: error %v, want exactly IsOk, LatencySeconds and Err", body, err)
		}
	}
	decode(waitFor(t, base+"/healthcheck/good", 200, `"IsOk":true`))
	if *h.LatencySeconds <= 0 || *h.LatencySeconds > 2 || *h.Err != "" {
		t.Errorf("/healthcheck/good: got latency %v and error %q, want 0..2 seconds and none", *h.LatencySeconds, *h.Err)
	}
	decode(waitFor(t, base+"/healthcheck/any", 503, "REFUSED"))
	if *h.IsOk || *h.LatencySeconds != 0 {
		t.Errorf("/healthcheck/any: got IsOk %v and latency %v, want false and 0", *h.IsOk, *h.LatencySeconds)
	}
	if code, body, kind := get(t, base+"/healthcheck/later"); code != 503 || kind != "application/json" ||
		body != `{"IsOk":false,"LatencySeconds":0,"Err":"waiting for first probe"}` {
		t.Errorf("/healthcheck/later: got %d %s %s, want 503 and the error \"waiting for first probe\"", code, kind, body)
	}
	if code, body, _ := get(t, base+"/healthz"); code != 200 || !regexp.MustCompile(`^ok \(\d{4}-\d\d-\d\d .*\)\n$`).MatchString(body) {
		t.Errorf("/healthz: got %d %q, want 200 and ok (TIME)", code, body)
	}
	for _, path := range []string{"/", "/healthcheck", "/healthcheck/", "/healthcheck/unknown", "/healthcheck/good/", "/metrics/", "/debug/pprof/"} {
		if code, _, _ := get(t, base+path); code != 404 {
			t.Errorf("%s: got %d, want 404", path, code)
		}
	}

	body := waitFor(t, base+"/metrics", 200, "\nkubedns_dnsmasq_hits 10\n")
	wantLines(t, body, "kubedns_dnsmasq_misses 20", "kubedns_dnsmasq_evictions 30", "kubedns_dnsmasq_insertions 40", "kubedns_dnsmasq_max_size 1000",
		"# TYPE kubedns_probe_good_latency_ms histogram", "# TYPE kubedns_probe_good_errors counter", "kubedns_probe_good_errors 0",
		"kubedns_probe_any_latency_ms_count 0", "kubedns_probe_later_errors 0")
	var buckets []string
	for _, found := range regexp.MustCompile(`(?m)^kubedns_probe_good_latency_ms_bucket\{le="(.*)"\} \d+$`).FindAllStringSubmatch(body, -1) {
		buckets = append(buckets, found[1])
	}
	if got := strings.Join(buckets, " "); got != "0.25 0.5 1 2 4 8 16 32 64 128 256 512 1024 2048 4096 8192 +Inf" {
		t.Errorf("got buckets %s, want powers of two from 0.25 to 8192", got)
	}
	for _, name := range []string{"go_goroutines ", "go_info{", "process_start_time_seconds ", "process_open_fds "} {
		if !strings.Contains(body, "\n"+name) {
			t.Errorf("got\n%s\nwant the metric %s", body, name)
		}
	}
	if n := strings.Count(log.String(), "Probes of type ANY fail"); n != 1 || !strings.Contains(log.String(), "probes=any") {
		t.Errorf("%d warnings about type ANY, want 1 with the label any:\n%s", n, log)
	}

	http.DefaultClient.CloseIdleConnections()
	if err := stop(); err != nil {
		t.Errorf("Run returned %v, want nil", err)
	}
	for i := 0; runtime.NumGoroutine() > before+serving; i++ {
		if i == 6000 {
			buf := make([]byte, 1<<16)
			t.Fatalf("%d goroutines before, %d after:\n%s", before+serving, runtime.NumGoroutine(), buf[:runtime.Stack(buf, true)])
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// Canceling ends Run despite unanswered queries and an open HTTP connection.
func TestRunCanceled(t *testing.T) {
	received := make(chan struct{}, 1000)
	addr := listen(t, func(*dns.Msg, string) [][]byte { received <- struct{}{}; return nil })
	base, _, stop := start(t, Options{
		Probes:  []Probe{{"x", addr, "a.example.", time.Second, dns.TypeA}},
		Dnsmasq: addr, Poll: time.Hour, Path: "/metrics",
	})
	conn, err := net.Dial("tcp", strings.TrimPrefix(base, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	<-received
	<-received
	if err := stop(); err != nil {
		t.Errorf("Run returned %v, want nil", err)
	}
	if n, err := conn.Read(make([]byte, 1)); err == nil {
		t.Errorf("read %d bytes after the end of Run, want a closed connection", n)
	}
}

func TestRunPortInUse(t *testing.T) {
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	err = Run(t.Context(), Options{Listen: other.Addr().String(), Poll: time.Second, Path: "/metrics", Log: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(), "address already in use") || !strings.Contains(err.Error(), "--prometheus-port") {
		t.Errorf("Run on a port in use: got error %v, want \"address already in use\" and the flag", err)
	}
}
