package kubernetes

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/test/race"
	"github.com/seamark/seamark/wire"
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

// randomExternalNames are the names that random objects may have.
func randomExternalNames() (names []string) {
	for _, ns := range []string{"ns0", "ns1"} {
		names = append(names, ns+".example.org.")
		for _, s := range []string{"s0", "s1", "s2"} {
			for _, front := range []string{"", "_http._tcp.", "_tcp.", "_dns._udp.", "ep.", "10-0-0-1."} {
				names = append(names, front+s+"."+ns+".example.org.")
			}
		}
	}
	return append(names, "1.2.0.192.in-addr.arpa.", "2.2.0.192.in-addr.arpa.", "2.0.192.in-addr.arpa.", "8.b.d.0.1.0.0.2.ip6.arpa.")
}

// After any changes the answers and the serial are equal to the results of a new index
// of the same objects.
func TestExternalRandomChanges(t *testing.T) {
	names := randomExternalNames()
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

// Copies of random zones, which follow by differences, have the records that a transfer of the whole zone has,
// and these are the records that are answered.
func TestExternalLiveRandomChanges(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	for seed := range race.Fewer(uint64(16)) {
		if err := checkExternalLive(t, seed); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

func checkExternalLive(t *testing.T, seed uint64) error {
	r := rand.New(rand.NewPCG(seed, 12))
	ix := newExternalIndex(seed%2 == 0)
	load(ix, namespaceObject("dns"), // a Service with the name of the name server, and one beside it
		withExternal(clusterIP("dns", "ns1", "http 80/tcp", "10.96.0.6"), "192.0.2.1"),
		withExternal(clusterIP("dns", "ns2", "http 80/tcp", "10.96.0.7"), "192.0.2.2"))
	e := newExternal(t, []string{"example.org.", "in-addr.arpa.", "ip6.arpa."}, seed%2 == 0, false, ix)
	e.handler.local = []netip.Addr{netip.MustParseAddr("10.0.0.1")} // an endpoint of random Services
	l := serveLive(t, &e.handler, time.Now)
	s := serveHandler(t, e)
	cut := func() {
		l.index.Lock()
		defer l.index.Unlock()
		l.newVersions()
	}

	cut()
	names, replicas := map[wire.Name][]string{}, map[wire.Name]*zoneReplica{}
	for _, z := range e.handler.zones {
		replicas[z.name] = &zoneReplica{origin: z.name}
		if err := replicas[z.name].transfer(e.Version(z.name)); err != nil {
			return err
		}
		for _, name := range append(randomExternalNames(), "ns1.dns.example.org.", "_http._tcp.ns1.dns.example.org.", "ns2.dns.example.org.") {
			if n, err := wire.ParseName(name); err == nil && n.Within(z.name) {
				names[z.name] = append(names[z.name], name)
			}
		}
	}

	for change := range 60 {
		for range 1 + r.IntN(4) {
			if kind, o := randomExternalObject(r); r.IntN(4) == 0 {
				ix.Delete(kind, o.Key())
			} else {
				ix.Put(kind, o)
			}
		}
		cut()
		for _, z := range e.handler.zones {
			whole, v := &zoneReplica{origin: z.name}, e.Version(z.name)
			if err := cmp.Or(replicas[z.name].update(v), whole.transfer(v)); err != nil {
				return fmt.Errorf("change %d: %s: %w", change, z.name, err)
			}
			if err := replicas[z.name].equal(whole); err != nil {
				return fmt.Errorf("change %d: %w", change, err)
			}
			if err := whole.compare(t, s, names[z.name]); err != nil {
				return fmt.Errorf("change %d: %w", change, err)
			}
		}
	}
	return nil
}
