package kubernetes

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/directive/kubernetes/index"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/wire"
)

// Before a kind is listed, names that depend on it are SERVFAIL, never NXDOMAIN, and do not
// fall through. Other names are answered: the API server may forbid a kind for good.
func TestNotSynced(t *testing.T) {
	d := defaultOptions()
	d.through, d.pods = true, podsVerified
	d.zones, d.multicluster = append(d.zones, "clusterset.local."), []string{"clusterset.local."}
	ix := d.newIndex()
	h := d.handler(t, ix)
	s := serve(t, d, h)
	lists := [cluster.Kinds][]cluster.Object{
		cluster.Namespaces:   {namespaceObject("shop")},
		cluster.Services:     {clusterIP("shop", "api", "http 80/tcp", "10.96.0.1"), headless("shop", "db"), headless("shop", "none"), external("shop", "web", "www.example.com")},
		cluster.Slices:       {slice("shop", "db-1", "db", "", "db-0=10.0.0.1"), slice("shop", "api-1", "api", "", "api-0=10.0.0.2")},
		cluster.Imports:      {clusterIP("shop", "api", "", "10.97.0.1"), headless("shop", "db")},
		cluster.ImportSlices: {inCluster("east", slice("shop", "db-1", "db", "", "db-0=10.1.0.1"))},
		cluster.Pods:         {&cluster.Pod{Namespace: "shop", Name: "db-0", IPs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}}},
	}
	expect := func(want map[string]string) {
		t.Helper()
		for name, want := range want {
			qtype := "A"
			if strings.HasSuffix(name, ".arpa.") {
				qtype = "PTR"
			}
			if got := mdns.RcodeToString[s.ask(t, name, qtype).Rcode]; got != want {
				t.Errorf("%s: %s, want %s", name, got, want)
			}
		}
	}
	list := func(kind cluster.Kind) {
		t.Helper()
		if h.Ready() {
			t.Errorf("before %s are listed: got Ready() = true, want false", kind)
		}
		for _, o := range lists[kind] {
			ix.Put(kind, o) // An object from a watch does not complete the first list.
		}
		relist(ix, kind, lists[kind])
	}
	nothing := map[string]string{"www.example.com.": "NOERROR"}
	for _, name := range []string{
		"cluster.local.", "svc.cluster.local.", "api.shop.svc.cluster.local.", "missing.shop.svc.cluster.local.", "a.b.cluster.local.", "10-0-0-1.shop.pod.cluster.local.",
		"1.0.96.10.in-addr.arpa.", "9.9.9.9.in-addr.arpa.", "ip6.arpa.", "api.shop.svc.clusterset.local.",
	} {
		nothing[name] = "SERVFAIL"
	}
	expect(nothing)
	list(cluster.Namespaces)
	expect(nothing)
	list(cluster.Services)
	expect(map[string]string{
		"cluster.local.": "NOERROR", "api.shop.svc.cluster.local.": "NOERROR", "_http._tcp.api.shop.svc.cluster.local.": "NOERROR", "web.shop.svc.cluster.local.": "NOERROR",
		"missing.shop.svc.cluster.local.": "NXDOMAIN", "api.nobody.svc.cluster.local.": "NXDOMAIN",
		"db.shop.svc.cluster.local.": "SERVFAIL", "db-0.db.shop.svc.cluster.local.": "SERVFAIL", "none.shop.svc.cluster.local.": "SERVFAIL",
		"api-0.api.shop.svc.cluster.local.": "SERVFAIL", "_udp.db.shop.svc.cluster.local.": "SERVFAIL",
		"1.0.96.10.in-addr.arpa.": "NOERROR", "1.0.0.10.in-addr.arpa.": "SERVFAIL", "9.9.9.9.in-addr.arpa.": "SERVFAIL", "9.in-addr.arpa.": "SERVFAIL",
		"10-0-0-1.shop.pod.cluster.local.": "SERVFAIL", "shop.pod.cluster.local.": "NOERROR",
		"api.shop.svc.clusterset.local.": "SERVFAIL", "clusterset.local.": "SERVFAIL",
	})
	list(cluster.Pods)
	expect(map[string]string{"10-0-0-1.shop.pod.cluster.local.": "NOERROR", "10-0-0-2.shop.pod.cluster.local.": "NXDOMAIN", "db.shop.svc.cluster.local.": "SERVFAIL"})
	list(cluster.Imports)
	expect(map[string]string{"api.shop.svc.clusterset.local.": "NOERROR", "db.shop.svc.clusterset.local.": "SERVFAIL", "missing.shop.svc.clusterset.local.": "NXDOMAIN"})
	list(cluster.Slices)
	expect(map[string]string{
		"db.shop.svc.cluster.local.": "NOERROR", "none.shop.svc.cluster.local.": "NXDOMAIN", "api-0.api.shop.svc.cluster.local.": "NOERROR",
		"1.0.0.10.in-addr.arpa.": "NOERROR", "9.9.9.9.in-addr.arpa.": "NXDOMAIN", "db.shop.svc.clusterset.local.": "SERVFAIL",
	})
	list(cluster.ImportSlices)
	expect(map[string]string{"db-0.east.db.shop.svc.clusterset.local.": "NOERROR"})
	if !h.Ready() {
		t.Error("after all lists: got Ready() = false, want true")
	}
	relist(ix, cluster.Services, nil)
	if !h.Ready() {
		t.Error("after a later list: got Ready() = false, want true")
	}
}

// fallthrough passes on names that do not exist, and in reverse zones empty non-terminals,
// but not names that lack the type.
func TestFallthrough(t *testing.T) {
	objects := []cluster.Object{
		namespaceObject("shop"),
		clusterIP("shop", "api", "http 80/tcp", "10.96.0.1", "fd00:96::1"),
		external("shop", "lost", "gone.shop.svc.cluster.local"),
	}
	const (
		ours   = true
		theirs = false
	)
	for _, c := range []struct {
		zones string // of fallthrough
		name  string
		want  bool
	}{
		{"", "missing.shop.svc.cluster.local.", theirs},
		{"", "a.b.cluster.local.", theirs},
		{"", "1-2-3-4.shop.pod.cluster.local.", theirs},
		{"", "api.shop.svc.cluster.local.", ours},
		{"", "_tcp.api.shop.svc.cluster.local.", ours},
		{"", "shop.svc.cluster.local.", ours},
		{"", "svc.cluster.local.", ours},
		{"", "cluster.local.", ours},
		{"", "10.in-addr.arpa.", theirs},
		{"", "0.96.10.in-addr.arpa.", theirs},
		{"", "1.0.96.10.in-addr.arpa.", ours},
		{"", "2.0.96.10.in-addr.arpa.", theirs},
		{"", "11.in-addr.arpa.", theirs},
		{"", "x.1.0.96.10.in-addr.arpa.", theirs},
		{"", "in-addr.arpa.", ours},
		{"", "d.f.ip6.arpa.", theirs},
		{"in-addr.arpa.", "missing.shop.svc.cluster.local.", ours},
		{"in-addr.arpa.", "2.0.96.10.in-addr.arpa.", theirs},
		{"in-addr.arpa.", "d.f.ip6.arpa.", ours},
		{"svc.cluster.local. ip6.arpa.", "missing.cluster.local.", ours},
		{"svc.cluster.local. ip6.arpa.", "Missing.SVC.cluster.local.", theirs},
		{"svc.cluster.local. ip6.arpa.", "10.in-addr.arpa.", ours},
	} {
		d := defaultOptions()
		d.through, d.throughZones = true, strings.Fields(c.zones)
		s := start(t, d, objects...)
		for _, qtype := range []string{"TXT", "MX", "ANY", "PTR"} {
			m := s.ask(t, c.name, qtype)
			if got := m.Authoritative; got != c.want {
				t.Errorf("fallthrough %s, %s %s: got authoritative %v, want %v\n%s", c.zones, c.name, qtype, got, c.want, digest(m))
			}
		}
	}
	d := defaultOptions()
	d.through = true
	s := start(t, d, objects...)
	// The target of a CNAME falls through like any other name of the zone.
	s.check(t, "lost.shop.svc.cluster.local.", "A", `NXDOMAIN aa
		lost.shop.svc.cluster.local. 5 IN CNAME gone.shop.svc.cluster.local.`)
}

// Without fallthrough an empty non-terminal is NODATA in every zone (RFC 8020).
func TestEmptyNonTerminals(t *testing.T) {
	d := defaultOptions()
	d.pods = podsInsecure
	s := start(t, d,
		namespaceObject("shop"), namespaceObject("other"),
		clusterIP("shop", "api", "http 80/tcp, dns 53/udp", "10.96.0.1", "fd00:96::1"),
		headless("shop", "db"), slice("shop", "db", "db", "sql 5432/tcp", "10.0.0.1"))
	for name, want := range map[string]int{
		"svc.cluster.local.": 0, "pod.cluster.local.": 0, "dns.cluster.local.": 0, "dns-version.cluster.local.": 0,
		"shop.svc.cluster.local.": 0, "other.pod.cluster.local.": 0, "nobody.svc.cluster.local.": 3, "nobody.pod.cluster.local.": 3,
		"_tcp.api.shop.svc.cluster.local.": 0, "_udp.api.shop.svc.cluster.local.": 0, "_sctp.api.shop.svc.cluster.local.": 3,
		"_tcp.db.shop.svc.cluster.local.": 0, "_udp.db.shop.svc.cluster.local.": 3,
		"10.in-addr.arpa.": 0, "96.10.in-addr.arpa.": 0, "97.10.in-addr.arpa.": 3, "d.f.ip6.arpa.": 0, "c.f.ip6.arpa.": 3, "0.ip6.arpa.": 3,
		"http.tcp.api.shop.svc.cluster.local.": 3, "x.1-2-3-4.shop.pod.cluster.local.": 3,
	} {
		for _, qtype := range queryTypes()[:12] {
			if m := s.ask(t, name, qtype); m.Rcode != want || qtype != "TXT" && qtype != "ANY" && len(m.Answer) > 0 || len(m.Answer)+len(m.Ns) != 1 {
				t.Errorf("%s %s: got %s, want rcode %d and one record", name, qtype, digest(m), want)
			}
		}
	}
}

// Owners and targets keep the case of the query's name. Names in PTR records have
// the case of the objects.
func TestCaseOfQueryName(t *testing.T) {
	s := start(t, defaultOptions(),
		namespaceObject("shop"),
		clusterIP("shop", "api", "http 80/tcp", "10.96.0.1"),
		headless("shop", "db"),
		slice("shop", "db", "db", "sql 5432/tcp", "db-0=fd00::1"))
	s.check(t, "API.Shop.svc.Cluster.LOCAL.", "A", `NOERROR aa
		API.Shop.svc.Cluster.LOCAL. 5 IN A 10.96.0.1`)
	s.check(t, "_HTTP._tcp.API.Shop.svc.Cluster.LOCAL.", "SRV", `NOERROR aa
		_HTTP._tcp.API.Shop.svc.Cluster.LOCAL. 5 IN SRV 0 100 80 API.Shop.svc.Cluster.LOCAL.
		additional: API.Shop.svc.Cluster.LOCAL. 5 IN A 10.96.0.1`)
	s.check(t, "_Sql._TCP.DB.shop.svc.cluster.local.", "SRV", `NOERROR aa
		_Sql._TCP.DB.shop.svc.cluster.local. 5 IN SRV 0 100 5432 db-0.DB.shop.svc.cluster.local.
		additional: db-0.DB.shop.svc.cluster.local. 5 IN AAAA fd00::1`)
	s.check(t, "DB-0.db.shop.svc.cluster.local.", "SRV", `NOERROR aa
		DB-0.db.shop.svc.cluster.local. 5 IN SRV 0 100 5432 db-0.db.shop.svc.cluster.local.
		additional: db-0.db.shop.svc.cluster.local. 5 IN AAAA fd00::1`)
	s.check(t, "1.0.96.10.IN-ADDR.arpa.", "PTR", `NOERROR aa
		1.0.96.10.IN-ADDR.arpa. 5 IN PTR api.shop.svc.cluster.local.`)
}

// A loop has each CNAME once. A chain has at most eight sub-queries.
func TestExternalNameAnswers(t *testing.T) {
	objects := []cluster.Object{namespaceObject("shop"),
		external("shop", "self", "self.shop.svc.cluster.local"),
		external("shop", "ping", "pong.shop.svc.cluster.local"), external("shop", "pong", "PING.shop.svc.cluster.local"),
		external("shop", "web", "www.example.com"), external("shop", "gone", "gone.example.com"), external("shop", "nobody", "www.example.net"),
		external("shop", "lost", "lost-too.shop.svc.cluster.local"), external("shop", "ptr", "1.0.96.10.in-addr.arpa"),
		clusterIP("shop", "n9", "http 80/tcp", "10.96.0.1"),
	}
	for i := range 9 {
		objects = append(objects, external("shop", fmt.Sprintf("n%d", i), fmt.Sprintf("n%d.shop.svc.cluster.local", i+1)))
	}
	s := start(t, defaultOptions(), objects...)
	soa := "cluster.local. 5 IN SOA " + soaOf(t, s, "cluster.local.")
	s.check(t, "self.shop.svc.cluster.local.", "A", `SERVFAIL aa
		self.shop.svc.cluster.local. 5 IN CNAME self.shop.svc.cluster.local.`)
	s.check(t, "ping.shop.svc.cluster.local.", "AAAA", `SERVFAIL aa
		ping.shop.svc.cluster.local. 5 IN CNAME pong.shop.svc.cluster.local.
		pong.shop.svc.cluster.local. 5 IN CNAME ping.shop.svc.cluster.local.`)
	s.check(t, "ping.shop.svc.cluster.local.", "CNAME", `NOERROR aa
		ping.shop.svc.cluster.local. 5 IN CNAME pong.shop.svc.cluster.local.`)
	s.check(t, "ping.shop.svc.cluster.local.", "ANY", `NOERROR aa
		ping.shop.svc.cluster.local. 5 IN CNAME pong.shop.svc.cluster.local.`)
	s.check(t, "web.shop.svc.cluster.local.", "A", `NOERROR aa
		web.shop.svc.cluster.local. 5 IN CNAME www.example.com.
		www.example.com. 60 IN A 192.0.2.80`)
	s.check(t, "web.shop.svc.cluster.local.", "HTTPS", `NOERROR aa
		web.shop.svc.cluster.local. 5 IN CNAME www.example.com.`)
	s.check(t, "gone.shop.svc.cluster.local.", "A", `NXDOMAIN aa
		gone.shop.svc.cluster.local. 5 IN CNAME gone.example.com.`)
	s.check(t, "nobody.shop.svc.cluster.local.", "A", `NOERROR aa
		nobody.shop.svc.cluster.local. 5 IN CNAME www.example.net.`)
	s.check(t, "lost.shop.svc.cluster.local.", "TXT", `NXDOMAIN aa
		lost.shop.svc.cluster.local. 5 IN CNAME lost-too.shop.svc.cluster.local.
		authority: `+soa)
	s.check(t, "ptr.shop.svc.cluster.local.", "PTR", `NOERROR aa
		ptr.shop.svc.cluster.local. 5 IN CNAME 1.0.96.10.in-addr.arpa.
		1.0.96.10.in-addr.arpa. 5 IN PTR n9.shop.svc.cluster.local.`)
	s.check(t, "x.web.shop.svc.cluster.local.", "A", "NXDOMAIN aa\nauthority: "+soa)
	s.check(t, "_http._tcp.web.shop.svc.cluster.local.", "SRV", "NXDOMAIN aa\nauthority: "+soa)
	chain := func(from, to int) (lines string) {
		for i := from; i < to; i++ {
			lines += fmt.Sprintf("n%d.shop.svc.cluster.local. 5 IN CNAME n%d.shop.svc.cluster.local.\n", i, i+1)
		}
		return lines
	}
	s.check(t, "n1.shop.svc.cluster.local.", "A", "NOERROR aa\n"+chain(1, 9)+"n9.shop.svc.cluster.local. 5 IN A 10.96.0.1")
	s.check(t, "n0.shop.svc.cluster.local.", "A", "SERVFAIL aa\n"+chain(0, 9))
}

// parkingZones parks each query before it answers.
type parkingZones struct{ otherZones }

func (parkingZones) ServeDNS(q *dns.Query) dns.Verdict { return dns.Wait }

func (f parkingZones) Resolve(_ context.Context, q *dns.Query) error {
	f.otherZones.ServeDNS(q)
	return nil
}

// A target whose query must wait does not block the reader, and the answer is the
// same.
func TestExternalNameTargetWaits(t *testing.T) {
	h := defaultOptions().handler(t, load(defaultOptions().newIndex(), namespaceObject("shop"), external("shop", "web", "www.example.com"), external("shop", "gone", "web.shop.svc.cluster.local")))
	s := chaintest.NewServer(t, map[string]*dns.Chain{".": chaintest.NewChain("kubernetes", h, "far", parkingZones{})})
	_, parked := s.Begin(request(t, "gone.shop.svc.cluster.local.", mdns.TypeA, 0), dns.UDP)
	if parked == nil {
		t.Fatal("the query was not parked, want it parked")
	}
	want := `NOERROR aa
gone.shop.svc.cluster.local. 5 IN CNAME web.shop.svc.cluster.local.
web.shop.svc.cluster.local. 5 IN CNAME www.example.com.
www.example.com. 60 IN A 192.0.2.80
`
	if got := digest(parse(t, (<-parked).Packet)); got != want {
		t.Errorf("got:\n%swant:\n%s", got, want)
	}
}

// headlessWithEndpoints returns a headless Service with n endpoints in slices of a hundred.
func headlessWithEndpoints(n int) []cluster.Object {
	objects := []cluster.Object{namespaceObject("shop"), headless("shop", "big")}
	for i := 0; i < n; i += 100 {
		var buf []byte
		for j := i; j < min(n, i+100); j++ {
			buf = cluster.AppendEndpoint(buf, cluster.Endpoint{Addr: netip.AddrFrom4([4]byte{10, 1, byte(j >> 8), byte(j)}), Ready: true})
		}
		objects = append(objects, &cluster.Slice{Namespace: "shop", Name: fmt.Sprintf("big-%03d", i/100), Service: "big", Ports: ports("http 80/tcp"), Endpoints: cluster.Endpoints(buf)})
	}
	return objects
}

// An answer is as large as the client accepts, with TC if records are cut, and every record
// is whole.
func TestServiceLargerThanReply(t *testing.T) {
	const n = 5000
	s := start(t, defaultOptions(), headlessWithEndpoints(n)...)
	const (
		question = 12 + len("\x03big\x04shop\x03svc\x07cluster\x05local\x00") + 4
		opt      = 11
	)
	for _, name := range []string{"big.shop.svc.cluster.local.", "_http._tcp.big.shop.svc.cluster.local."} {
		room := question + len(name) - len("big.shop.svc.cluster.local.")
		for edns, limit := range map[uint16]int{0: 512, 512: 512 - opt, 1232: 1232 - opt, 4096: 4096 - opt, 65535: 4096 - opt} {
			m, size := s.askUDP(t, name, "A", edns)
			if want := (limit - room) / index.LenA; !m.Truncated || len(m.Answer) != want || m.Rcode != 0 {
				t.Errorf("%s, EDNS %d: %d bytes, %d records, want %d, tc=%v", name, edns, size, len(m.Answer), want, m.Truncated)
			}
			m, size = s.askUDP(t, name, "SRV", edns)
			if !m.Truncated || len(m.Answer) == 0 || len(m.Extra) > 1 || size > limit+opt {
				t.Errorf("%s SRV, EDNS %d: got %d bytes, %d SRV records, %d additional, tc=%v, want a truncated reply", name, edns, size, len(m.Answer), len(m.Extra), m.Truncated)
			}
			m, _ = s.askUDP(t, name, "AAAA", edns)
			if m.Truncated || len(m.Answer) != 0 || len(m.Ns) != 1 {
				t.Errorf("%s AAAA: got %s, want NODATA", name, digest(m))
			}
		}
		m := s.ask(t, name, "A")
		if want := (wire.MaxMessage - room) / index.LenA; !m.Truncated || len(m.Answer) != want {
			t.Errorf("%s, TCP: %d records, want %d, tc=%v", name, len(m.Answer), want, m.Truncated)
		}
		if m := s.ask(t, name, "SRV"); !m.Truncated || len(m.Answer) < 500 || len(m.Extra) > 0 {
			t.Errorf("%s SRV, TCP: got %d records, %d additional, tc=%v, want a truncated reply of at least 500 records", name, len(m.Answer), len(m.Extra), m.Truncated)
		}
	}
	// All records that fit are in the reply.
	s = start(t, defaultOptions(), headlessWithEndpoints(4000)...)
	m := s.ask(t, "big.shop.svc.cluster.local.", "A")
	seen := map[string]bool{}
	for _, rr := range m.Answer {
		seen[rr.(*mdns.A).A.String()] = true
	}
	if m.Truncated || len(seen) != 4000 {
		t.Errorf("A, TCP: got %d addresses, tc=%v, want 4000 and false", len(seen), m.Truncated)
	}
	s = start(t, defaultOptions(), headlessWithEndpoints(500)...)
	m = s.ask(t, "_http._tcp.big.shop.svc.cluster.local.", "SRV")
	if m.Truncated || len(m.Answer) != 500 || len(m.Extra) != 500 || m.Answer[499].(*mdns.SRV).Weight != 1 {
		t.Errorf("SRV, TCP: got %d SRV records, %d additional, tc=%v, want 500, 500 and false", len(m.Answer), len(m.Extra), m.Truncated)
	}
	s.check(t, "10-1-1-243.big.shop.svc.cluster.local.", "A", "NOERROR aa\n10-1-1-243.big.shop.svc.cluster.local. 5 IN A 10.1.1.243")
}

// Without a zone of Services there are no PTR records.
func TestReverseWithoutPrimaryZone(t *testing.T) {
	d := defaultOptions()
	d.zones, d.multicluster = []string{"clusterset.local.", "in-addr.arpa."}, []string{"clusterset.local."}
	s := start(t, d, namespaceObject("shop"), clusterIP("shop", "api", "http 80/tcp", "10.96.0.1"), imported(clusterIP("shop", "api", "", "10.97.0.1")))
	for _, name := range []string{"1.0.96.10.in-addr.arpa.", "1.0.97.10.in-addr.arpa.", "10.in-addr.arpa."} {
		if m := s.ask(t, name, "PTR"); m.Rcode != 3 {
			t.Errorf("%s PTR: got %s, want NXDOMAIN", name, digest(m))
		}
	}
	s.check(t, "api.shop.svc.clusterset.local.", "A", "NOERROR aa\napi.shop.svc.clusterset.local. 5 IN A 10.97.0.1")
	s.check(t, "dns-version.clusterset.local.", "TXT", `NOERROR aa
		dns-version.clusterset.local. 28800 IN TXT "1.0.0"`)
}

// A hostname may have many addresses. They come with its SRV record all or not at all, since
// the client could not detect that some are missing (RFC 2181 §9).
func TestTargetWithSeveralAddresses(t *testing.T) {
	d := defaultOptions()
	var eps []string
	for i := range 200 {
		eps = append(eps, fmt.Sprintf("%s=10.0.0.%d", strings.Repeat("h", 63), i+1))
	}
	s := serve(t, d, d.handler(t, load(d.newIndex(), namespaceObject("shop"), headless("shop", "db"), slice("shop", "db", "db", "sql 1/tcp", eps...))))
	for size, want := range map[uint16]int{512: 0, 1232: 0, 4096: 200} {
		r, _ := s.askUDP(t, "db.shop.svc.cluster.local.", "SRV", size)
		if n := len(r.Extra) - 1; r.Truncated || len(r.Answer) != 1 || n != want {
			t.Errorf("size %d: %d SRV records, %d addresses, want %d, TC %v", size, len(r.Answer), n, want, r.Truncated)
		}
	}
}
