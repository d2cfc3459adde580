package builtin_test

import (
	"context"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/seamark/seamark/builtin"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/server"
	"github.com/seamark/seamark/test/dnstest"
)

const fieldCluster = `
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Service
metadata: {name: api, namespace: shop}
spec: {clusterIP: 10.96.0.80, clusterIPs: [10.96.0.80], ports: [{name: http, port: 80}]}
`

const fieldUpstream = `
www.example.org.                    60 IN A 192.0.2.80
.                                   60 IN SOA ns. host. 1 2 3 4 60
db.corp.example.                    60 IN A 192.0.2.81
api.shop.svc.cluster.local.         60 IN A 192.0.2.99
5.2.0.192.in-addr.arpa.             60 IN PTR host.corp.example.
`

// Corefiles found in clusters are served.
func TestCorefiles(t *testing.T) {
	files, err := filepath.Glob("../testdata/corefile/*/Corefile")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 10 {
		t.Fatalf("found %d Corefiles, too few", len(files))
	}
	common := []question{
		{"api.shop.svc.cluster.local.", dns.TypeA, "10.96.0.80"},
		{"web.shop.svc.cluster.local.", dns.TypeA, "NXDOMAIN"},
		{"80.0.96.10.in-addr.arpa.", dns.TypePTR, "api.shop.svc.cluster.local."},
		{"www.example.org.", dns.TypeA, "192.0.2.80"},
		{"www.example.org.", dns.TypeA, "192.0.2.80"}, // from the cache
		{"www.example.org.", dns.TypeTXT, "NOERROR"},
		{"missing.example.org.", dns.TypeA, "NXDOMAIN"},
	}
	special := map[string][]question{
		"aks": {
			{"legacy.corp.example.", dns.TypeA, "NXDOMAIN"}, // corp.example has a block of its own
			{"db.corp.example.", dns.TypeA, "192.0.2.81"},
			{"a.b.c.d.internal.cloudapp.net.", dns.TypeA, "NXDOMAIN"},
			{"x.reddog.microsoft.com.", dns.TypeAAAA, "NXDOMAIN"},
		},
		"k3s":       {{"node-7.", dns.TypeA, "10.0.0.7"}},
		"minikube":  {{"host.minikube.internal.", dns.TypeA, "192.168.65.254"}},
		"openshift": {{"db.corp.example.", dns.TypeA, "192.0.2.81"}},
		"operator": {
			{"shop.example.", dns.TypeA, "10.96.0.80"},
			{"api.shop.mesh.example.", dns.TypeA, "10.96.0.80"},
			{"db.corp.example.", dns.TypeA, "192.0.2.81"},
			{"5.2.0.192.in-addr.arpa.", dns.TypePTR, "host.corp.example."},
		},
		"node-cache": {
			{"api.shop.svc.cluster.local.", dns.TypeA, "192.0.2.99"},
			{"www.example.org.", dns.TypeA, "192.0.2.80"},
		},
	}
	for _, file := range files {
		name := filepath.Base(filepath.Dir(file))
		t.Run(name, func(t *testing.T) {
			at := serveField(t, file)
			questions := append(common, special[name]...)
			if name == "node-cache" {
				questions = special[name]
			}
			for _, q := range questions {
				if got := q.ask(t, at); got != q.want {
					t.Errorf("%s %s: got %s, want %s", q.name, dns.TypeToString[q.qtype], got, q.want)
				}
			}
		})
	}
}

// serveField serves a Corefile with this machine's upstreams and ports.
func serveField(t *testing.T, file string) netip.AddrPort {
	upstream := dnstest.Upstream(t, fieldUpstream)
	t.Setenv("CACHE_TTL", "30")
	t.Setenv("STUB", upstream)
	dir := t.TempDir()
	for name, text := range map[string]string{
		"manifests/all.yaml": fieldCluster,
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	etc, err := filepath.Abs(filepath.Dir(file))
	if err != nil {
		t.Fatal(err)
	}
	blocks, err := corefile.Parse(file, []byte(strings.ReplaceAll(string(text), "/etc/coredns", etc)))
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range blocks {
		for i := range b.Directives {
			settle(&b.Directives[i], dir, upstream)
		}
	}
	plan, err := server.NewPlan(blocks, server.Options{
		Directives: builtin.Directives(),
		Port:       53,
		Listen:     []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0")},
		Log:        server.NewLog(t.Output(), slog.LevelInfo),
		Metrics:    new(metrics.Registry),
	})
	if err != nil {
		t.Fatal(err)
	}
	if w := plan.Warnings(); w != nil && strings.Contains(w.Error(), "reached") {
		t.Errorf("got the warnings %v, want none about directives that no query reaches", w)
	}
	if err := plan.Start(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		plan.Stop(ended) // without lameduck
	})
	return plan.Addresses()[0]
}

// settle replaces the addresses and paths in a directive by those of the test.
func settle(d *corefile.Directive, dir, upstream string) {
	word := func(text string) corefile.Token { return corefile.Token{Text: text, File: d.File, Line: d.Line} }
	switch d.Text {
	case "health", "ready", "prometheus":
		d.Args = []corefile.Token{word("127.0.0.1:0")}
	case "kubernetes":
		d.Body = append(d.Body, corefile.Directive{
			Token: word("manifests"), Args: []corefile.Token{word(filepath.Join(dir, "manifests"))}, Path: d.Path + ": manifests",
		})
	case "forward":
		for i, a := range d.Args {
			// A resolv.conf cannot contain a port.
			if a.Text == "$UPSTREAM" || a.Text == "/etc/resolv.conf" {
				d.Args[i].Text = upstream
			}
		}
	}
}

// A question has the expected data of the last answer record, or the expected
// response code.
type question struct {
	name  string
	qtype uint16
	want  string
}

func (q question) ask(t *testing.T, at netip.AddrPort) string {
	t.Helper()
	got := ""
	// The cluster's data may not be complete yet.
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		c := dns.Client{Timeout: time.Minute}
		reply, _, err := c.Exchange(new(dns.Msg).SetQuestion(q.name, q.qtype), at.String())
		if err != nil {
			t.Fatal(err)
		}
		got = dns.RcodeToString[reply.Rcode]
		if n := len(reply.Answer); n > 0 {
			fields := strings.Fields(reply.Answer[n-1].String())
			got = fields[len(fields)-1]
		}
		if got == q.want {
			break
		}
	}
	return got
}
