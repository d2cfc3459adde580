package kubernetes

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/directive/kubernetes/index"
)

// A version is the objects of some Services at one time.
type version struct {
	services, slices []cluster.Object
}

// versions returns two states between which a cluster changes. Each of the names
// below exists in both.
func versions() [2]version {
	two := func(n int) []string {
		var eps []string
		for i := range 4 + 3*n { // n decides the number of endpoints, their addresses and their labels.
			eps = append(eps, fmt.Sprintf("db-%d=10.0.%d.%d", i+n, n, i))
		}
		return eps
	}
	var vs [2]version
	for n := range vs {
		vs[n] = version{
			services: []cluster.Object{
				clusterIP("shop", "api", fmt.Sprintf("http %d/tcp", 80+n), fmt.Sprintf("10.96.0.%d", 1+n), fmt.Sprintf("10.96.1.%d", 1+n), "10.96.9.9"),
				headless("shop", "db"),
				headless("shop", "wide"),
				external("shop", "alias", fmt.Sprintf("t%d.example.net", n)),
			},
			slices: []cluster.Object{
				slice("shop", "db", "db", fmt.Sprintf("sql %d/tcp", 5432+n), append(two(n), fmt.Sprintf("fixed=10.5.0.%d", n), fmt.Sprintf("moving-%d=10.5.5.5", n))...),
				slice("shop", "api", "api", "", fmt.Sprintf("pod=10.6.0.%d", n)),
				slice("shop", "wide-a", "wide", "sql 5432/tcp", "10.5.1.1", "10.5.1.2"),
				slice("shop", "wide-b", "wide", "sql 5432/tcp", "10.5.2.1", fmt.Sprintf("10.5.3.%d", n), "fd00::1"),
			},
		}
	}
	return vs
}

// While the writer puts and lists objects, exposes and hides another namespace,
// and grows and shrinks every table, readers see each Service before or after a
// change.
func TestReadersDuringChanges(t *testing.T) {
	d := defaultOptions()
	d.pods = podsVerified
	vs := versions()
	fixed := []cluster.Object{namespaceObject("shop"), &cluster.Pod{Namespace: "shop", Name: "p", IPs: []netip.Addr{netip.MustParseAddr("10.7.0.1")}}}
	ix := load(d.newIndex(), append(append(fixed, vs[0].services...), vs[0].slices...)...)
	h := d.handler(t, ix)

	queries := []struct{ name, qtype string }{
		{"api.shop.svc.cluster.local.", "A"},
		{"_http._tcp.api.shop.svc.cluster.local.", "SRV"},
		{"pod.api.shop.svc.cluster.local.", "A"},
		{"db.shop.svc.cluster.local.", "A"},
		{"db.shop.svc.cluster.local.", "SRV"},
		{"fixed.db.shop.svc.cluster.local.", "A"},
		{"_sql._tcp.db.shop.svc.cluster.local.", "A"},
		{"wide.shop.svc.cluster.local.", "A"},
		{"wide.shop.svc.cluster.local.", "SRV"},
		{"1.2.5.10.in-addr.arpa.", "PTR"},
		{"alias.shop.svc.cluster.local.", "CNAME"},
		{"9.9.96.10.in-addr.arpa.", "PTR"},
		{"5.5.5.10.in-addr.arpa.", "PTR"},
		{"10-7-0-1.shop.pod.cluster.local.", "A"},
	}
	// The answers of each version, before the changes begin.
	var right [2][]string
	for n, v := range vs {
		s := serve(t, d, d.handler(t, load(d.newIndex(), append(append(fixed[:2:2], v.services...), v.slices...)...)))
		for _, q := range queries {
			right[n] = append(right[n], digest(s.ask(t, q.name, q.qtype)))
		}
	}
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 3 {
		s := serve(t, d, h)
		readers.Go(func() {
			for i := 0; ; i = (i + 1) % len(queries) {
				select {
				case <-stop:
					return
				default:
				}
				q := queries[i]
				if got := digest(s.ask(t, q.name, q.qtype)); got != right[0][i] && got != right[1][i] {
					t.Errorf("%s %s\ngot:\n%swant:\n%sor:\n%s", q.name, q.qtype, got, right[0][i], right[1][i])
					return
				}
			}
		})
	}
	disturb(ix, vs, fixed)
	close(stop)
	readers.Wait()
}

// disturb changes the cluster in every way that does not affect the names of the
// versions.
func disturb(ix *index.Index, vs [2]version, fixed []cluster.Object) {
	r := rand.New(rand.NewPCG(1, 1))
	var others, otherSlices []cluster.Object
	for range 800 {
		v := vs[r.IntN(2)]
		switch r.IntN(8) {
		case 0, 1, 2:
			o := v.services[r.IntN(len(v.services))]
			ix.Put(cluster.Services, o)
		case 3, 4:
			o := v.slices[r.IntN(len(v.slices))]
			ix.Put(cluster.Slices, o)
		case 5: // lists in which all other objects are new or missing
			others, otherSlices = nil, nil
			for i := range r.IntN(200) {
				name := fmt.Sprintf("x%d", i)
				others = append(others, clusterIP("other", name, "", fmt.Sprintf("10.96.%d.%d", r.IntN(12), r.IntN(250)+3)), headless("shop", name))
				otherSlices = append(otherSlices, slice("shop", name, name, "", fmt.Sprintf("10.5.5.%d", r.IntN(250)+6), "10.4.4.4"))
			}
			relist(ix, cluster.Services, append(others, v.services...))
			relist(ix, cluster.Slices, append(otherSlices, v.slices...))
		case 6:
			if r.IntN(2) == 0 {
				ix.Put(cluster.Namespaces, namespaceObject("other"))
			} else {
				ix.Delete(cluster.Namespaces, cluster.Key{Name: "other"})
			}
			relist(ix, cluster.Namespaces, append(fixed[:1:1], namespaceObject(fmt.Sprintf("n%d", r.IntN(50)))))
		case 7:
			ix.Put(cluster.Pods, fixed[1])
			relist(ix, cluster.Pods, fixed[1:])
		}
	}
}

// While the last list is delivered, a query gets SERVFAIL or the answer, never
// NXDOMAIN.
func TestReadersDuringLastList(t *testing.T) {
	d := defaultOptions()
	for range 500 {
		ix := d.newIndex()
		h := d.handler(t, ix)
		relist(ix, cluster.Namespaces, []cluster.Object{namespaceObject("shop")})
		relist(ix, cluster.Services, []cluster.Object{headless("shop", "db")})
		var readers sync.WaitGroup
		for _, q := range []struct{ name, qtype string }{{"db.shop.svc.cluster.local.", "A"}, {"1.0.0.10.in-addr.arpa.", "PTR"}} {
			s := serve(t, d, h)
			readers.Go(func() {
				for !ix.Synced() {
					if r := s.ask(t, q.name, q.qtype); r.Rcode == mdns.RcodeNameError {
						t.Errorf("%s before the last list: got NXDOMAIN, want SERVFAIL or records", q.name)
					}
				}
			})
		}
		relist(ix, cluster.Slices, []cluster.Object{slice("shop", "db", "db", "", "db-0=10.0.0.1")})
		readers.Wait()
	}
}
