package kubernetes

import (
	"fmt"
	"testing"
	"time"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/test/clustertest"
	"github.com/seamark/seamark/wire"
)

// The PTR record of a ClusterIP is its Service's, over each transport and in the transferred zone, whatever Services
// before it have endpoints with the address: more than a reply has room for, or unverified ones of any namespace.
func TestPTROfClusterIPBeforeEndpoints(t *testing.T) {
	const name, want = "10.0.96.10.in-addr.arpa.", "10.0.96.10.in-addr.arpa. 5 IN PTR api.shop.svc.cluster.local.\n"
	for what, c := range map[string]struct {
		endpoints int
		namespace string
		verified  bool
		pods      bool // the address is also a pod's of the namespace
	}{
		"one":                               {1, "a", false, false},
		"more than a datagram":              {100, "a", false, false},
		"more than a message":               {3000, "a", false, false},
		"unverified ones":                   {3000, "a", true, false},
		"verified ones":                     {3000, "a", true, true},
		"an unverified one, same namespace": {1, "shop", true, false},
		"verified ones, same namespace":     {3000, "shop", true, true},
	} {
		d := defaultOptions()
		if c.verified {
			d.pods = podsVerified
		}
		many := slice(c.namespace, "aaa-1", "aaa", "")
		many.Endpoints = clustertest.Packed(c.endpoints, func(i int) cluster.Endpoint {
			return cluster.Endpoint{Addr: clusterIP("", "", "", "10.96.0.10").ClusterIPs[0], Hostname: fmt.Sprint("h", i), Ready: true, Target: true}
		})
		objects := []cluster.Object{
			namespaceObject("a"), namespaceObject("shop"), headless(c.namespace, "aaa"), many, clusterIP("shop", "api", "", "10.96.0.10"),
		}
		if c.pods {
			objects = append(objects, clustertest.Pod(c.namespace, "p", false, "10.96.0.10"))
		}
		h := d.handler(t, load(d.newIndex(), objects...))
		h.verifyPTR = c.verified
		s := serve(t, d, h)

		udp, _ := s.askUDP(t, name, "PTR", 0)
		if tcp := s.ask(t, name, "PTR"); text(udp.Answer) != want || udp.Truncated || text(tcp.Answer) != want {
			t.Errorf("%s: got %d records over UDP, and %d over TCP, want\n%s", what, len(udp.Answer), len(tcp.Answer), want)
		}

		serveLive(t, h, time.Now)
		r := &zoneReplica{origin: wire.Lower("\x07in-addr\x04arpa\x00")}
		if err := r.transfer(h.Version(r.origin)); err != nil {
			t.Fatal(err)
		}
		if err := r.compare(t, s, []string{name}); err != nil {
			t.Errorf("%s: %.500v", what, err)
		}
	}
}

// The name server of every zone is known once namespaces, Services and endpoints have been listed, in any order: it
// is no multi-cluster Service.
func TestNameserverBeforeLists(t *testing.T) {
	lists := [cluster.Kinds][]cluster.Object{
		cluster.Namespaces: {namespaceObject("kube-system")},
		cluster.Services:   {clusterIP("kube-system", "kube-dns", "dns 53/udp", "10.96.0.10")},
		cluster.Slices:     {slice("kube-system", "kube-dns-1", "kube-dns", "dns 53/udp", "10.0.0.53")},
	}
	for _, order := range [][]cluster.Kind{
		{cluster.Namespaces, cluster.Slices, cluster.Services}, {cluster.Slices, cluster.Services, cluster.Namespaces},
		{cluster.Services, cluster.Namespaces, cluster.Slices},
	} {
		d := withLocalAddresses("10.0.0.53")
		d.zones, d.multicluster = append(d.zones, "clusterset.local."), []string{"clusterset.local."}
		ix := d.newIndex()
		relist(ix, cluster.Imports, nil)
		relist(ix, cluster.ImportSlices, nil)
		s := serve(t, d, d.handler(t, ix))
		for i, kind := range order {
			relist(ix, kind, lists[kind])
			for _, q := range [][3]string{
				{"ns.dns.cluster.local.", "A", "NOERROR aa\nns.dns.cluster.local. 5 IN A 10.96.0.10\n"},
				{"ns.dns.in-addr.arpa.", "A", "NOERROR aa\nns.dns.in-addr.arpa. 5 IN A 10.96.0.10\n"},
				{"ns.dns.clusterset.local.", "A", "NOERROR aa\nns.dns.clusterset.local. 5 IN A 10.96.0.10\n"},
				{"clusterset.local.", "NS", "NOERROR aa\nclusterset.local. 5 IN NS ns.dns.clusterset.local.\nadditional: ns.dns.clusterset.local. 5 IN A 10.96.0.10\n"},
				{"in-addr.arpa.", "NS", "NOERROR aa\nin-addr.arpa. 5 IN NS ns.dns.in-addr.arpa.\nadditional: ns.dns.in-addr.arpa. 5 IN A 10.96.0.10\n"},
			} {
				want := "SERVFAIL\n"
				if i == len(order)-1 {
					want = q[2]
				}
				if got := digest(s.ask(t, q[0], q[1])); got != want {
					t.Errorf("listed %v: %s %s: got %q, want %q", order[:i+1], q[0], q[1], got, want)
				}
			}
		}
	}
}
