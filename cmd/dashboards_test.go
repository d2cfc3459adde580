package cmd_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/seamark/seamark/test/dnstest"
	"github.com/seamark/seamark/test/freeport"
)

const dashboardObjects = `
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Service
metadata: {name: api, namespace: shop}
spec: {clusterIP: 10.96.0.80, clusterIPs: [10.96.0.80], ports: [{name: http, port: 80}]}
`

const dashboardUpstream = `
www.example.org.     60 IN A 192.0.2.80
broken.example.org.  SERVFAIL
.                    60 IN SOA ns. host. 1 2 3 4 60
`

// dashboardServer serves kubeadm's Corefile with kubeadm's arguments. It returns the address
// of /metrics, a function that sends queries of all kinds (for names of the cluster, for
// names that are forwarded or cached, and for names that do not exist), and one that stops
// the server.
func dashboardServer(t *testing.T) (metrics string, query, stop func()) {
	t.Helper()
	dir, metrics := t.TempDir(), unusedAddress(t)
	write(t, filepath.Join(dir, "cluster.yaml"), dashboardObjects)
	// Except for addresses and the source of the cluster's objects, this is the
	// Corefile that kubeadm writes.
	text := strings.NewReplacer(
		".:53 {", ".:0 {\n    bind 127.0.0.1",
		"health {\n       lameduck 5s", "health 127.0.0.1:0 {\n       lameduck 0s",
		"ready\n", "ready 127.0.0.1:0\n",
		"pods insecure", "pods insecure\n       manifests "+dir,
		"prometheus :9153", "prometheus "+metrics,
		"/etc/resolv.conf", dnstest.Upstream(t, dashboardUpstream),
	).Replace(kubeadm)
	file := filepath.Join(dir, "etc", "coredns", "Corefile")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, file, text)
	p := serve(t, "/", "", "-conf", file)
	query = func() {
		t.Helper()
		for _, q := range []struct {
			network, name string
			qtype         uint16
			do            bool
		}{
			{"udp", "api.shop.svc.cluster.local.", dns.TypeA, false},
			{"tcp", "api.shop.svc.cluster.local.", dns.TypeSRV, false},
			{"udp", "api.shop.svc.cluster.local.", dns.TypeAAAA, true},
			{"udp", "missing.shop.svc.cluster.local.", dns.TypeA, false},
			{"udp", "80.0.96.10.in-addr.arpa.", dns.TypePTR, false},
			{"udp", "www.example.org.", dns.TypeA, false},
			{"udp", "www.example.org.", dns.TypeA, false}, // from the cache
			{"tcp", "missing.example.org.", dns.TypeA, false},
			{"udp", "missing.example.org.", dns.TypeA, false},
			{"udp", "broken.example.org.", dns.TypeA, false},
		} {
			m := new(dns.Msg).SetQuestion(q.name, q.qtype)
			m.SetEdns0(1232, q.do)
			c := dns.Client{Net: q.network, Timeout: 10 * time.Second}
			if _, _, err := c.Exchange(m, "127.0.0.1:"+p.ports[0]); err != nil {
				t.Errorf("%s: %v", q.name, err)
			}
		}
	}
	return metrics, query, p.stop
}

// Each selector of public dashboards and alerts matches a series of a server that
// runs with kubeadm's Corefile and arguments.
func TestDashboards(t *testing.T) {
	metrics, query, stop := dashboardServer(t)
	defer stop()
	query()
	files, err := filepath.Glob("../testdata/dashboards/*.txt")
	if err != nil || len(files) < 4 {
		t.Fatalf("got %d dashboards, want 4 or more: %v", len(files), err)
	}
	var selectors []string
	for _, file := range files {
		n := 0
		for line := range strings.Lines(read(t, file)) {
			if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
				selectors = append(selectors, line)
				n++
			}
		}
		if n == 0 {
			t.Errorf("%s: got no selectors, want some", file)
		}
	}
	// A reply may arrive before the server has counted its query.
	var found []series
	var missing []string
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		found, missing = scrape(t, metrics), nil
		for _, line := range selectors {
			if s := parseSelector(t, line); !s.matchesOne(found) {
				missing = append(missing, line)
			}
		}
		if len(missing) == 0 || time.Now().After(deadline) {
			break
		}
	}
	if len(missing) > 0 {
		t.Errorf("selectors without a series:\n%s\nseries:", strings.Join(missing, "\n"))
		for _, s := range found {
			t.Log(s.name, s.labels)
		}
	}
}

// unusedAddress returns an address that no process uses.
func unusedAddress(t *testing.T) string {
	t.Helper()
	return "127.77.0.1:" + freeport.Reserve(t)
}

// A series is one line of /metrics without its value.
type series struct {
	name   string
	labels map[string]string
}

// A selector is the name of a series and a pattern for each label.
type selector struct {
	name   string
	labels map[string]*regexp.Regexp
}

var (
	head  = regexp.MustCompile(`^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})?(?: ([^ ]+))?$`)
	label = regexp.MustCompile(`([a-zA-Z_][a-zA-Z0-9_]*)(=~?)"((?:[^"\\]|\\.)*)"`)
)

// scrape reads /metrics at the address and fails the test if a line is not in the text
// format.
func scrape(t *testing.T, address string) (lines []series) {
	t.Helper()
	for line := range strings.Lines(metricsText(t, address)) {
		if line = strings.TrimSpace(line); line[0] == '#' {
			continue
		}
		m := head.FindStringSubmatch(line)
		if m == nil || m[3] == "" {
			t.Fatalf("got the line %q, want the text format", line)
		}
		s := series{m[1], map[string]string{}}
		for _, l := range label.FindAllStringSubmatch(m[2], -1) {
			s.labels[l[1]] = l[3]
		}
		lines = append(lines, s)
	}
	return lines
}

func parseSelector(t *testing.T, text string) selector {
	t.Helper()
	m := head.FindStringSubmatch(text)
	if m == nil || label.ReplaceAllString(strings.ReplaceAll(m[2], ", ", ""), "") != "" {
		t.Fatalf("got %q, want a selector", text)
	}
	s := selector{m[1], map[string]*regexp.Regexp{}}
	for _, l := range label.FindAllStringSubmatch(m[2], -1) {
		pattern := l[3]
		if l[2] == "=" {
			pattern = regexp.QuoteMeta(pattern)
		}
		s.labels[l[1]] = regexp.MustCompile("^(?:" + pattern + ")$")
	}
	return s
}

func (s selector) matchesOne(candidates []series) bool {
	for _, one := range candidates {
		if one.name != s.name {
			continue
		}
		ok := true
		for name, want := range s.labels {
			ok = ok && want.MatchString(one.labels[name])
		}
		if ok {
			return true
		}
	}
	return false
}
