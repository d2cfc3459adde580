package cmd_test

import (
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/seamark/seamark/internal/dnstest"
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

// What public dashboards and alerts select finds its series in a server that is
// run with kubeadm's Corefile and arguments.
func TestDashboards(t *testing.T) {
	dir, metrics := t.TempDir(), free(t)
	write(t, filepath.Join(dir, "cluster.yaml"), dashboardObjects)
	// Apart from addresses, and from where the cluster is, it is what kubeadm
	// writes.
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
	defer p.stop()

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
		c := dns.Client{Net: q.network, Timeout: 5 * time.Second}
		if _, _, err := c.Exchange(m, "127.0.0.1:"+p.ports[0]); err != nil {
			t.Errorf("%s: %v", q.name, err)
		}
	}

	files, err := filepath.Glob("../testdata/dashboards/*.txt")
	if err != nil || len(files) < 4 {
		t.Fatalf("%d dashboards, %v", len(files), err)
	}
	have := scrape(t, metrics)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for line := range strings.Lines(string(text)) {
			line = strings.TrimSpace(line)
			if line == "" || line[0] == '#' {
				continue
			}
			n++
			if s := parseSelector(t, line); !s.finds(have) {
				t.Errorf("%s: %s finds nothing", filepath.Base(file), line)
			}
		}
		if n == 0 {
			t.Errorf("%s selects nothing", file)
		}
	}
	if t.Failed() {
		for _, s := range have {
			t.Log(s.name, s.labels)
		}
	}
}

// free is an address that nobody else takes.
func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.77.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// A series is one line of /metrics without its value.
type series struct {
	name   string
	labels map[string]string
}

// A selector is a series' name and what its labels must be.
type selector struct {
	name   string
	labels map[string]*regexp.Regexp
}

var (
	head  = regexp.MustCompile(`^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})?(?: ([^ ]+))?$`)
	label = regexp.MustCompile(`([a-zA-Z_][a-zA-Z0-9_]*)(=~?)"((?:[^"\\]|\\.)*)"`)
)

// scrape reads /metrics, and wants it to be in the text format.
func scrape(t *testing.T, at string) (all []series) {
	t.Helper()
	reply, err := http.Get("http://" + at + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line[0] == '#' {
			continue
		}
		m := head.FindStringSubmatch(line)
		if m == nil || m[3] == "" {
			t.Fatalf("not a line of the text format: %s", line)
		}
		s := series{m[1], map[string]string{}}
		for _, l := range label.FindAllStringSubmatch(m[2], -1) {
			s.labels[l[1]] = l[3]
		}
		all = append(all, s)
	}
	return all
}

func parseSelector(t *testing.T, text string) selector {
	t.Helper()
	m := head.FindStringSubmatch(text)
	if m == nil || label.ReplaceAllString(strings.ReplaceAll(m[2], ", ", ""), "") != "" {
		t.Fatalf("not a selector: %s", text)
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

func (s selector) finds(all []series) bool {
	for _, one := range all {
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
