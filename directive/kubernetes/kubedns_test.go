package kubernetes

import (
	"strings"
	"testing"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/test/clustertest"
)

func kubeDNSAllocCases() []allocCase {
	label := func(ip string) string { return clustertest.HashLabel(addr(ip)) }
	return []allocCase{
		{"ClusterIP SRV without a port", "api.shop.svc.cluster.local.", "SRV"},
		{"ClusterIP SRV", "_http._tcp.api.shop.svc.cluster.local.", "SRV"},
		{"hash of a ClusterIP, A", label("10.96.0.1") + ".api.shop.svc.cluster.local.", "A"},
		{"hash of a ClusterIP, SRV", label("fd00:0:96::1") + ".api.shop.svc.cluster.local.", "SRV"},
		{"hash of a ClusterIP at a port", label("10.96.0.1") + "._http._tcp.api.shop.svc.cluster.local.", "SRV"},
		{"no hash of a ClusterIP", label("10.9.9.9") + ".api.shop.svc.cluster.local.", "A"},
		{"headless SRV without a port, 3 endpoints", "db.shop.svc.cluster.local.", "SRV"},
		{"headless SRV without a port, 60 endpoints", "big.shop.svc.cluster.local.", "SRV"},
		{"headless SRV, 60 endpoints", "_http._tcp.big.shop.svc.cluster.local.", "SRV"},
		{"hash of an endpoint, A", label("10.1.0.41") + ".big.shop.svc.cluster.local.", "A"},
		{"hash of an endpoint, SRV", label("10.1.0.41") + ".big.shop.svc.cluster.local.", "SRV"},
		{"hash of an endpoint at a port", label("10.1.0.41") + "._http._tcp.big.shop.svc.cluster.local.", "SRV"},
		{"hash of an endpoint with a hostname", label("10.0.0.2") + ".db.shop.svc.cluster.local.", "A"},
		{"dashes of an endpoint with a hostname", "10-0-0-2.db.shop.svc.cluster.local.", "A"},
		{"hostname", "db-1.db.shop.svc.cluster.local.", "SRV"},
		{"PTR of an endpoint without a hostname", "41.0.1.10.in-addr.arpa.", "PTR"},
		{"no wildcard", "nosuch.shop.svc.cluster.local.", "A"},
	}
}

// With compatible kube-dns an answer allocates nothing either, and the option
// wildcards does not change that for names without wildcards.
func TestKubeDNSAllocatesNothing(t *testing.T) {
	s := shopWith(t, func(d *directive) { d.kubedns, d.wildcards = true, true })
	check := func(c allocCase) *mdns.Msg {
		run, last := s.answerer(t, c)
		run()
		if n := testing.AllocsPerRun(200, run); n != 0 {
			t.Errorf("%s: got %v allocations, want 0", c.name, n)
		}
		return parse(t, last())
	}
	for _, c := range allocCases() {
		check(c)
	}
	for _, c := range kubeDNSAllocCases() {
		if m, none := check(c), strings.HasPrefix(c.name, "no "); none != (len(m.Answer) == 0) {
			t.Errorf("%s: got %s, want an empty answer: %v", c.name, digest(m), none)
		}
	}
}

func BenchmarkKubeDNS(b *testing.B) {
	s := shopWith(b, func(d *directive) { d.kubedns = true })
	for _, c := range kubeDNSAllocCases() {
		b.Run(c.name, func(b *testing.B) {
			run, _ := s.answerer(b, c)
			b.ReportAllocs()
			for b.Loop() {
				run()
			}
		})
	}
}

// The weight of 101 or more records is zero, and records that do not fit are
// removed.
func TestKubeDNSWeights(t *testing.T) {
	for n, want := range map[int]uint16{1: 100, 2: 50, 3: 33, 99: 1, 100: 1, 101: 0, 400: 0} {
		d := defaultOptions()
		d.kubedns = true
		s := start(t, d, headlessWithEndpoints(n)...)
		for _, name := range []string{"big.shop.svc.cluster.local.", "_http._tcp.big.shop.svc.cluster.local."} {
			m := s.ask(t, name, "SRV")
			if len(m.Answer) != n || len(m.Extra) != n {
				t.Fatalf("%s: %d SRV records and %d addresses, want %d", name, len(m.Answer), len(m.Extra), n)
			}
			for _, rr := range m.Answer {
				if srv := rr.(*mdns.SRV); srv.Priority != 10 || srv.Weight != want {
					t.Fatalf("%d of %s: got %s, want weight %d", n, name, srv, want)
				}
			}
			if m, _ := s.askUDP(t, name, "SRV", 512); m.Truncated != (n > 3) {
				t.Errorf("%s SRV with %d endpoints: got tc=%v, want %v", name, n, m.Truncated, n > 3)
			}
		}
	}
}

// Records that depend only on the Service are served before its endpoints are
// listed.
func TestKubeDNSWithoutEndpoints(t *testing.T) {
	d := defaultOptions()
	d.kubedns = true
	ix := d.newIndex()
	s := serve(t, d, d.handler(t, ix))
	relist(ix, cluster.Namespaces, []cluster.Object{namespaceObject("shop")})
	relist(ix, cluster.Services, []cluster.Object{clusterIP("shop", "api", "http 80/tcp", "10.96.0.1")})
	own := clustertest.HashLabel(addr("10.96.0.1"))
	for name, want := range map[string]string{
		"api.shop.svc.cluster.local.":                                                        "NOERROR",
		own + ".api.shop.svc.cluster.local.":                                                 "NOERROR",
		own + "._http._tcp.api.shop.svc.cluster.local.":                                      "NOERROR",
		clustertest.HashLabel(addr("10.96.0.2")) + ".api.shop.svc.cluster.local.":            "SERVFAIL",
		clustertest.HashLabel(addr("10.96.0.2")) + "._http._tcp.api.shop.svc.cluster.local.": "NXDOMAIN",
	} {
		if got := mdns.RcodeToString[s.ask(t, name, "SRV").Rcode]; got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
}

// The metadata of a query includes the labels that kube-dns has before a port's
// name.
func TestKubeDNSMetadata(t *testing.T) {
	h := clientShop(t)
	q := queryFor(t, "db-0._sql._tcp.db.shop.svc.cluster.local.", "10.0.0.9:53")
	if v, ok := h.Metadata(q, "kubernetes/port-name"); ok {
		t.Errorf("port-name without compatible kube-dns: got %q, want none", v)
	}
	h.kubeDNS = true
	for key, want := range map[string]string{"endpoint": "db-0", "port-name": "sql", "protocol": "tcp", "service": "db"} {
		if v, _ := h.Metadata(q, "kubernetes/"+key); v != want {
			t.Errorf("%s is %q, want %q", key, v, want)
		}
	}
}
