package kubernetes

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/seamark/seamark/cluster"
)

// randomExternalObject returns a random object of a small cluster.
func randomExternalObject(r *rand.Rand) (cluster.Kind, cluster.Object) {
	ns, name := fmt.Sprintf("ns%d", r.IntN(2)), fmt.Sprintf("s%d", r.IntN(3))
	switch r.IntN(6) {
	case 0:
		return cluster.Namespaces, namespaceObject(ns)
	case 1:
		ip := fmt.Sprintf("10.0.0.%d", r.IntN(4))
		return cluster.Slices, slice(ns, name+"-1", name, "http 80/tcp", []string{ip, "ep=" + ip}[r.IntN(2)])
	}
	s := clusterIP(ns, name, []string{"http 80/tcp", "http 80/tcp, dns 53/udp"}[r.IntN(2)], "10.96.0.1")
	if r.IntN(3) == 0 {
		s = headless(ns, name)
	}
	var at []string
	for range r.IntN(3) {
		at = append(at, []string{"192.0.2.1", "192.0.2.2", "2001:db8::1", "lb.example.org"}[r.IntN(4)])
	}
	if len(at) > 0 {
		withExternal(s, at...)
	}
	return cluster.Services, s
}

// After any changes the answers and the serial are equal to the results of a new index
// of the same objects.
func TestExternalRandomChanges(t *testing.T) {
	var names []string
	for _, ns := range []string{"ns0", "ns1"} {
		names = append(names, ns)
		for _, s := range []string{"s0", "s1", "s2"} {
			for _, front := range []string{"", "_http._tcp.", "_tcp.", "_dns._udp.", "ep.", "10-0-0-1."} {
				names = append(names, front+s+"."+ns)
			}
		}
	}
	for i := range names {
		names[i] += ".example.org."
	}
	names = append(names, "1.2.0.192.in-addr.arpa.", "2.2.0.192.in-addr.arpa.", "2.0.192.in-addr.arpa.", "8.b.d.0.1.0.0.2.ip6.arpa.")
	zones := []string{"example.org.", "in-addr.arpa.", "ip6.arpa."}
	for seed := range uint64(4) {
		r := rand.New(rand.NewPCG(seed, 11))
		now := map[cluster.Kind]map[cluster.Key]cluster.Object{cluster.Namespaces: {}, cluster.Services: {}, cluster.Slices: {}}
		s, ix := startExternal(t, zones, seed%2 == 0, false)
		for range 30 {
			for range 1 + r.IntN(4) {
				kind, o := randomExternalObject(r)
				if r.IntN(4) == 0 {
					delete(now[kind], o.Key())
					ix.Delete(kind, o.Key())
					continue
				}
				now[kind][o.Key()] = o
				ix.Put(kind, o)
			}
			var all []cluster.Object
			for kind, of := range now {
				list := slices.Collect(maps.Values(of))
				if r.IntN(10) == 0 {
					relist(ix, kind, list)
				}
				all = append(all, list...)
			}
			anew, fresh := startExternal(t, zones, seed%2 == 0, false, all...)
			if a, b := ix.Serial(false), fresh.Serial(false); a != b {
				t.Fatalf("seed %d: serial %d, want %d", seed, a, b)
			}
			for _, name := range names {
				for _, qtype := range []string{"A", "AAAA", "SRV", "PTR"} {
					got, want := s.ask(t, name, qtype), anew.ask(t, name, qtype)
					if digest(got) != digest(want) {
						t.Fatalf("seed %d: %s %s\ngot:\n%swant:\n%s", seed, name, qtype, digest(got), digest(want))
					}
				}
			}
		}
	}
}
