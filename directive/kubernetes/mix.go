package kubernetes

import (
	"net/netip"
	"slices"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/wire"
)

// mix makes of slices what they mean together.
func (e *entry) mix(ix *Index, slices []part) {
	e.mixed = &mixture{slices: slices}
	if !e.known() || e.alias {
		return
	}
	var ips []netip.Addr
	for _, g := range e.targets(ix, slices) {
		p := ix.pack(&e.facts, raw{of: g.of, endpoints: cluster.Endpoints(g.packed)}, false)
		e.parts = append(e.parts, p)
		e.mixed.labels = append(e.mixed.labels, g.labels)
		for ep := range p.endpoints().All() {
			ips = append(ips, ep.Addr)
		}
	}
	if e.headless {
		e.setAddresses(ips, ix.set.ttl)
	}
	e.mixed.shared = len(unique(ips)) < len(ips)
}

// A target is one endpoint under construction: the addresses behind one label.
type target struct {
	eps []cluster.Endpoint
	has map[netip.Addr]struct{} // the addresses of eps, if they are many
	of  *portSet
}

// targets gathers the endpoints of slices that count: each address once for its
// label, each port once. They come in the order of the slices, and those with
// equal ports in one group.
func (f *facts) targets(ix *Index, slices []part) []group {
	known := map[identity]*target{}
	var all []*target
	unions := unions{sets: &ix.portSets}
	for i := range slices {
		p := &slices[i]
		if !p.of.dotted {
			continue
		}
		for ep := range p.endpoints().All() {
			if !f.counts(&ep) {
				continue
			}
			ep.Ready = true
			if len(ep.Hostname) > wire.MaxLabel {
				ep.Hostname = "" // no API server lets it pass
			}
			id := identify(p.of.cluster, ep)
			t := known[id]
			if t == nil {
				t = &target{of: p.of}
				all = append(all, t)
				known[id] = t
			}
			t.add(ep)
			t.of = unions.of(t.of, p.of)
		}
	}
	return grouped(all)
}

// maxUnion is how many ports the unions of a Service's port sets may have in all.
// Slices that share an endpoint have few ports as a rule. Without a limit a tenant
// could have each of thousands of endpoints hold the ports of all slices.
const maxUnion = 1 << 16

// unions makes port sets that have the ports of two others.
type unions struct {
	sets  *portSets
	known map[[2]*portSet]*portSet
	ports int // of all that have been made
}

// of returns the ports of a and those of b, which is in the same cluster. If the
// Service has too many ports it returns a.
func (u *unions) of(a, b *portSet) *portSet {
	if a == b {
		return a
	}
	if of := u.known[[2]*portSet{a, b}]; of != nil {
		return of
	}
	if u.known == nil {
		u.known = map[[2]*portSet]*portSet{}
	}
	both := a
	if !a.equal(b) && u.ports+len(a.ports)+len(b.ports) <= maxUnion {
		seen := make(map[cluster.Port]struct{}, len(a.ports)+len(b.ports))
		var ports []cluster.Port
		for _, list := range [2][]cluster.Port{a.ports, b.ports} {
			for _, p := range list {
				if _, duplicate := seen[p]; !duplicate {
					seen[p] = struct{}{}
					ports = append(ports, p)
				}
			}
		}
		both = u.sets.get(a.cluster, ports)
		u.ports += len(ports)
	}
	u.known[[2]*portSet{a, b}] = both
	return both
}

// An identity stands for the label of an endpoint, without building it: the
// hostname, or the address that the label is made of.
type identity struct {
	cluster, hostname string
	addr              netip.Addr
}

func identify(id string, ep cluster.Endpoint) identity {
	if ep.Hostname == "" {
		return identity{id, "", ep.Addr}
	}
	// A hostname may read like the address of another endpoint.
	if ip, ok := labelled([]byte(ep.Hostname)); ok {
		return identity{id, "", ip}
	}
	return identity{cluster: id, hostname: ep.Hostname}
}

func (t *target) add(ep cluster.Endpoint) {
	if len(t.eps) > 0 && t.eps[0].Hostname != ep.Hostname {
		// The hostname of one is the address of the other, which has none.
		if t.eps[0].Hostname == "" {
			for i := range t.eps {
				t.eps[i].Hostname = ep.Hostname
			}
		}
		ep.Hostname = t.eps[0].Hostname
	}
	if !t.holds(ep.Addr) {
		t.eps = append(t.eps, ep)
	}
}

// holds says whether the address is there, and notes it. A hostname may have
// thousands.
func (t *target) holds(ip netip.Addr) bool {
	if len(t.eps) < 32 {
		return slices.ContainsFunc(t.eps, func(o cluster.Endpoint) bool { return o.Addr == ip })
	}
	if t.has == nil {
		t.has = map[netip.Addr]struct{}{}
		for _, o := range t.eps {
			t.has[o.Addr] = struct{}{}
		}
	}
	_, ok := t.has[ip]
	t.has[ip] = struct{}{}
	return ok
}

// A group is the targets with equal ports: their endpoints, packed.
type group struct {
	of     *portSet
	packed []byte
	labels uint32 // different labels
}

// grouped groups targets by their ports.
func grouped(all []*target) (groups []group) {
	known := map[*portSet]int{}
	for _, t := range all {
		i, ok := known[t.of]
		if !ok {
			i = len(groups)
			known[t.of] = i
			groups = append(groups, group{of: t.of})
		}
		groups[i].labels++
		for _, ep := range t.eps {
			groups[i].packed = cluster.AppendEndpoint(groups[i].packed, ep)
		}
	}
	return groups
}
