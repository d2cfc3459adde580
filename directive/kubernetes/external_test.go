package kubernetes

import (
	"fmt"
	"net/netip"
	"testing"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/directive/kubernetes/index"
	"github.com/seamark/seamark/test/chaintest"
)

// startExternal starts a server with k8s_external for these zones above kubernetes.
func startExternal(t testing.TB, zones []string, headless, through bool, objects ...cluster.Object) (*server, *index.Index) {
	t.Helper()
	ix := newExternalIndex(headless)
	load(ix, objects...)
	return serveExternal(t, zones, headless, through, ix), ix
}

// serveExternal starts the server of an index.
func serveExternal(t testing.TB, zones []string, headless, through bool, ix *index.Index) *server {
	t.Helper()
	return serveHandler(t, newExternal(t, zones, headless, through, ix))
}

// newExternal returns the handler of an index.
func newExternal(t testing.TB, zones []string, headless, through bool, ix *index.Index) *External {
	t.Helper()
	d := defaultOptions()
	d.zones = []string{"cluster.local."}
	e := &External{kubernetes: d.handler(t, ix), apex: index.Label("dns"), headless: headless}
	e.handler = Handler{external: e, ttl: 60, index: ix, server: firstServer + e.apex, local: []netip.Addr{netip.MustParseAddr("192.0.2.53")}}
	e.handler.fallThrough = config.Fallthrough{On: through}
	if err := e.handler.setZones(corefile.Directive{}, names(t, zones), nil); err != nil {
		t.Fatal(err)
	}
	return e
}

// serveHandler starts the server of a handler.
func serveHandler(t testing.TB, e *External) *server {
	t.Helper()
	zones := []string{"cluster.local."}
	for _, z := range e.AuthoritativeZones() {
		zones = append(zones, z.String())
	}
	return serveChain(t, chaintest.NewChain("k8s_external", e, "kubernetes", e.kubernetes, "world", otherZones{}), zones...)
}

func newExternalIndex(headless bool) *index.Index {
	set := index.Settings{TTL: 5, External: index.ExternalSettings{Enabled: true, Headless: headless, TTL: 60}}
	return index.New(set, defaultOptions().kinds(), chaintest.QuietLog())
}

// withExternal adds external addresses or host names to a Service.
func withExternal(s *cluster.Service, at ...string) *cluster.Service {
	s.External = new(cluster.External)
	for _, text := range at {
		if ip, err := netip.ParseAddr(text); err == nil {
			s.External.IPs = append(s.External.IPs, ip)
		} else {
			s.External.Hosts = append(s.External.Hosts, text)
		}
	}
	return s
}

func externalShop() []cluster.Object {
	return []cluster.Object{
		namespaceObject("shop"), namespaceObject("dns"), namespaceObject("empty"),
		withExternal(clusterIP("shop", "api", "http 80/tcp, https 443/tcp, dns 53/udp", "10.96.0.1"), "192.0.2.1", "2001:db8::1"),
		withExternal(clusterIP("shop", "two", "http 80/tcp", "10.96.0.2"), "192.0.2.1", "192.0.2.2"),
		withExternal(clusterIP("shop", "lb", "http 80/tcp", "10.96.0.3"), "www.example.com", "other.example.com"),
		withExternal(clusterIP("shop", "both", "http 80/tcp", "10.96.0.4"), "www.example.com", "192.0.2.3"),
		clusterIP("shop", "inside", "http 80/tcp", "10.96.0.5"),
		slice("shop", "inside-1", "inside", "http 80/tcp", "in-0=10.0.0.9"),
		headless("shop", "db"), slice("shop", "db-1", "db", "sql 5432/tcp", "db-0=10.0.0.1", "10.0.0.2", "db-0=fd00::1"),
		withExternal(headless("shop", "pub"), "192.0.2.9"), slice("shop", "pub-1", "pub", "sql 5432/tcp", "pub-0=10.0.0.3"),
		headless("shop", "none"),
		withExternal(clusterIP("dns", "ns1", "", "10.96.0.6"), "192.0.2.6"),
		withExternal(clusterIP("dns", "web", "", "10.96.0.7"), "192.0.2.7"),
		withExternal(clusterIP("hidden", "api", "", "10.96.0.8"), "192.0.2.8"),
		external("shop", "alias", "www.example.com"),
	}
}

func TestExternalNames(t *testing.T) {
	zones := []string{"example.org.", "2.0.192.in-addr.arpa.", "ip6.arpa."}
	for _, c := range []struct {
		name, qtype string
		plain       string // the expected reply, and the one with the option headless if it differs
		headless    string
	}{
		{"api.shop.example.org.", "A", "NOERROR 192.0.2.1", ""},
		{"api.shop.example.org.", "AAAA", "NOERROR 2001:db8::1", ""},
		{"api.shop.example.org.", "MX", "NOERROR", ""},
		{"api.shop.example.org.", "TXT", "NOERROR", ""},
		{"api.shop.example.org.", "CNAME", "NOERROR", ""},
		{"api.shop.example.org.", "AXFR", "REFUSED", ""},
		{"api.shop.example.org.", "SRV", "NOERROR 0 33 80 api.shop.example.org. 0 33 443 api.shop.example.org. 0 33 53 api.shop.example.org.", ""},
		{"_http._tcp.api.shop.example.org.", "SRV", "NOERROR 0 100 80 api.shop.example.org.", ""},
		{"_http._tcp.api.shop.example.org.", "A", "NOERROR 192.0.2.1", ""},
		{"_tcp.api.shop.example.org.", "A", "NOERROR", ""},
		{"_sctp.api.shop.example.org.", "A", "NXDOMAIN", ""},
		{"_http._udp.api.shop.example.org.", "SRV", "NXDOMAIN", ""},
		{"http.tcp.api.shop.example.org.", "SRV", "NXDOMAIN", ""},
		{"x._http._tcp.api.shop.example.org.", "SRV", "NXDOMAIN", ""},
		{"anything.api.shop.example.org.", "A", "NXDOMAIN", ""},
		{"two.shop.example.org.", "A", "NOERROR 192.0.2.1 192.0.2.2", ""},
		{"lb.shop.example.org.", "A", "NOERROR www.example.com. 192.0.2.80", ""},
		{"lb.shop.example.org.", "MX", "NOERROR www.example.com.", ""},
		{"lb.shop.example.org.", "SRV", "NOERROR www.example.com.", ""},
		{"lb.shop.example.org.", "CNAME", "NOERROR www.example.com.", ""},
		{"_http._tcp.lb.shop.example.org.", "SRV", "NOERROR 0 100 80 www.example.com.", ""},
		{"_http._tcp.lb.shop.example.org.", "A", "NOERROR", ""},
		{"_tcp.lb.shop.example.org.", "SRV", "NOERROR", ""},
		{"_udp.lb.shop.example.org.", "SRV", "NXDOMAIN", ""},
		{"x.lb.shop.example.org.", "A", "NXDOMAIN", ""},
		{"x._http._tcp.lb.shop.example.org.", "A", "NXDOMAIN", ""},
		{"both.shop.example.org.", "A", "NOERROR 192.0.2.3", ""},
		{"inside.shop.example.org.", "A", "NXDOMAIN", ""},
		{"in-0.inside.shop.example.org.", "A", "NXDOMAIN", ""},
		{"alias.shop.example.org.", "A", "NXDOMAIN", ""},
		{"db.shop.example.org.", "A", "NXDOMAIN", "NOERROR 10.0.0.1 10.0.0.2"},
		{"db.shop.example.org.", "AAAA", "NXDOMAIN", "NOERROR fd00::1"},
		{"db-0.db.shop.example.org.", "A", "NXDOMAIN", "NOERROR 10.0.0.1"},
		{"10-0-0-2.db.shop.example.org.", "A", "NXDOMAIN", "NOERROR 10.0.0.2"},
		{"db-9.db.shop.example.org.", "A", "NXDOMAIN", ""},
		{"_sql._tcp.db.shop.example.org.", "SRV", "NXDOMAIN", "NOERROR 0 50 5432 db-0.db.shop.example.org. 0 50 5432 10-0-0-2.db.shop.example.org."},
		{"pub.shop.example.org.", "A", "NOERROR 192.0.2.9", ""},
		{"pub-0.pub.shop.example.org.", "A", "NXDOMAIN", ""},
		{"none.shop.example.org.", "A", "NXDOMAIN", ""},
		{"shop.example.org.", "A", "NOERROR", ""},
		{"empty.example.org.", "TXT", "NOERROR", ""},
		{"nobody.example.org.", "A", "NXDOMAIN", ""},
		{"api.hidden.example.org.", "A", "NXDOMAIN", ""},
		{"example.org.", "A", "NOERROR", ""},
		{"example.org.", "SOA", "NOERROR ns1.dns.example.org.", ""},
		{"example.org.", "NS", "NOERROR ns1.dns.example.org.", ""},
		{"dns.example.org.", "A", "NOERROR", ""},
		{"ns1.dns.example.org.", "A", "NOERROR 192.0.2.53", ""},
		{"ns1.dns.example.org.", "AAAA", "NOERROR", ""},
		{"ns2.dns.example.org.", "A", "NXDOMAIN", ""},
		{"web.dns.example.org.", "A", "NOERROR 192.0.2.7", ""},
		{"x.ns1.dns.example.org.", "A", "NXDOMAIN", ""},
		{"1.2.0.192.in-addr.arpa.", "PTR", "NOERROR api.shop.example.org. two.shop.example.org.", ""},
		{"9.2.0.192.in-addr.arpa.", "PTR", "NOERROR pub.shop.example.org.", ""},
		{"8.2.0.192.in-addr.arpa.", "PTR", "NXDOMAIN", ""},
		{"80.2.0.192.in-addr.arpa.", "PTR", "NXDOMAIN", ""},
		{"1.2.0.192.in-addr.arpa.", "A", "NOERROR", ""},
		{"2.0.192.in-addr.arpa.", "NS", "NOERROR ns1.dns.2.0.192.in-addr.arpa.", ""},
		{"x.1.2.0.192.in-addr.arpa.", "PTR", "NXDOMAIN", ""},
		{"8.b.d.0.1.0.0.2.ip6.arpa.", "PTR", "NOERROR", ""},
		{"9.b.d.0.1.0.0.2.ip6.arpa.", "PTR", "NXDOMAIN", ""},
		{"1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa.", "PTR", "NOERROR api.shop.example.org.", ""},
		{"api.shop.svc.cluster.local.", "A", "NOERROR 10.96.0.1", ""},
	} {
		for _, headless := range []bool{false, true} {
			want := c.plain
			if headless && c.headless != "" {
				want = c.headless
			}
			s, _ := startExternal(t, zones, headless, false, externalShop()...)
			m := s.ask(t, c.name, c.qtype)
			got := mdns.RcodeToString[m.Rcode]
			for _, rr := range m.Answer {
				switch rr := rr.(type) {
				case *mdns.SOA:
					got += " " + rr.Ns
				case *mdns.SRV:
					got += fmt.Sprintf(" %d %d %d %s", rr.Priority, rr.Weight, rr.Port, rr.Target)
				default:
					got += " " + mdns.Field(rr, 1)
				}
				if ttl := rr.Header().Ttl; ttl != 60 && c.name != "api.shop.svc.cluster.local." {
					t.Errorf("%s %s: TTL %d, want that of the directive", c.name, c.qtype, ttl)
				}
			}
			if got != want {
				t.Errorf("headless %v: %s %s\ngot  %s\nwant %s", headless, c.name, c.qtype, got, want)
			}
			if m.Rcode == mdns.RcodeNameError || m.Rcode == 0 && len(m.Answer) == 0 {
				if len(m.Ns) != 1 || !m.Authoritative {
					t.Errorf("%s %s: want the SOA record and AA\n%s", c.name, c.qtype, digest(m))
				}
			}
		}
	}
}

// Names that do not exist fall through. Names without records of the type do not.
func TestExternalFallthrough(t *testing.T) {
	s, _ := startExternal(t, []string{"example.org."}, false, true, externalShop()...)
	for name, ours := range map[string]bool{
		"nobody.example.org.": false, "inside.shop.example.org.": false, "x.api.shop.example.org.": false,
		"shop.example.org.": true, "api.shop.example.org.": true, "example.org.": true, "dns.example.org.": true,
	} {
		if m := s.ask(t, name, "TXT"); m.Authoritative != ours {
			t.Errorf("%s TXT: got authoritative %v, want %v\n%s", name, m.Authoritative, ours, digest(m))
		}
	}
}

// Before the first list all names are SERVFAIL.
func TestExternalNotSynced(t *testing.T) {
	ix := newExternalIndex(true)
	s := serveExternal(t, []string{"example.org."}, true, true, ix)
	code := func(name string) string { return mdns.RcodeToString[s.ask(t, name, "A").Rcode] }
	if got := code("example.org.") + code("nobody.example.org."); got != "SERVFAILSERVFAIL" {
		t.Errorf("before any list: got %s, want SERVFAIL twice", got)
	}
	for _, o := range externalShop() {
		kind := cluster.Namespaces
		switch o.(type) {
		case *cluster.Service:
			kind = cluster.Services
		case *cluster.Slice:
			kind = cluster.Slices
		}
		ix.Put(kind, o)
	}
	for _, kind := range []cluster.Kind{cluster.Namespaces, cluster.Services} {
		ix.Listed(kind, func(cluster.Key) bool { return true })
	}
	for name, want := range map[string]string{
		"api.shop.example.org.": "NOERROR", "db.shop.example.org.": "SERVFAIL", "db-0.db.shop.example.org.": "SERVFAIL", "pub.shop.example.org.": "NOERROR", "shop.example.org.": "NOERROR", "ns1.dns.example.org.": "SERVFAIL",
	} {
		if got := code(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// A change of external addresses changes answers, reverse names and the serial.
func TestExternalChanges(t *testing.T) {
	s, ix := startExternal(t, []string{"example.org.", "in-addr.arpa."}, false, false, externalShop()...)
	ptr := func(name string) string { return text(s.ask(t, name, "PTR").Answer) }
	serial := ix.Serial(false)
	ix.Put(cluster.Services, withExternal(clusterIP("shop", "api", "http 80/tcp, https 443/tcp, dns 53/udp", "10.96.0.1"), "192.0.2.11"))
	if ix.Serial(false) == serial {
		t.Errorf("after a change of external addresses: serial is still %d, want another", serial)
	}
	if got := s.ask(t, "api.shop.example.org.", "A"); len(got.Answer) != 1 || mdns.Field(got.Answer[0], 1) != "192.0.2.11" {
		t.Errorf("api.shop.example.org. A: got %s, want 192.0.2.11", digest(got))
	}
	if ptr("11.2.0.192.in-addr.arpa.") == "" {
		t.Error("11.2.0.192.in-addr.arpa. PTR: got no record, want one for the new address")
	}
	ix.Put(cluster.Services, clusterIP("shop", "api", "http 80/tcp", "10.96.0.1"))
	if m := s.ask(t, "api.shop.example.org.", "A"); m.Rcode != mdns.RcodeNameError {
		t.Errorf("api.shop.example.org. A: got %s, want NXDOMAIN", digest(m))
	}
	if m := s.ask(t, "11.2.0.192.in-addr.arpa.", "PTR"); m.Rcode != mdns.RcodeNameError {
		t.Errorf("11.2.0.192.in-addr.arpa. PTR: got %s, want NXDOMAIN", digest(m))
	}
	ix.Delete(cluster.Namespaces, cluster.Key{Name: "shop"})
	if m := s.ask(t, "2.2.0.192.in-addr.arpa.", "PTR"); m.Rcode != mdns.RcodeNameError {
		t.Errorf("2.2.0.192.in-addr.arpa. PTR without the namespace: got %s, want NXDOMAIN", digest(m))
	}
	ix.Put(cluster.Namespaces, namespaceObject("shop"))
	if ptr("2.2.0.192.in-addr.arpa.") == "" {
		t.Error("2.2.0.192.in-addr.arpa. PTR after the namespace is added again: got no record, want one")
	}
}

func TestExternalAllocatesNothing(t *testing.T) {
	s, _ := startExternal(t, []string{"example.org.", "2.0.192.in-addr.arpa."}, true, false, externalShop()...)
	for _, c := range []allocCase{
		{"A", "api.shop.example.org.", "A"}, {"AAAA", "api.shop.example.org.", "AAAA"}, {"NODATA", "api.shop.example.org.", "TXT"},
		{"SRV", "_http._tcp.api.shop.example.org.", "SRV"}, {"host", "lb.shop.example.org.", "AAAA"}, {"SRV of a host", "_http._tcp.lb.shop.example.org.", "SRV"},
		{"NXDOMAIN", "nobody.example.org.", "A"}, {"PTR", "2.2.0.192.in-addr.arpa.", "PTR"}, {"endpoint", "db-0.db.shop.example.org.", "A"},
		{"headless", "db.shop.example.org.", "A"}, {"SOA", "example.org.", "SOA"},
	} {
		run, last := s.answerer(t, c)
		run()
		if n := testing.AllocsPerRun(200, run); n != 0 {
			t.Errorf("%s: got %v allocations, want 0", c.name, n)
		}
		if m := parse(t, last()); len(m.Answer)+len(m.Ns) == 0 {
			t.Errorf("%s: got %s, want records", c.name, digest(m))
		}
	}
}

// The name server's addresses are the external addresses of its own Service.
func TestExternalNameServer(t *testing.T) {
	s, _ := startExternal(t, []string{"example.org."}, false, false, append(externalShop(),
		withExternal(clusterIP("shop", "seamark", "dns 53/udp", "10.96.0.10"), "192.0.2.10", "2001:db8::10"),
		slice("shop", "seamark-1", "seamark", "dns 53/udp", "192.0.2.53"))...)
	s.check(t, "example.org.", "NS", `NOERROR aa
		example.org. 60 IN NS ns1.dns.example.org.
		additional: ns1.dns.example.org. 60 IN A 192.0.2.10
		additional: ns1.dns.example.org. 60 IN AAAA 2001:db8::10`)
	s.check(t, "ns1.dns.example.org.", "A", "NOERROR aa\nns1.dns.example.org. 60 IN A 192.0.2.10")
}
