package directive

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// A fakeForward stands for a forward directive. It answers the names of one zone
// without parking the query.
type fakeForward struct {
	from   wire.Name
	answer func(q *dns.Query)
	sent   []string // yielded by Sent: upstream, queries, failures
}

func (*fakeForward) directive() string { return "forward" }

func (a *fakeForward) From() wire.Name { return a.from }

func (a *fakeForward) Sent(yield func(upstream string, queries, unanswered uint64)) {
	for _, text := range a.sent {
		var upstream string
		var queries, unanswered uint64
		if _, err := fmt.Sscan(text, &upstream, &queries, &unanswered); err != nil {
			panic(err)
		}
		yield(upstream, queries, unanswered)
	}
}

func (a *fakeForward) ServeDNS(q *dns.Query) dns.Verdict {
	if !strings.HasSuffix(string(q.Name()), string(a.from)) {
		return dns.Next
	}
	if a.answer != nil {
		a.answer(q)
	}
	return dns.Done
}

// A fakeCache stands for a cache directive that has the answers to all AAAA queries.
type fakeCache struct{ capacity, inserted, evicted uint64 }

func (*fakeCache) Answered(q *dns.Query) (step int, cached bool) {
	return q.AnsweredStep(), q.Type == wire.TypeAAAA
}

func (m *fakeCache) Statistics() (capacity int, inserted, evicted uint64) {
	return int(m.capacity), m.inserted, m.evicted
}

func (*fakeCache) ServeDNS(*dns.Query) dns.Verdict { return dns.Next }

// fill adds n records of 1000 bytes.
func fill(q *dns.Query, n int) {
	for range n {
		record := wire.AppendRecordHeader(nil, wire.OwnerIsQuestion, wire.TypeTXT, 0, 1000)
		q.Answer.Append(wire.Answers, append(record, make([]byte, 1000)...), 1)
	}
}

const sky = "skydns_skydns_dns_"

// nonzero returns the lines of counters and histogram counts that are not zero.
func (r *testBlock) nonzero(prefix string) string {
	var lines strings.Builder
	for line := range strings.Lines(r.metrics(prefix)) {
		if !strings.HasSuffix(line, " 0\n") && !strings.Contains(line, "_bucket") && !strings.Contains(line, "_sum") {
			lines.WriteString(strings.TrimPrefix(line, prefix))
		}
	}
	return lines.String()
}

func TestSkyDNSMetrics(t *testing.T) {
	h := &fixedVerdict{verdict: dns.Done}
	stub := &fakeForward{from: "\x04stub\x07example\x00"}
	rest := &fakeForward{from: "\x07example\x00"}
	root := &fakeForward{from: wire.Root}
	own, _ := plan(t, ".:53 {\nlocal\n}")
	r := run(t, ".:53 {\nskydns_metrics 127.0.0.1:0\n}", config.Find[*Local](own)[0], &fakeCache{}, stub, rest, root)
	wantCounted := func(name string, qtype wire.Type, proto dns.Proto, want string) {
		t.Helper()
		before := r.nonzero(sky)
		r.exchange(packet(t, name, qtype), proto, client)
		var fresh []string
		for line := range strings.Lines(r.nonzero(sky)) {
			if !strings.Contains(before, line) && !strings.Contains(line, "_bytes") && !strings.Contains(line, "_seconds") {
				fresh = append(fresh, strings.TrimSuffix(line[:strings.LastIndex(line, " ")], "_total"))
			}
		}
		got := strings.NewReplacer("_count_total", "", "system=", "", "cause=", "", `"`, "").Replace(strings.Join(fresh, " "))
		if got != want {
			t.Errorf("%s %v: got counters %s, want %s", name, qtype, got, want)
		}
	}
	fail := func(code wire.RCode) func(q *dns.Query) { return func(q *dns.Query) { q.Fail(code) } }
	stub.answer = func(q *dns.Query) { fill(q, 1) }
	root.answer = func(q *dns.Query) { fill(q, 1) }
	wantCounted("a.org", wire.TypeTXT, dns.TCP, "cachemiss{cache=response} request{recursive}")
	wantCounted("a.stub.example", wire.TypeTXT, dns.TCP, "cachemiss{cache=response} request{stub}")
	wantCounted("a.org", wire.TypeAAAA, dns.TCP, "request{cache}")
	wantCounted("localhost", wire.TypeTXT, dns.UDP, "error{auth,nodata} request{auth}")
	wantCounted("1.0.0.127.in-addr.arpa", wire.TypePTR, dns.UDP, "request{reverse}")
	wantCounted("2.0.0.127.in-addr.arpa", wire.TypePTR, dns.UDP, "error{reverse,nxdomain} request{reverse}")
	wantCounted("1.2.0.192.in-addr.arpa", wire.TypePTR, dns.TCP, "cachemiss{cache=response} request{recursive}")
	wantCounted("a.stub.example", wire.TypeTXT, dns.UDP, "cachemiss{cache=response} error{stub,truncated} request{stub}")
	stub.answer = func(q *dns.Query) { fill(q, 66) }
	wantCounted("a.stub.example", wire.TypeTXT, dns.TCP, "cachemiss{cache=response} error{stub,overflow} request{stub}")
	for _, c := range []struct {
		code wire.RCode
		want string
	}{
		{wire.NXDomain, "error{stub,nxdomain} "}, {wire.Refused, "error{stub,refused} "}, {wire.ServFail, "error{stub,servfail} "},
		{wire.NoError, "error{stub,nodata} "}, {wire.NotImp, ""},
	} {
		stub.answer = fail(c.code)
		wantCounted("a.stub.example", wire.TypeTXT, dns.UDP, "cachemiss{cache=response} "+c.want+"request{stub}")
	}

	// A dropped query is counted, and not in the histograms of time and size.
	h.verdict = dns.Drop
	r = run(t, ".:53 {\nskydns_metrics 127.0.0.1:0\n}", h)
	wantCounted("a.example", wire.TypeA, dns.UDP, "request{auth}")
	if got, want := r.nonzero(sky), "request_count_total{system=\"auth\"} 1\n"; got != want {
		t.Errorf("dropped query: got %s, want %s", got, want)
	}
	// No handler answers the name. A chain without a cache has no misses.
	root.answer = nil
	r = run(t, ".:53 {\nskydns_metrics 127.0.0.1:0\n}", rest)
	wantCounted("a.org", wire.TypeA, dns.UDP, "error{auth,servfail} request{auth}")
	wantCounted("ip6.arpa", wire.TypeA, dns.UDP, "error{reverse,servfail} request{reverse}")
	wantCounted("a.example", wire.TypeA, dns.UDP, "error{stub,nodata} request{stub}")
}

// The page has all series before the first query, with the configured names, and the
// metrics of prometheus.
func TestSkyDNSMetricsPage(t *testing.T) {
	r := run(t, ".:53 {\nprometheus 127.0.0.1:0\nskydns_metrics 127.0.0.1:0 /statistics {\nnamespace kube\nsubsystem dns_2\n}\nwhoami\n}")
	_, body := r.page("/statistics")
	want := []string{"go_goroutines ", "process_open_fds ", "coredns_panics_total 0", `coredns_plugin_enabled{server="dns://:53",zone=".",view="",name="skydns_metrics"} 1`}
	for _, cache := range []string{"response", "signature"} {
		want = append(want, fmt.Sprintf("kube_dns_2_dns_cachemiss_count_total{cache=%q} 0\n", cache))
	}
	for _, system := range []string{"auth", "cache", "recursive", "reverse", "stub"} {
		want = append(want, fmt.Sprintf("kube_dns_2_dns_request_count_total{system=%q} 0\n", system))
		for _, le := range strings.Fields("0.001 0.003 0.005 0.01 0.025 0.05 0.1 0.25 0.5 1 2.5 5 10 +Inf") {
			want = append(want, fmt.Sprintf("kube_dns_2_dns_request_duration_seconds_bucket{system=%q,le=%q} 0\n", system, le))
		}
		for _, le := range strings.Fields("0 512 1024 1500 2048 4096 8192 16384 32768 65536 +Inf") {
			want = append(want, fmt.Sprintf("kube_dns_2_dns_response_size_bytes_bucket{system=%q,le=%q} 0\n", system, le))
		}
		for _, cause := range []string{"nxdomain", "nodata", "truncated", "refused", "overflow", "servfail"} {
			want = append(want, fmt.Sprintf("kube_dns_2_dns_error_count_total{system=%q,cause=%q} 0\n", system, cause))
		}
	}
	for _, line := range want {
		if !strings.Contains(body, "\n"+line) {
			t.Errorf("/statistics: %s is missing", line)
		}
	}
	if lines := len(regexp.MustCompile("(?m)^kube_").FindAllString(body, -1)); lines != len(want)-4+2*2*5 { // the histograms' sums and counts
		t.Errorf("/statistics: got %d lines with the prefix kube_, want %d", lines, len(want)-4+2*2*5)
	}
	if strings.Contains(body, "skydns_skydns") {
		t.Errorf("/statistics: got the default names too:\n%s", body)
	}
	r.exchange(packet(t, "example.org", wire.TypeA), dns.UDP, client)
	if _, body := r.page("/statistics"); !strings.Contains(body, "\nkube_dns_2_dns_request_duration_seconds_bucket{system=\"auth\",le=\"0.001\"} 1\n") ||
		!strings.Contains(body, "\nkube_dns_2_dns_response_size_bytes_bucket{system=\"auth\",le=\"0\"} 0\n") {
		t.Errorf("after one query: got\n%s\nwant it in the buckets 0.001 s and above 0 bytes", body)
	}
	if _, other := r.page("/metrics"); !strings.Contains(other, "\nkube_dns_2_dns_request_count_total{system=\"auth\"} 1\n") {
		t.Errorf("/metrics: got\n%s\nwant the metrics of skydns_metrics too", other)
	}
}

func TestSkyDNSMetricsErrors(t *testing.T) {
	wantErrors(t, ".:53 {\nskydns_metrics\n}", "Corefile:2: skydns_metrics: want 1 to 2 arguments, got 0")
	wantErrors(t, ".:53 {\nskydns_metrics 10055 metrics {\nnamespace 1a\nsubsystem \"\"\nsystem x\n}\n}",
		`Corefile:2: skydns_metrics: want an address and a port such as :8080, got "10055"
Corefile:2: skydns_metrics: want a path such as /metrics, got "metrics"
Corefile:3: skydns_metrics: namespace: want a name of letters, digits and _ that does not begin with a digit, got "1a"
Corefile:4: skydns_metrics: subsystem: want a name of letters, digits and _ that does not begin with a digit, got ""
Corefile:5: skydns_metrics: unknown option "system"`)
	wantErrors(t, ".:53 {\nskydns_metrics :1\nskydns_metrics :2\n}", "Corefile:3: skydns_metrics: already given at Corefile:2, and can be given once in a server block")
}
