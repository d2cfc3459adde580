package cmd_test

import (
	"cmp"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/seamark/seamark/test/debian"
	"github.com/seamark/seamark/test/dnstest"
)

const metricsPage = "../docs/reference/metrics.md"

// ofClient matches the metrics of Go and of the process, which are the same in other programs.
var ofClient = regexp.MustCompile("^(?:go|process)_")

// A metric is one item of the page.
type metric struct{ name, kind, labels, help string }

// unusual returns the type of a metric whose name does not show it, followed by a colon.
func (m metric) unusual() string {
	usual := "gauge"
	if strings.HasSuffix(m.name, "_total") {
		usual = "counter"
	}
	if m.kind == usual {
		return ""
	}
	return m.kind + ": "
}

// inBraces returns the labels as in a query of Prometheus, and "" without labels.
func (m metric) inBraces() string {
	if m.labels == "" {
		return ""
	}
	return "{" + strings.ReplaceAll(m.labels, ", ", ",") + "}"
}

// repeats matches what the page says otherwise: the beginning of a help that its type repeats, and the end of one that
// its labels repeat.
var repeats = regexp.MustCompile(`^(?:Counter|Number) of |(?: in seconds)?\. Broken down by .*|, partitioned by .*|\.$`)

// meaning returns the help without what the page says otherwise.
func (m metric) meaning() string {
	text := repeats.ReplaceAllString(m.help, "")
	return strings.ToUpper(text[:1]) + text[1:]
}

// A metricsSection is one section of the page: metrics of a server with a Corefile, and those
// that appear with an event.
type metricsSection struct {
	title, corefile string
	later           []metric
}

// docs/reference/metrics.md has exactly the metrics of servers that use every directive with
// metrics, and every metric in the source.
func TestMetricsPage(t *testing.T) {
	long(t)
	if runtime.GOOS != "linux" {
		t.Skip("some metrics of the process exist only on Linux")
	}
	replace := metricsFiles(t)
	deadline := time.Now().Add(10 * time.Minute)
	known := map[string]metric{}
	escape, names := strings.NewReplacer("<", "&lt;"), metricNames(t)
	var page strings.Builder
	page.WriteString(metricsIntroduction)
	for _, s := range parseMetricsSections(t) {
		var added []metric
		for _, m := range s.later {
			if !slices.Contains(names, m.name) {
				t.Errorf("%s: %s is not in the source", s.title, m.name)
			}
		}
		for _, m := range append(s.scrape(t, replace, deadline), s.later...) {
			before, ok := known[m.name]
			if !ok {
				known[m.name] = m
				added = append(added, m)
			} else if before.kind != m.kind || before.labels != m.labels {
				t.Errorf("%s: got %+v, in an earlier section %+v", s.title, m, before)
			}
		}
		if len(added) == 0 {
			t.Errorf("%s: got no metrics, want some", s.title)
		}
		slices.SortFunc(added, func(a, b metric) int { return cmp.Compare(a.name, b.name) })
		fmt.Fprintf(&page, "\n## %s\n\n", s.title)
		standard := false
		for _, m := range added {
			if ofClient.MatchString(m.name) {
				standard = true
				continue
			}
			fmt.Fprintf(&page, "- `%s%s`: %s%s\n", m.name, m.inBraces(), m.unusual(), escape.Replace(m.meaning()))
		}
		if standard {
			page.WriteString("\nAnd `go_*` and `process_*`, as of every program with Prometheus' client for Go.\n")
		}
	}
	for _, name := range names {
		if _, ok := known[name]; !ok {
			t.Errorf("%s is in the source and not on the page: add a Corefile to testdata/metrics/corefiles.txt", name)
		}
	}
	page.WriteString(strings.ReplaceAll(metricsAbsent, "'", "`"))
	if *update && !t.Failed() {
		write(t, metricsPage, page.String())
	}
	if got := read(t, metricsPage); got != page.String() {
		t.Errorf("%s is old: run go test ./cmd -run TestMetricsPage -update; want\n%s", metricsPage, page.String())
	}
}

const metricsIntroduction = `# Metrics

All metrics of a server, by the directive that adds them, with their labels in braces.
[prometheus](directives/prometheus.md) serves them at ` + "`/metrics`" + `; a server without it counts no
queries. ` + "`coredns_`" + ` names are those of CoreDNS 1.15, with its labels and meanings, so that its
dashboards and alerts work; [some names are absent](#names-that-are-absent). Names that end with
` + "`_total`" + ` are counters, and others gauges if nothing else is said.

Some series appear with the first event of their kind. A counter keeps its value over reloads. OpenMetrics
has bounds such as ` + "`100.0`" + ` in the label ` + "`le`" + `, and the text format ` + "`100`" + `; Prometheus 3 stores both as ` + "`100.0`" + `.

[sidecar](sidecar.md) and [kube2sky](kube2sky.md) have metrics of their own.
`

// metricsAbsent ends the page, with a backquote for each apostrophe. A test of tools/coredns compares the page with
// the names in the code and the documents of CoreDNS.
const metricsAbsent = `
## Names that are absent

Names in documents of CoreDNS that are no metrics here, most of which CoreDNS 1.15 has not either:

| name | use instead |
|---|---|
| 'coredns_acl_*' before 1.7: 'coredns_request_block_count_total', 'coredns_request_allow_count_total', 'coredns_dns_blocked_requests_total', 'coredns_dns_allowed_requests_total', 'coredns_dns_acl_request_block_count_total', 'coredns_dns_acl_request_allow_count_total' | 'coredns_acl_blocked_requests_total', 'coredns_acl_allowed_requests_total' |
| 'coredns_autopath_success_count_total' | 'coredns_autopath_success_total' |
| 'coredns_cache_size' | 'coredns_cache_entries' |
| 'coredns_dns_request_count_total', 'coredns_dns_request_type_count_total' | 'coredns_dns_requests_total', which has the label type |
| 'coredns_dns_request_do_count_total' | 'coredns_dns_do_requests_total' |
| 'coredns_dns_response_rcode_count_total' | 'coredns_dns_responses_total' |
| 'coredns_forward_healthcheck_broken_count_total' | 'coredns_forward_healthcheck_broken_total' |
| 'coredns_forward_healthcheck_failure_count_total', 'coredns_forward_healthcheck_failures_total' | 'coredns_proxy_healthcheck_failures_total' |
| 'coredns_forward_max_concurrent_reject_count_total' | 'coredns_forward_max_concurrent_rejects_total' |
| 'coredns_forward_request_count_total', 'coredns_forward_response_rcode_count_total' | 'coredns_forward_requests_total', 'coredns_forward_responses_total' |
| 'coredns_forward_sockets_open' | 'seamark_forward_waiting_queries' |
| 'coredns_grpc_request_count_total', 'coredns_grpc_response_rcode_count_total' | 'coredns_grpc_requests_total', 'coredns_grpc_responses_total' |
| 'coredns_nomad_success_requests_total', 'coredns_nomad_failed_requests_total' | 'coredns_dns_responses_total' with the label plugin: there is no 'nomad', and 'hosts' and 'file' can serve its names |
| 'coredns_panic_count_total' | 'coredns_panics_total' |
| 'coredns_reload_failed_count_total' | 'coredns_reload_failed_total' |
`

// parseMetricsSections returns the sections of testdata/metrics/corefiles.txt.
func parseMetricsSections(t *testing.T) (sections []metricsSection) {
	t.Helper()
	for _, text := range strings.Split(read(t, "../testdata/metrics/corefiles.txt"), "\n== ")[1:] {
		var s metricsSection
		s.title, text, _ = strings.Cut(text, "\n")
		for strings.HasPrefix(text, "+ ") {
			var line, help string
			line, text, _ = strings.Cut(text, "\n")
			help, text, _ = strings.Cut(text, "\n")
			f := append(strings.Fields(line), "")
			s.later = append(s.later, metric{f[1], f[2], strings.ReplaceAll(f[3], ",", ", "), strings.TrimSpace(help)})
		}
		s.corefile = strings.TrimSpace(text)
		sections = append(sections, s)
	}
	if len(sections) < 25 {
		t.Fatalf("got %d sections, want 25 or more", len(sections))
	}
	return sections
}

// metricsFiles writes the files of the Corefiles. It returns the values of their words.
func metricsFiles(t *testing.T) *strings.Replacer {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "cluster.yaml"), dashboardObjects)
	write(t, filepath.Join(dir, "resolv.conf"), "search a.example.org b.example.org\nnameserver 192.0.2.1\n")
	write(t, filepath.Join(dir, "cluster.local.zone"), "cluster.local. 60 IN SOA ns.cluster.local. host.cluster.local. 1 2 3 4 60\n"+
		"cluster.local. 60 IN NS ns.cluster.local.\nns.cluster.local. 60 IN A 192.0.2.1\n")
	if err := os.Mkdir(filepath.Join(dir, "kube-dns"), 0o755); err != nil {
		t.Fatal(err)
	}
	writeCertificate(t, dir)
	keys, err := filepath.Abs("../builtin/testdata/keys")
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(unusedAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	return strings.NewReplacer("DIR", dir, "KEYS", keys, "GRPC", port, "UPSTREAM", dnstest.Upstream(t, dashboardUpstream))
}

// zoneKey is the beginning of a server block without a port.
var zoneKey = regexp.MustCompile(`(?m)^((?:https://)?[a-z.]+) \{$`)

// scrape returns the metrics of a server with the section's Corefile, once they are constant.
func (s metricsSection) scrape(t *testing.T, replace *strings.Replacer, deadline time.Time) (found []metric) {
	t.Helper()
	if s.corefile == "" {
		return nil
	}
	address, file := unusedAddress(t), filepath.Join(t.TempDir(), "Corefile")
	text := zoneKey.ReplaceAllString(replace.Replace(s.corefile), "$1:0 {\n    bind 127.0.0.1")
	write(t, file, strings.ReplaceAll(text, "METRICS", address))
	p := serveTo(t, io.Discard, "/", "", "-conf", file)
	defer p.stop()
	for _, name := range []string{"www.example.org.", "broken.example.org.", "missing.example.org.", "ns.cluster.local."} {
		for _, network := range []string{"udp", "tcp"} {
			c := dns.Client{Net: network, Timeout: 2 * time.Second}
			_, _, _ = c.Exchange(new(dns.Msg).SetQuestion(name, dns.TypeA), "127.0.0.1:"+p.ports[0]) // some fail
		}
	}
	// A series may follow its event after the reply: the metrics are complete when they have
	// all that the page has, or do not change for a second.
	documented := regexp.MustCompile("(?m)^- `([a-z0-9_]+)")
	_, section, _ := strings.Cut(read(t, metricsPage), "\n## "+s.title+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	want := map[string]bool{}
	for _, m := range documented.FindAllStringSubmatch(section, -1) {
		want[m[1]] = true
	}
	for _, m := range s.later {
		delete(want, m.name)
	}
	for since := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		now := scrapeMetrics(t, address)
		if !slices.Equal(now, found) {
			found, since = now, time.Now()
		}
		have := map[string]bool{}
		for _, m := range now {
			have[m.name] = true
		}
		missing := 0
		for name := range want {
			if !have[name] {
				missing++
			}
		}
		settled := 15 * time.Second
		if *update {
			settled = 3 * time.Second
		}
		if !*update && missing == 0 || time.Since(since) > settled || time.Now().After(deadline) {
			break
		}
	}
	lint(t, s.title, metricsText(t, address))
	return found
}

// lint lets promtool check a page of metrics.
func lint(t *testing.T, title, text string) {
	t.Helper()
	promtool := debian.Program(t, "promtool")
	c := exec.CommandContext(t.Context(), promtool, "check", "metrics")
	c.Stdin = strings.NewReader(text)
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("%s: promtool check metrics: %v\n%s", title, err, out)
	}
}

// metricsText returns the page of metrics at an address.
func metricsText(t *testing.T, address string) string {
	t.Helper()
	return page(t, "http://"+address+"/metrics")
}

// scrapeMetrics returns the metrics at an address, sorted by name.
func scrapeMetrics(t *testing.T, address string) (found []metric) {
	t.Helper()
	var m metric
	var labels []string
	end := func() {
		if m.labels = strings.Join(labels, ", "); m.name != "" {
			found = append(found, m)
		}
		labels = nil
	}
	for line := range strings.Lines(metricsText(t, address)) {
		line = strings.TrimSpace(line)
		if rest, ok := strings.CutPrefix(line, "# HELP "); ok {
			end()
			name, help, _ := strings.Cut(rest, " ")
			m = metric{name: name, help: help}
			continue
		}
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			_, m.kind, _ = strings.Cut(rest, " ")
			continue
		}
		parts := head.FindStringSubmatch(line)
		if parts == nil {
			t.Fatalf("got the line %q, want the text format", line)
		}
		for _, l := range label.FindAllStringSubmatch(parts[2], -1) {
			if l[1] != "le" && l[1] != "quantile" && !slices.Contains(labels, l[1]) {
				labels = append(labels, l[1])
			}
		}
	}
	end()
	return found
}

// metricNames returns the metrics that the source of the server names in full.
func metricNames(t *testing.T) []string {
	t.Helper()
	literal := regexp.MustCompile(`"((?:coredns|seamark)_[a-z0-9_]*[a-z0-9])"`)
	names := map[string]bool{}
	for _, dir := range []string{"server", "directive", "cluster", "transport", "cmd", "dns", "compat", "observe/dnstap", "observe/status"} {
		err := filepath.WalkDir(filepath.Join("..", dir), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "kube2sky") {
				return err
			}
			for _, m := range literal.FindAllStringSubmatch(read(t, path), -1) {
				names[m[1]] = true
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return slices.Sorted(maps.Keys(names))
}
