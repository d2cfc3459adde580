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

// An elsewhere stands for forward: it has the names of one zone. What it says is said
// at once, since these tests have nobody to wait.
type elsewhere struct {
	from   wire.Name
	answer func(q *dns.Query)
	told   []string // what Sent says: an upstream, questions, failures
}

func (*elsewhere) directive() string { return "forward" }

func (a *elsewhere) From() wire.Name { return a.from }

func (a *elsewhere) Sent(yield func(upstream string, questions, unanswered uint64)) {
	for _, text := range a.told {
		var upstream string
		var questions, unanswered uint64
		if _, err := fmt.Sscan(text, &upstream, &questions, &unanswered); err != nil {
			panic(err)
		}
		yield(upstream, questions, unanswered)
	}
}

func (a *elsewhere) ServeDNS(q *dns.Query) dns.Verdict {
	if !strings.HasSuffix(string(q.Name()), string(a.from)) {
		return dns.Next
	}
	if a.answer != nil {
		a.answer(q)
	}
	return dns.Done
}

// A remembering stands for cache: it has the answers to questions for AAAA.
type remembering struct{ capacity, inserted, evicted uint64 }

func (*remembering) Answered(q *dns.Query) (step int, kept bool) {
	return q.AnsweredStep(), q.Type == wire.TypeAAAA
}

func (m *remembering) Statistics() (capacity int, inserted, evicted uint64) {
	return int(m.capacity), m.inserted, m.evicted
}

func (*remembering) ServeDNS(*dns.Query) dns.Verdict { return dns.Next }

// fill adds n records of 1000 bytes.
func fill(q *dns.Query, n int) {
	for range n {
		record := wire.AppendRecordHeader(nil, wire.OwnerIsQuestion, wire.TypeTXT, 0, 1000)
		q.Answer.Append(wire.Answers, append(record, make([]byte, 1000)...), 1)
	}
}

const sky = "skydns_skydns_dns_"

// nonzero is the lines of counters and counts that have counted something.
func (r *running) nonzero(prefix string) string {
	var some strings.Builder
	for line := range strings.Lines(r.metrics(prefix)) {
		if !strings.HasSuffix(line, " 0\n") && !strings.Contains(line, "_bucket") && !strings.Contains(line, "_sum") {
			some.WriteString(strings.TrimPrefix(line, prefix))
		}
	}
	return some.String()
}

func TestSkyDNSMetrics(t *testing.T) {
	h := &says{verdict: dns.Done}
	stub := &elsewhere{from: "\x04stub\x07example\x00"}
	rest := &elsewhere{from: "\x07example\x00"}
	root := &elsewhere{from: wire.Root}
	own, _ := plan(t, ".:53 {\nlocal\n}")
	r := run(t, ".:53 {\nskydns_metrics 127.0.0.1:0\n}", config.Find[*Local](own)[0], &remembering{}, stub, rest, root)
	ask := func(name string, qtype wire.Type, proto dns.Proto, want string) {
		t.Helper()
		before := r.nonzero(sky)
		r.ask(packet(t, name, qtype), proto, client)
		var fresh []string
		for line := range strings.Lines(r.nonzero(sky)) {
			if !strings.Contains(before, line) && !strings.Contains(line, "_bytes") && !strings.Contains(line, "_seconds") {
				fresh = append(fresh, strings.TrimSuffix(line[:strings.LastIndex(line, " ")], "_total"))
			}
		}
		got := strings.NewReplacer("_count_total", "", "system=", "", "cause=", "", `"`, "").Replace(strings.Join(fresh, " "))
		if got != want {
			t.Errorf("%s %v: counted %s, want %s", name, qtype, got, want)
		}
	}
	fail := func(code wire.RCode) func(q *dns.Query) { return func(q *dns.Query) { q.Fail(code) } }
	stub.answer = func(q *dns.Query) { fill(q, 1) }
	root.answer = func(q *dns.Query) { fill(q, 1) }
	ask("a.org", wire.TypeTXT, dns.TCP, "cachemiss{cache=response} request{recursive}")
	ask("a.stub.example", wire.TypeTXT, dns.TCP, "cachemiss{cache=response} request{stub}")
	ask("a.org", wire.TypeAAAA, dns.TCP, "request{cache}")
	ask("localhost", wire.TypeTXT, dns.UDP, "error{auth,nodata} request{auth}")
	ask("1.0.0.127.in-addr.arpa", wire.TypePTR, dns.UDP, "request{reverse}")
	ask("2.0.0.127.in-addr.arpa", wire.TypePTR, dns.UDP, "error{reverse,nxdomain} request{reverse}")
	ask("1.2.0.192.in-addr.arpa", wire.TypePTR, dns.TCP, "cachemiss{cache=response} request{recursive}")
	ask("a.stub.example", wire.TypeTXT, dns.UDP, "cachemiss{cache=response} error{stub,truncated} request{stub}")
	stub.answer = func(q *dns.Query) { fill(q, 66) }
	ask("a.stub.example", wire.TypeTXT, dns.TCP, "cachemiss{cache=response} error{stub,overflow} request{stub}")
	for _, c := range []struct {
		code wire.RCode
		want string
	}{
		{wire.NXDomain, "error{stub,nxdomain} "}, {wire.Refused, "error{stub,refused} "}, {wire.ServFail, "error{stub,servfail} "},
		{wire.NoError, "error{stub,nodata} "}, {wire.NotImp, ""},
	} {
		stub.answer = fail(c.code)
		ask("a.stub.example", wire.TypeTXT, dns.UDP, "cachemiss{cache=response} "+c.want+"request{stub}")
	}

	// What gets no reply is counted, and neither takes time nor has a size.
	h.verdict = dns.Drop
	r = run(t, ".:53 {\nskydns_metrics 127.0.0.1:0\n}", h)
	ask("a.example", wire.TypeA, dns.UDP, "request{auth}")
	if got, want := r.nonzero(sky), "request_count_total{system=\"auth\"} 1\n"; got != want {
		t.Errorf("dropped: got %s", got)
	}
	// Nobody has the name; a chain without a cache has no misses.
	root.answer = nil
	r = run(t, ".:53 {\nskydns_metrics 127.0.0.1:0\n}", rest)
	ask("a.org", wire.TypeA, dns.UDP, "error{auth,servfail} request{auth}")
	ask("ip6.arpa", wire.TypeA, dns.UDP, "error{reverse,servfail} request{reverse}")
	ask("a.example", wire.TypeA, dns.UDP, "error{stub,nodata} request{stub}")
}

// The whole page is there before the first query, under the names that were asked
// for, and with what prometheus counts beside it.
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
			t.Errorf("the page has no %s", line)
		}
	}
	if lines := len(regexp.MustCompile("(?m)^kube_").FindAllString(body, -1)); lines != len(want)-4+2*2*5 { // the histograms' sums and counts
		t.Errorf("%d lines of its own, want those above alone", lines)
	}
	if strings.Contains(body, "skydns_skydns") {
		t.Error("the usual names are there, too")
	}
	r.ask(packet(t, "example.org", wire.TypeA), dns.UDP, client)
	if _, body := r.page("/statistics"); !strings.Contains(body, "\nkube_dns_2_dns_request_duration_seconds_bucket{system=\"auth\",le=\"0.001\"} 1\n") ||
		!strings.Contains(body, "\nkube_dns_2_dns_response_size_bytes_bucket{system=\"auth\",le=\"0\"} 0\n") {
		t.Error("the query is not in its buckets")
	}
	if _, other := r.page("/metrics"); !strings.Contains(other, "\nkube_dns_2_dns_request_count_total{system=\"auth\"} 1\n") {
		t.Error("the page of prometheus has not everything")
	}
}

func TestSkyDNSMetricsWrong(t *testing.T) {
	wrong(t, ".:53 {\nskydns_metrics\n}", "Corefile:2: skydns_metrics: want 1 to 2 arguments, got 0")
	wrong(t, ".:53 {\nskydns_metrics 10055 metrics {\nnamespace 1a\nsubsystem \"\"\nsystem x\n}\n}",
		`Corefile:2: skydns_metrics: want an address and a port such as :8080, got "10055"
Corefile:2: skydns_metrics: want a path such as /metrics, got "metrics"
Corefile:3: skydns_metrics: namespace: want a name of letters, digits and _ that does not begin with a digit, got "1a"
Corefile:4: skydns_metrics: subsystem: want a name of letters, digits and _ that does not begin with a digit, got ""
Corefile:5: skydns_metrics: unknown option "system"`)
	wrong(t, ".:53 {\nskydns_metrics :1\nskydns_metrics :2\n}", "Corefile:3: skydns_metrics: already given at Corefile:2, and can be given once in a server block")
}
