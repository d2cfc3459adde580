package kubernetes

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/seamark/seamark/cluster"
)

func withLocalAddresses(ips ...string) directive {
	d := defaultOptions()
	for _, ip := range ips {
		d.local = append(d.local, netip.MustParseAddr(ip))
	}
	return d
}

// Without a Service of its own the server is ns.dns, at the addresses that it listens on.
func TestApexWithoutService(t *testing.T) {
	s := start(t, withLocalAddresses("10.0.0.53", "fd00::53"))
	soa := soaOf(t, s, "cluster.local.")
	if want := "ns.dns.cluster.local. hostmaster.cluster.local. 0 7200 1800 86400 5"; soa != want {
		t.Errorf("SOA: got %s, want %s", soa, want)
	}
	s.check(t, "cluster.local.", "NS", `NOERROR aa
		cluster.local. 5 IN NS ns.dns.cluster.local.
		additional: ns.dns.cluster.local. 5 IN A 10.0.0.53
		additional: ns.dns.cluster.local. 5 IN AAAA fd00::53`)
	s.check(t, "ns.dns.cluster.local.", "A", `NOERROR aa
		ns.dns.cluster.local. 5 IN A 10.0.0.53`)
	s.check(t, "ns.dns.cluster.local.", "AAAA", `NOERROR aa
		ns.dns.cluster.local. 5 IN AAAA fd00::53`)
	s.check(t, "in-addr.arpa.", "NS", `NOERROR aa
		in-addr.arpa. 5 IN NS ns.dns.in-addr.arpa.
		additional: ns.dns.in-addr.arpa. 5 IN A 10.0.0.53
		additional: ns.dns.in-addr.arpa. 5 IN AAAA fd00::53`)
	s.check(t, "cluster.local.", "ANY", "NOERROR aa\ncluster.local. 5 IN SOA "+soa)
	s.check(t, "cluster.local.", "A", "NOERROR aa\nauthority: cluster.local. 5 IN SOA "+soa)
	s.check(t, "dns.cluster.local.", "A", "NOERROR aa\nauthority: cluster.local. 5 IN SOA "+soa)
	s.check(t, "x.dns.cluster.local.", "A", "NXDOMAIN aa\nauthority: cluster.local. 5 IN SOA "+soa)
	s.check(t, "ns.dns.cluster.local.", "MX", "NOERROR aa\nauthority: cluster.local. 5 IN SOA "+soa)
}

// The name server is the Service kube-dns, at its ClusterIPs.
func TestApexWithService(t *testing.T) {
	s := start(t, withLocalAddresses("10.0.0.53"),
		namespaceObject("kube-system"),
		clusterIP("kube-system", "kube-dns", "dns 53/udp", "10.96.0.10", "fd00:96::a"),
		slice("kube-system", "kube-dns-1", "kube-dns", "dns 53/udp", "10.0.0.53", "10.0.0.54"))
	s.check(t, "cluster.local.", "NS", `NOERROR aa
		cluster.local. 5 IN NS kube-dns.kube-system.svc.cluster.local.
		additional: kube-dns.kube-system.svc.cluster.local. 5 IN A 10.96.0.10
		additional: kube-dns.kube-system.svc.cluster.local. 5 IN AAAA fd00:96::a`)
	for _, zone := range []string{"cluster.local.", "ip6.arpa."} {
		s.check(t, "ns.dns."+zone, "A", "NOERROR aa\nns.dns."+zone+" 5 IN A 10.96.0.10")
	}
	s.check(t, "in-addr.arpa.", "NS", `NOERROR aa
		in-addr.arpa. 5 IN NS ns.dns.in-addr.arpa.
		additional: ns.dns.in-addr.arpa. 5 IN A 10.96.0.10
		additional: ns.dns.in-addr.arpa. 5 IN AAAA fd00:96::a`)
	s.check(t, "CLUSTER.local.", "NS", `NOERROR aa
		CLUSTER.local. 5 IN NS kube-dns.kube-system.svc.CLUSTER.local.
		additional: kube-dns.kube-system.svc.CLUSTER.local. 5 IN A 10.96.0.10
		additional: kube-dns.kube-system.svc.CLUSTER.local. 5 IN AAAA fd00:96::a`)
}

// The endpoints of a headless Service are no name servers: their names may change with
// every restart. A Service with a ClusterIP is one, if there is no kube-dns.
func TestApexWithHeadlessService(t *testing.T) {
	objects := []cluster.Object{
		namespaceObject("kube-system"), namespaceObject("shop"),
		headless("kube-system", "dns"),
		slice("kube-system", "v4", "dns", "dns 53/udp", "dns-0=10.0.0.53", "dns-1=10.0.0.54"),
		slice("kube-system", "v6", "dns", "dns 53/udp", "dns-0=fd00::53"),
		clusterIP("shop", "empty", ""), // has no address
		slice("shop", "e", "empty", "", "10.0.0.53"),
	}
	s := start(t, withLocalAddresses("10.0.0.53", "fd00::53"), objects...)
	s.check(t, "cluster.local.", "NS", `NOERROR aa
		cluster.local. 5 IN NS ns.dns.cluster.local.
		additional: ns.dns.cluster.local. 5 IN A 10.0.0.53
		additional: ns.dns.cluster.local. 5 IN AAAA fd00::53`)
	s = start(t, withLocalAddresses("10.0.0.53", "fd00::53"), append(objects,
		clusterIP("kube-system", "coredns", "dns 53/udp", "10.96.0.10"),
		slice("kube-system", "coredns-1", "coredns", "dns 53/udp", "10.0.0.53", "10.0.0.54"))...)
	s.check(t, "cluster.local.", "NS", `NOERROR aa
		cluster.local. 5 IN NS coredns.kube-system.svc.cluster.local.
		additional: coredns.kube-system.svc.cluster.local. 5 IN A 10.96.0.10`)
}

// A Service in a hidden namespace is not a name server.
func TestApexWithHiddenService(t *testing.T) {
	s := start(t, withLocalAddresses("10.0.0.53"),
		clusterIP("kube-system", "kube-dns", "dns 53/udp", "10.96.0.10"),
		slice("kube-system", "kube-dns-1", "kube-dns", "dns 53/udp", "10.0.0.53"))
	if got := text(s.ask(t, "cluster.local.", "NS").Answer); !strings.Contains(got, " ns.dns.cluster.local.") {
		t.Errorf("cluster.local. NS: got %s, want ns.dns.cluster.local.", got)
	}
}

// The SOA record's own TTL is 300 at most; its last field is the TTL of
// negative answers.
func TestSOATTL(t *testing.T) {
	d := defaultOptions()
	d.ttl = 3600
	s := start(t, d)
	got := strings.TrimSpace(text(s.ask(t, "cluster.local.", "SOA").Answer))
	if want := "cluster.local. 300 IN SOA ns.dns.cluster.local. hostmaster.cluster.local. 0 7200 1800 86400 3600"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := strings.TrimSpace(text(s.ask(t, "x.cluster.local.", "A").Ns)); !strings.HasPrefix(got, "cluster.local. 300 IN SOA ") {
		t.Errorf("x.cluster.local. A, authority section: got %s, want a SOA record with TTL 300", got)
	}
	s.check(t, "dns-version.cluster.local.", "TXT", `NOERROR aa
		dns-version.cluster.local. 28800 IN TXT "1.1.0"`)
}
