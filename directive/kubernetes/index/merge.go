package index

import (
	"net/netip"
	"slices"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/wire"
)

// mergeParts makes the parts of slices that share addresses or hostnames.
func (e *Entry) mergeParts(ix *Index, slices []Part) {
	merged := &MergedParts{slices: slices}
	e.table = &endpointTable{merged: merged}
	if !e.Known() || e.ExternalName {
		return
	}

	var ips []netip.Addr
	for _, g := range e.mergeEndpoints(ix, slices) {
		pending := pendingPart{ports: g.ports, endpoints: cluster.Endpoints(g.packed)}
		p := ix.packPart(&e.Spec, pending, false)
		e.addRecords(&p, ix.settings.TTL)
		e.Parts = append(e.Parts, p)
		merged.targets = append(merged.targets, newRun(g.ports, cluster.Endpoints(g.targets), g.labels))
		for ep := range p.Endpoints().All() {
			ips = append(ips, ep.Addr)
		}
	}

	if e.Headless {
		e.setAddresses(ips, ix.settings.TTL)
	}
	if e.Headless && len(ips) == 0 { // the endpoints may have names
		merged.alias = e.findAlias(ix, slices)
	}
	merged.SharedAddrs = len(Unique(ips)) < len(ips)
	e.table = e.newTable(ix.settings.TableFrom, merged)
}

// addRecords adds the address records of a headless Service's endpoints to p, each
// address once.
func (e *Entry) addRecords(p *Part, ttl uint32) {
	if !e.Headless {
		return
	}

	var ips []netip.Addr
	for ep := range p.Endpoints().All() {
		ips = append(ips, ep.Addr)
	}
	var spec Spec
	spec.setAddresses(ips, ttl)
	p.aEnd += spec.aEnd
	p.data += spec.Records
}

// A mergedEndpoint collects the addresses of one label.
type mergedEndpoint struct {
	endpoints []cluster.Endpoint
	addrs     map[netip.Addr]int // indexes of the endpoints by address, if they are many
	ports     *PortSet
}

// mergeEndpoints returns the endpoints of slices that are served: each address once
// for its label, each port once. They are in the order of the slices, grouped by their
// ports.
func (s *Spec) mergeEndpoints(ix *Index, slices []Part) []portGroup {
	known := map[endpointID]*mergedEndpoint{}
	var all []*mergedEndpoint
	unions := portUnions{sets: &ix.portSets}

	for i := range slices {
		p := &slices[i]
		if !p.Ports.dotted {
			continue
		}
		for ep := range p.Endpoints().All() {
			if !s.IsServed(&ep) {
				continue
			}
			ep.Ready = true
			if len(ep.Hostname) > wire.MaxLabel {
				ep.Hostname = "" // the API server rejects it
			}

			id := endpointIDOf(p.Ports.Cluster, ep)
			m := known[id]
			if m == nil {
				m = &mergedEndpoint{ports: p.Ports}
				all = append(all, m)
				known[id] = m
			}
			m.add(ep)
			m.ports = unions.union(m.ports, p.Ports)
		}
	}
	return groupByPorts(all)
}

// maxUnion limits the total number of ports in the unions of a Service's port sets. As a
// rule slices that share an endpoint have few ports. Without a limit a tenant could
// give thousands of endpoints the ports of all slices.
const maxUnion = 1 << 16

// portUnions makes the unions of port sets.
type portUnions struct {
	sets  *portSets
	known map[[2]*PortSet]*PortSet
	ports int // in all unions
}

// union returns the ports of a and of b, which are in the same cluster. It returns a if
// the Service has too many ports.
func (u *portUnions) union(a, b *PortSet) *PortSet {
	if a == b {
		return a
	}
	if both := u.known[[2]*PortSet{a, b}]; both != nil {
		return both
	}
	if u.known == nil {
		u.known = map[[2]*PortSet]*PortSet{}
	}

	both := a
	if !a.equal(b) && u.ports+len(a.Ports)+len(b.Ports) <= maxUnion {
		ports := Unique(slices.Concat(a.Ports, b.Ports))
		both = u.sets.get(a.Cluster, ports)
		u.ports += len(ports)
	}
	u.known[[2]*PortSet{a, b}] = both
	return both
}

// An endpointID identifies the label of an endpoint: its hostname, or else its address.
type endpointID struct {
	cluster, hostname string
	addr              netip.Addr
}

func endpointIDOf(id string, ep cluster.Endpoint) endpointID {
	if ep.Hostname == "" {
		return endpointID{id, "", ep.Addr}
	}
	// A hostname may equal the label of another endpoint's address.
	if ip, ok := AddrOfLabel([]byte(ep.Hostname)); ok {
		return endpointID{id, "", ip}
	}
	return endpointID{cluster: id, hostname: ep.Hostname}
}

func (m *mergedEndpoint) add(ep cluster.Endpoint) {
	if len(m.endpoints) > 0 && m.endpoints[0].Hostname != ep.Hostname {
		// One has the hostname that is the label of the other's address.
		if m.endpoints[0].Hostname == "" {
			for i := range m.endpoints {
				m.endpoints[i].Hostname = ep.Hostname
			}
		}
		ep.Hostname = m.endpoints[0].Hostname
	}

	if i, ok := m.find(ep.Addr); ok {
		m.endpoints[i].Target = m.endpoints[i].Target || ep.Target
		return
	}

	if m.addrs != nil {
		m.addrs[ep.Addr] = len(m.endpoints)
	}
	m.endpoints = append(m.endpoints, ep)
}

// find returns the index of the endpoint with an address. A hostname may have thousands.
func (m *mergedEndpoint) find(ip netip.Addr) (i int, ok bool) {
	if len(m.endpoints) < 32 {
		i = slices.IndexFunc(m.endpoints, func(o cluster.Endpoint) bool { return o.Addr == ip })
		return i, i >= 0
	}

	if m.addrs == nil {
		m.addrs = map[netip.Addr]int{}
		for i, o := range m.endpoints {
			m.addrs[o.Addr] = i
		}
	}
	i, ok = m.addrs[ip]
	return i, ok
}

// A portGroup collects endpoints with equal ports.
type portGroup struct {
	ports   *PortSet
	packed  []byte
	targets []byte // the first endpoint of each label
	labels  uint32 // number of different labels
}

// groupByPorts groups endpoints by their ports.
func groupByPorts(all []*mergedEndpoint) (groups []portGroup) {
	known := map[*PortSet]int{}
	for _, m := range all {
		byFamily := func(a, b cluster.Endpoint) int { return a.Addr.BitLen() - b.Addr.BitLen() }
		slices.SortStableFunc(m.endpoints, byFamily)

		i, ok := known[m.ports]
		if !ok {
			i = len(groups)
			known[m.ports] = i
			groups = append(groups, portGroup{ports: m.ports})
		}

		groups[i].labels++
		groups[i].targets = cluster.AppendEndpoint(groups[i].targets, m.endpoints[0])
		for _, ep := range m.endpoints {
			groups[i].packed = cluster.AppendEndpoint(groups[i].packed, ep)
		}
	}
	return groups
}
