//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
)

func TestStatistics(t *testing.T) {
	if got := spreadOf([]float64{3, 1, 2}); got != (spread{2, 1, 3}) {
		t.Errorf("spreadOf(3, 1, 2) = %v, want 2 (1 to 3)", got)
	}
	if got := spreadOf([]float64{4, 1, 2, 3}); got != (spread{2.5, 1, 4}) {
		t.Errorf("spreadOf(4, 1, 2, 3) = %v, want 2.5 (1 to 4)", got)
	}
	sorted := make([]float64, 100)
	for i := range sorted {
		sorted[i] = float64(i + 1)
	}
	for p, want := range map[float64]float64{0: 1, 0.5: 50, 0.99: 99, 0.991: 100, 1: 100} {
		if got := percentile(sorted, p); got != want {
			t.Errorf("percentile(1 to 100, %v) = %v, want %v", p, got, want)
		}
	}
	if !math.IsNaN(percentile(nil, 0.5)) {
		t.Errorf("percentile(none, 0.5) = %v, want NaN", percentile(nil, 0.5))
	}
	if got := ratios([]float64{2, 3, 1}, []float64{1, 2}); !reflect.DeepEqual(got, []float64{2, 1.5}) {
		t.Errorf("ratios(2 3 1, 1 2) = %v, want [2 1.5]", got)
	}
	if got := turns(3, 4); !reflect.DeepEqual(got, [][]int{{0, 1, 2}, {2, 1, 0}, {0, 1, 2}, {2, 1, 0}}) {
		t.Errorf("turns(3, 4) = %v, want ABC CBA ABC CBA", got)
	}
}

func TestVerdicts(t *testing.T) {
	for _, c := range []struct {
		name string
		goal goal
		want string
	}{
		{"below in all rounds", goal{how: ratios, over: "ours", under: "knot", limit: 0.9}, met},
		{"above in all rounds", goal{how: ratios, over: "ours", under: "knot", limit: 0.6}, missed},
		{"between the rounds", goal{how: ratios, over: "ours", under: "knot", limit: 0.75}, near},
		{"a missing peer", goal{how: ratios, over: "ours", under: "coredns", limit: 0.75}, unknown},
		{"a difference", goal{how: differences, over: "knot", under: "ours", limit: 1}, met},
		{"a value", goal{over: "knot", limit: 3}, missed},
	} {
		series := map[string][]float64{"ours": {3.5, 3.2}, "knot": {5, 4}}
		if c.name == "a difference" {
			series["knot"] = []float64{4, 4}
		}
		if got := judgeAll([]goal{c.goal}, series)[0]; got.Verdict != c.want {
			t.Errorf("%s: got %s (%v), want %s", c.name, got.Verdict, got.Value, c.want)
		}
	}
}

// Every goal's series is produced by a scenario: a misspelled one would always be
// "not measured".
func TestGoalsAreMeasured(t *testing.T) {
	source := ""
	for _, name := range []string{"scenarios.go", "memory.go", "change.go", "lookups.go", "node.go", "policy.go",
		"objects.go", "nodechange.go"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		source += string(text)
	}
	for _, g := range goals() {
		for _, series := range []string{g.over, g.under} {
			scenario, label, _ := strings.Cut(series, "/")
			for _, added := range []string{" machine", " p50", " p99"} { // by compare
				scenario = strings.TrimSuffix(scenario, added)
			}
			if series == "" {
				continue
			}
			whole := strings.Contains(source, `"`+series+`"`)
			parts := strings.Contains(source, `"`+scenario) && strings.Contains(source, `"`+label+`"`)
			if !whole && !parts {
				t.Errorf("%s: no scenario produces the series %s", g.text, series)
			}
		}
	}
}

func TestProc(t *testing.T) {
	if got, err := parseUserTime([]byte("12 (a) b (c) S 1 1 1 0 -1 4194304 100 0 0 0 250 70 0 0 20 0 9 0 100 1 1")); err != nil || got != 2500*time.Millisecond {
		t.Errorf("parseUserTime: got %v, %v; want 2.5s", got, err)
	}
	if got, err := parseBusyTime([]byte("cpu  100 1 50 9000 800 2 3 4 77 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n")); err != nil || got != 1600*time.Millisecond {
		t.Errorf("parseBusyTime: got %v, %v; want 1.6s", got, err)
	}
	got, err := parseMemory([]byte("Name:\tx\nVmHWM:\t  2048 kB\nVmRSS:\t  1024 kB\nRssAnon:\t 512 kB\nThreads:\t3\n"))
	if want := (footprint{1 << 20, 512 << 10, 2 << 20}); err != nil || got != want {
		t.Errorf("parseMemory: got %v, %v; want %v", got, err, want)
	}
	for name, parse := range map[string]func() error{
		"stat without a name":       func() error { _, err := parseUserTime([]byte("12 x")); return err },
		"truncated stat":            func() error { _, err := parseUserTime([]byte("12 (x) S 1 2")); return err },
		"no line of CPUs":           func() error { _, err := parseBusyTime([]byte("intr 1 2 3")); return err },
		"status of a kernel thread": func() error { _, err := parseMemory([]byte("Name:\tkthreadd\n")); return err },
	} {
		if parse() == nil {
			t.Errorf("%s: got no error, want one", name)
		}
	}
	self := os.Getpid()
	if u, err := usageOf(self); err != nil || u.cpu <= 0 || u.busy <= 0 {
		t.Errorf("usageOf(this process): got %+v, %v; want positive times", u, err)
	}
	if f, err := memory(self); err != nil || f.resident > f.peak {
		t.Errorf("memory(this process): got %+v, %v; want at most the peak", f, err)
	}
}

func TestDnsperf(t *testing.T) {
	text := []byte(`Statistics:

  Queries sent:         1200
  Queries completed:    1190 (99.17%)
  Queries lost:         10 (0.83%)

  Response codes:       NOERROR 1100 (92.44%), SERVFAIL 90 (7.56%)
  Average packet size:  request 45, response 63
  Run time (s):         2.500000
  Queries per second:   476.000000
`)
	got, err := parseDnsperf(text, map[string]bool{"NOERROR": true})
	want := &tally{sent: 1200, answered: 1190, lost: 10, wrong: 90, bytes: 63 * 1190, elapsed: 2500 * time.Millisecond, example: "rcode SERVFAIL"}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("parseDnsperf: got %+v, %v; want %+v", got, err, want)
	}
	if _, err := parseDnsperf([]byte("usage"), nil); err == nil {
		t.Error("parseDnsperf(text without statistics): got no error, want one")
	}
	var file bytes.Buffer
	edns, rcodes, err := writeDnsperf(&file, []*lookup{
		newLookup("a.b.", dns.TypeA, false, dns.RcodeSuccess), newLookup("c.b.", dns.TypeSRV, true, dns.RcodeNameError)})
	if err != nil || !edns || !rcodes["NOERROR"] || !rcodes["NXDOMAIN"] || file.String() != "a.b. A\nc.b. SRV\n" {
		t.Errorf("writeDnsperf: got EDNS %v, response codes %v, text %q, error %v; want true, NOERROR and NXDOMAIN, two lines", edns, rcodes, &file, err)
	}
}

// Every kind of wrong answer is detected.
func TestCheck(t *testing.T) {
	q := newLookup("svc-1.ns-1.svc.cluster.local.", dns.TypeA, false, dns.RcodeSuccess, "A 10.96.64.1")
	reply := func(change func(*dns.Msg)) []byte {
		m := new(dns.Msg)
		if err := m.Unpack(q.packet); err != nil {
			t.Fatal(err)
		}
		r := new(dns.Msg)
		r.SetReply(m)
		rr, err := dns.NewRR("SVC-1.ns-1.svc.cluster.local. 5 IN A 10.96.64.1")
		if err != nil {
			t.Fatal(err)
		}
		r.Answer = []dns.RR{rr}
		change(r)
		packet, err := r.Pack()
		if err != nil {
			t.Fatal(err)
		}
		return packet
	}
	if why := q.wrong(reply(func(*dns.Msg) {}), true); why != "" {
		t.Errorf("right answer: wrong() = %q", why)
	}
	for name, change := range map[string]func(*dns.Msg){
		"a query":          func(r *dns.Msg) { r.Response = false },
		"truncated":        func(r *dns.Msg) { r.Truncated = true },
		"SERVFAIL":         func(r *dns.Msg) { r.Rcode = dns.RcodeServerFailure },
		"nothing":          func(r *dns.Msg) { r.Answer = nil },
		"another address":  func(r *dns.Msg) { r.Answer[0].(*dns.A).A[3]++ },
		"another name":     func(r *dns.Msg) { r.Answer[0].Header().Name = "x." },
		"another question": func(r *dns.Msg) { r.Question[0].Qtype = dns.TypeAAAA },
	} {
		if q.wrong(reply(change), true) == "" {
			t.Errorf(`wrong(%s) = "", want a difference`, name)
		}
	}
	if q.wrong(nil, false) == "" {
		t.Error(`wrong(empty packet) = "", want a difference`)
	}
}

// The servers' data agree with the queries: each expected answer is among the
// records of the zone files.
func TestPopulation(t *testing.T) {
	p := populate(100)
	zones := map[string][]string{}
	count := 0
	p.each(func(r record) {
		rr, err := dns.NewRR(r.owner + " 30 IN " + r.kind + " " + r.data)
		if err != nil {
			t.Fatalf("%v: %v", r, err)
		}
		key := r.owner + " " + r.kind
		zones[key] = append(zones[key], essence(rr))
		count++
	})
	if want := 5 + 3*p.plain + 2*p.endpoints() + 2*(p.endpoints()-p.plain*p.perService); count != want {
		t.Errorf("%d records, want %d", count, want)
	}
	total := 0
	for i := range p.services() {
		total += len(p.service(i).endpoints)
	}
	if total != p.endpoints() {
		t.Errorf("%d endpoints, endpoints() = %d", total, p.endpoints())
	}
	for name, w := range p.workloads() {
		for _, q := range w.lookups {
			m := new(dns.Msg)
			if err := m.Unpack(q.packet); err != nil {
				t.Fatal(err)
			}
			records := zones[m.Question[0].Name+" "+dns.TypeToString[m.Question[0].Qtype]]
			if name != "cached" && len(records) != len(q.want) {
				t.Fatalf("%s: %v has %d records, expected are %d", name, m.Question[0], len(records), len(q.want))
			}
		}
	}
}

func TestOptions(t *testing.T) {
	o, err := parseOptions([]string{"-quick", "-scenarios", "udp, idle"}, &bytes.Buffer{})
	if err != nil || o.services != 200 || o.rounds != 2 || !reflect.DeepEqual(o.only, []string{"udp", "idle"}) {
		t.Errorf("-quick -scenarios udp,idle: got %+v, %v; want 200 Services, 2 rounds, udp and idle", o, err)
	}
	if o, err := parseOptions(nil, &bytes.Buffer{}); err != nil || o.services != 10000 || o.rounds != 4 {
		t.Errorf("no flags: got %+v, %v; want 10000 Services, 4 rounds", o, err)
	}
	for _, args := range [][]string{{"-scenarios", "udq"}, {"-services", "3"}, {"-rounds", "-1"}, {"more"}, {"-time", "1ms"}, {"-time", "-1s"}, {"-services", "-1"}, {"-rate", "-1"}, {"-rate", "NaN"}, {"-rate", "Inf"}} {
		if _, err := parseOptions(args, &bytes.Buffer{}); err == nil {
			t.Errorf("%v: got no error, want one", args)
		}
	}
}

func TestReport(t *testing.T) {
	r := report{
		Versions: map[string]string{"go": "go1"},
		Goals:    judgeAll(goals(), map[string][]float64{"A/seamark": {2, 2}, "A/knot": {4, 4}}),
		Results:  []*result{{Scenario: "A", Title: "Some A", Label: "seamark", Samples: []sample{{CPU: 2}}, CPU: spread{2, 2, 2}}},
		Numbers:  []number{{"x", "a number", "MB", []float64{1.5, 2.5}}},
		Missing:  []string{"knot is not installed"},
	}
	page := r.markdown()
	for _, want := range []string{"| CPU of a ClusterIP A, to Knot | 0.85 | 0.50 | met |", "## Some A", "| a number | 2.00 MB (1.50 to 2.50) |", "- knot is not installed"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
}

// A quantile of nothing is a missing number, and the report has the others.
func TestNumberNone(t *testing.T) {
	var out bytes.Buffer
	b := &bench{out: &out, series: map[string][]float64{}}
	b.number("some", "some", "ms", quantile([]float64{2, 1}, 0.5))
	b.number("quantile", "of nothing", "ms", quantile(nil, 0.5))
	b.number("rounds", "without rounds", "ms")
	b.number("ratio", "to zero", "", math.Inf(1))
	if want := []number{{"some", "some", "ms", []float64{1}}}; !reflect.DeepEqual(b.report.Numbers, want) {
		t.Errorf("numbers: got %v, want %v", b.report.Numbers, want)
	}
	if want := []string{"of nothing: no value", "without rounds: no value", "to zero: no value"}; !slices.Equal(b.report.Missing, want) {
		t.Errorf("missing: got %q, want %q", b.report.Missing, want)
	}
	if _, err := json.Marshal(b.report); err != nil {
		t.Errorf("report: got error %v, want none", err)
	}
}

// The error of a restart has the line that the program wrote in place of ready.
func TestRestartOtherLine(t *testing.T) {
	server, err := newCommand("sh", "-c", "read order; echo not ready")
	if err != nil {
		t.Fatal(err)
	}
	defer server.stop()
	err = (&api{server: server}).restart(t.Context())
	if want := `restarting the API server: got "not ready", want ready`; err == nil || err.Error() != want {
		t.Errorf("got error %v, want %s", err, want)
	}
}

func TestTable(t *testing.T) {
	name := filepath.Join(t.TempDir(), "table")
	want := table{"a": []byte("b")}
	if err := want.write(name); err != nil {
		t.Fatal(err)
	}
	if got, err := readTable(name); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("readTable: got %v, %v; want %v", got, err, want)
	}
}
