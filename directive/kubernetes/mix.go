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
	groups, endpoints := e.targets(slices)
	var ips []netip.Addr
	for i, g := range groups {
		e.parts = append(e.parts, ix.pack(&e.facts, raw{of: ix.kins.get(g.cluster, g.ports), endpoints: endpoints[i]}, false))
		for ep := range endpoints[i].All() {
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
	cluster string
	eps     []cluster.Endpoint
	has     map[netip.Addr]struct{} // the addresses of eps, if they are many
	ports   []cluster.Port
}

// targets gathers the endpoints of slices that count: each address once for its
// label, each port once. They come in the order of the slices.
func (f *facts) targets(slices []part) ([]kin, []cluster.Endpoints) {
	known := map[identity]*target{}
	var all []*target
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
				t = &target{cluster: p.of.cluster, ports: p.of.ports}
				all = append(all, t)
				known[id] = t
			}
			t.add(ep, p.of.ports)
		}
	}
	return grouped(all)
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

func (t *target) add(ep cluster.Endpoint, ports []cluster.Port) {
	if len(t.eps) > 0 && t.eps[0].Hostname != ep.Hostname {
		// The hostname of one is the address of the other, which has none.
		ep.Hostname += t.eps[0].Hostname
		for i := range t.eps {
			t.eps[i].Hostname = ep.Hostname
		}
	}
	if !t.holds(ep.Addr) {
		t.eps = append(t.eps, ep)
	}
	if slices.Equal(t.ports, ports) {
		return
	}
	t.ports = slices.Clone(t.ports)
	for _, p := range ports {
		if !slices.Contains(t.ports, p) {
			t.ports = append(t.ports, p)
		}
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

// grouped packs targets with equal ports together.
func grouped(all []*target) (groups []kin, endpoints []cluster.Endpoints) {
	var packed [][]byte
	for _, t := range all {
		i := slices.IndexFunc(groups, func(k kin) bool { return k.cluster == t.cluster && slices.Equal(k.ports, t.ports) })
		if i < 0 {
			i = len(groups)
			groups = append(groups, kin{cluster: t.cluster, ports: t.ports})
			packed = append(packed, nil)
		}
		for _, ep := range t.eps {
			packed[i] = cluster.AppendEndpoint(packed[i], ep)
		}
	}
	for _, p := range packed {
		endpoints = append(endpoints, cluster.Endpoints(p))
	}
	return groups, endpoints
}
