package kubernetes

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/test/clustertest"
	"github.com/seamark/seamark/wire"
)

// reverseOf parses a reverse name from a request.
func reverseOf(t *testing.T, name string) (netip.Prefix, bool) {
	t.Helper()
	var r wire.Request
	if fault := r.Parse(request(t, name, mdns.TypePTR, 0)); fault != wire.NoFault {
		t.Fatalf("parsing a request for %s: fault %v", name, fault)
	}
	return wire.ParseReverse(r.Name())
}

func TestReverseNames(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 20_000 {
		ip := clustertest.RandomAddr(r)
		name, err := mdns.ReverseAddr(ip.String())
		if err != nil {
			t.Fatal(err)
		}
		if r.IntN(2) == 0 {
			name = strings.ToUpper(name)
		}
		if got, ok := reverseOf(t, name); !ok || got != netip.PrefixFrom(ip, ip.BitLen()) {
			t.Fatalf("%s: got %s, %v, want %s", name, got, ok, ip)
		}
		// A name above it stands for a prefix of the address.
		labels := mdns.SplitDomainName(name)
		cut := 1 + r.IntN(len(labels)-2)
		bits := ip.BitLen() - cut*ip.BitLen()/(len(labels)-2)
		want := netip.PrefixFrom(ip, bits).Masked()
		if got, ok := reverseOf(t, strings.Join(labels[cut:], ".")+"."); !ok || got != want {
			t.Fatalf("%s without %d labels: got %s, %v, want %s", name, cut, got, ok, want)
		}
	}
}

func TestInvalidReverseNames(t *testing.T) {
	six := strings.Repeat("0.", 31)
	for _, name := range []string{
		"01.0.0.10.in-addr.arpa.", "1.00.0.10.in-addr.arpa.", "256.0.0.10.in-addr.arpa.", "1000.0.0.10.in-addr.arpa.", "x.10.in-addr.arpa.",
		"1.1.0.0.10.in-addr.arpa.", "-1.0.0.10.in-addr.arpa.", "1.in-addr.arpa.example.", "arpa.", ".",
		"00." + six + "ip6.arpa.", "g." + six + "ip6.arpa.", "0.0." + six + "ip6.arpa.", "1.0.0.10.ip6.arpa.x.",
	} {
		if got, ok := reverseOf(t, name); ok {
			t.Errorf("%s: got %s, want no reverse name", name, got)
		}
	}
	for _, name := range []string{"in-addr.arpa.", "IN-ADDR.ARPA.", "0.in-addr.arpa.", "ip6.arpa.", "F.ip6.arpa."} {
		if got, ok := reverseOf(t, name); !ok || got.IsSingleIP() {
			t.Errorf("%s: got %s, %v, want a prefix of several addresses", name, got, ok)
		}
	}
}

// Objects in a file may be invalid: a hostname of more than 63 bytes is ignored, and a
// cluster whose ID cannot be part of a name has no names.
func TestInvalidNames(t *testing.T) {
	long := strings.Repeat("h", 64)
	d := defaultOptions()
	d.zones, d.multicluster = append(d.zones, "clusterset.local."), []string{"clusterset.local."}
	s := start(t, d,
		namespaceObject("shop"),
		headless("shop", "db"),
		slice("shop", "db-1", "db", "sql 5432/tcp", long+"=10.0.0.1", long[1:]+"=10.0.0.2"),
		imported(headless("shop", "db")),
		inCluster("a..b", slice("shop", "i1", "db", "sql 5432/tcp", "10.1.0.1")),
		inCluster(strings.Repeat("c", 64), slice("shop", "i2", "db", "sql 5432/tcp", "10.1.0.2")),
		inCluster(".x", slice("shop", "i3", "db", "sql 5432/tcp", "10.1.0.3")),
		inCluster(`a\.b`, slice("shop", "i4", "db", "sql 5432/tcp", "10.1.0.4")),
		inCluster("east", slice("shop", "i5", "db", "sql 5432/tcp", "10.1.0.5")),
	)
	s.check(t, "db.shop.svc.cluster.local.", "SRV", fmt.Sprintf(`NOERROR aa
		db.shop.svc.cluster.local. 5 IN SRV 0 50 5432 10-0-0-1.db.shop.svc.cluster.local.
		db.shop.svc.cluster.local. 5 IN SRV 0 50 5432 %[1]s.db.shop.svc.cluster.local.
		additional: 10-0-0-1.db.shop.svc.cluster.local. 5 IN A 10.0.0.1
		additional: %[1]s.db.shop.svc.cluster.local. 5 IN A 10.0.0.2`, long[1:]))
	s.check(t, "db.shop.svc.clusterset.local.", "SRV", `NOERROR aa
		db.shop.svc.clusterset.local. 5 IN SRV 0 100 5432 10-1-0-5.east.db.shop.svc.clusterset.local.
		additional: 10-1-0-5.east.db.shop.svc.clusterset.local. 5 IN A 10.1.0.5`)
	s.check(t, "db.shop.svc.clusterset.local.", "A", `NOERROR aa
		db.shop.svc.clusterset.local. 5 IN A 10.1.0.5`)
}

// A label has at most 63 bytes and a name 255. An endpoint whose name would be longer is
// among the addresses of the Service, but has no name.
func TestLongestNames(t *testing.T) {
	l63 := func(c string) string { return strings.Repeat(c, 63) }
	d := defaultOptions()
	d.zones = []string{"cluster.local.", "in-addr.arpa."}
	objects := []cluster.Object{
		namespaceObject(l63("n")),
		clusterIP(l63("n"), l63("s"), l63("p")+" 80/tcp", "10.96.0.1"),
		headless(l63("n"), l63("h")),
		slice(l63("n"), "a", l63("h"), "x 80/tcp", l63("e")+"=10.0.0.1", "10.0.0.2"),
	}
	s := start(t, d, objects...)
	base := "." + l63("n") + ".svc.cluster.local."
	s.check(t, l63("s")+base, "A", "NOERROR aa\n"+l63("s")+base+" 5 IN A 10.96.0.1")
	s.check(t, l63("e")+"."+l63("h")+base, "A", "NOERROR aa\n"+l63("e")+"."+l63("h")+base+" 5 IN A 10.0.0.1")
	s.check(t, "1.0.0.10.in-addr.arpa.", "PTR", "NOERROR aa\n1.0.0.10.in-addr.arpa. 5 IN PTR "+l63("e")+"."+l63("h")+base)

	// With a zone of 60 bytes only the short label fits.
	d.zones = []string{strings.Repeat("z", 58) + ".", "in-addr.arpa."}
	s = start(t, d, objects...)
	base = "." + l63("n") + ".svc." + d.zones[0]
	s.check(t, l63("h")+base, "A", "NOERROR aa\n"+
		l63("h")+base+" 5 IN A 10.0.0.1\n"+
		l63("h")+base+" 5 IN A 10.0.0.2")
	if name := l63("e") + "." + l63("h") + base; len(name)+1 <= wire.MaxName {
		t.Fatalf("%s: got %d bytes, want more than %d", name, len(name)+1, wire.MaxName)
	}
	s.check(t, l63("h")+base, "SRV", "NOERROR aa\n"+
		l63("h")+base+" 5 IN SRV 0 100 80 10-0-0-2."+l63("h")+base+"\n"+
		"additional: 10-0-0-2."+l63("h")+base+" 5 IN A 10.0.0.2")
	s.check(t, "1.0.0.10.in-addr.arpa.", "PTR", "NOERROR aa\nauthority: in-addr.arpa. 5 IN SOA "+soaOf(t, s, "in-addr.arpa."))
	s.check(t, "2.0.0.10.in-addr.arpa.", "PTR", "NOERROR aa\n2.0.0.10.in-addr.arpa. 5 IN PTR 10-0-0-2."+l63("h")+base)
}

// soaOf returns the RDATA of a zone's SOA record.
func soaOf(t *testing.T, s *server, zone string) string {
	t.Helper()
	answer := text(s.ask(t, zone, "SOA").Answer)
	_, rdata, _ := strings.Cut(strings.TrimSpace(answer), " IN SOA ")
	return rdata
}
