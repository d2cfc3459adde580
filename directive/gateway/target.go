package gateway

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/wire"
)

// A target is where the traffic of a Gateway or an Ingress goes.
type target struct {
	addrs []netip.Addr // each once, in order
	alias wire.Name    // a host name in place of addresses, or ""
	from  string       // whose addresses they are
}

// frontends finds the Services that receive the traffic of Gateways and Ingresses.
type frontends struct {
	all       state
	byGateway map[cluster.Key][]*cluster.Frontend
	byIP      map[netip.Addr][]*cluster.Frontend // by their ClusterIPs
	byAddr    map[netip.Addr][]*cluster.Frontend // by addresses of load balancers
	byHost    map[string][]*cluster.Frontend     // by host names of load balancers
}

// newFrontends indexes Services. Those without a ClusterIP are left out.
func newFrontends(all state) *frontends {
	x := &frontends{
		all, map[cluster.Key][]*cluster.Frontend{}, map[netip.Addr][]*cluster.Frontend{},
		map[netip.Addr][]*cluster.Frontend{}, map[string][]*cluster.Frontend{},
	}
	for f := range each[*cluster.Frontend](all, cluster.Services) {
		for _, addr := range f.ClusterIPs {
			x.byIP[addr] = append(x.byIP[addr], f)
		}
		if len(f.ClusterIPs) == 0 {
			continue
		}
		if f.Gateway != "" {
			gateway := cluster.Key{Namespace: f.Namespace, Name: f.Gateway}
			x.byGateway[gateway] = append(x.byGateway[gateway], f)
		}
		if f.Balancer == nil {
			continue
		}
		for _, addr := range f.Balancer.IPs {
			x.byAddr[addr] = append(x.byAddr[addr], f)
		}
		for _, name := range f.Balancer.Hosts {
			x.byHost[name] = append(x.byHost[name], f)
		}
	}
	return x
}

// best returns one of several Services, or nil without any. One with a port of those that are asked for
// comes before others, which may have a metrics page, or the same load balancer with another port; a label
// before an owner alone; and the oldest of the rest.
func best(all []*cluster.Frontend, ports []int32) (first *cluster.Frontend) {
	rank := func(f *cluster.Frontend) (rank int) {
		if !slices.ContainsFunc(f.Ports, func(p cluster.Port) bool { return slices.Contains(ports, int32(p.Port)) }) {
			rank = 2
		}
		if !f.Labeled {
			rank++
		}
		return rank
	}
	for _, f := range all {
		if first == nil || cmp.Or(cmp.Compare(rank(f), rank(first)), cmp.Compare(f.Created, first.Created),
			f.Key().Compare(first.Key())) < 0 {
			first = f
		}
	}
	return first
}

// ofAddress returns the Service that an address of a status belongs to, or nil: by its ClusterIP, its
// name, or an address of its load balancer.
func (x *frontends) ofAddress(text string, ports []int32) *cluster.Frontend {
	if addr, err := netip.ParseAddr(text); err == nil {
		if own := x.byIP[addr.Unmap()]; len(own) > 0 {
			return best(own, ports)
		}
		return best(x.byAddr[addr.Unmap()], ports)
	}
	name := strings.ToLower(strings.TrimSuffix(text, "."))
	if labels := strings.SplitN(name, ".", 4); len(labels) >= 3 && labels[2] == "svc" {
		return x.withAddress(cluster.Key{Namespace: labels[1], Name: labels[0]})
	}
	return best(x.byHost[name], ports)
}

// withAddress returns a Service if it exists and has a ClusterIP, or nil.
func (x *frontends) withAddress(key cluster.Key) *cluster.Frontend {
	if f := get[*cluster.Frontend](x.all, cluster.Services, key); f != nil && len(f.ClusterIPs) > 0 {
		return f
	}
	return nil
}

// add adds the ClusterIPs of a Service.
func (t *target) add(f *cluster.Frontend) {
	t.addrs = append(t.addrs, f.ClusterIPs...)
	if from := "Service " + f.Key().String(); t.from == "" {
		t.from = from
	} else if !strings.Contains(t.from, from) {
		t.from += ", " + from
	}
}

// addStatus adds an address of a status.
func (t *target) addStatus(text string) {
	if addr, err := netip.ParseAddr(text); err == nil {
		t.addrs = append(t.addrs, addr.Unmap().WithZone(""))
	} else if h, err := parseHost(text); err == nil && !h.wild {
		if t.alias == "" || h.name < t.alias {
			t.alias = h.name
		}
	} else {
		return
	}
	if !strings.HasSuffix(t.from, "the status") {
		t.from = strings.TrimPrefix(t.from+", the status", ", ")
	}
}

// clean brings the addresses in order, each once. A host name is for a target without addresses.
func (t *target) clean() *target {
	slices.SortFunc(t.addrs, netip.Addr.Compare)
	t.addrs = slices.Compact(t.addrs)
	if len(t.addrs) > 0 {
		t.alias = ""
	}
	return t
}

// isEmpty reports whether there is no answer.
func (t *target) isEmpty() bool { return len(t.addrs) == 0 && t.alias == "" }

// includes reports whether all answers of another target are also those of t.
func (t *target) includes(other *target) bool {
	return other == t || t.alias == other.alias &&
		!slices.ContainsFunc(other.addrs, func(a netip.Addr) bool { return !slices.Contains(t.addrs, a) })
}

// with returns a target with the answers of both.
func (t *target) with(other *target) *target {
	if t.includes(other) {
		return t
	}
	both := &target{addrs: slices.Concat(t.addrs, other.addrs), alias: t.alias, from: t.from}
	if both.alias == "" || other.alias != "" && other.alias < both.alias {
		both.alias = other.alias
	}
	switch {
	case both.from == "":
		both.from = other.from
	case other.from != "" && other.from != both.from:
		both.from += ", " + other.from
	}
	return both.clean()
}
