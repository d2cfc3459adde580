package kubernetes

import (
	"cmp"
	"slices"
	"strings"

	"github.com/seamark/seamark/cluster"
)

// A portSet holds the ports of a Service or of an EndpointSlice, and the ID of the
// cluster that the endpoints are in. Equal sets share memory: a cluster has few
// different ones. It is immutable. A tenant may list 20,000 ports, so an answer
// never scans them.
type portSet struct {
	cluster string // "" is this cluster
	ports   []cluster.Port
	numbers []uint16    // of ports, each once
	named   []namedPort // the named ports, by protocol and name
	dotted  bool        // the cluster's ID can stand in a name, or is ""
	hash    uint32      // of the cluster and the ports
}

// A namedPort has the numbers of the ports with one name and protocol. The API
// allows one number; slices that share an endpoint may disagree.
type namedPort struct {
	protocol, name string
	numbers        []uint16
}

func newPortSet(id string, ports []cluster.Port, hash uint32) *portSet {
	p := &portSet{cluster: id, ports: slices.Clone(ports), dotted: id == "" || isDotted(id), hash: hash}
	all := make([]uint16, len(ports))
	for i, port := range ports {
		all[i] = port.Port
	}
	p.numbers = unique(all)
	byName := slices.DeleteFunc(slices.Clone(ports), func(port cluster.Port) bool { return port.Name == "" })
	slices.SortStableFunc(byName, func(a, b cluster.Port) int {
		return cmp.Or(strings.Compare(a.Protocol, b.Protocol), strings.Compare(a.Name, b.Name))
	})
	for i, port := range byName {
		all[i] = port.Port
	}
	for len(byName) > 0 {
		first := byName[0]
		n := slices.IndexFunc(byName, func(o cluster.Port) bool { return o.Protocol != first.Protocol || o.Name != first.Name })
		if n < 0 {
			n = len(byName)
		}
		p.named = append(p.named, namedPort{first.Protocol, first.Name, unique(all[:n:n])})
		byName, all = byName[n:], all[n:]
	}
	return p
}

func (p *portSet) equal(o *portSet) bool {
	return p == o || p.hash == o.hash && p.cluster == o.cluster && slices.Equal(p.ports, o.ports)
}

// portless is the port of a SRV record that names none.
var portless = []uint16{0}

// selected returns the numbers of the ports that sel selects, each once. A port
// without a name has no name of its own in DNS. A nil set has no ports.
func (p *portSet) selected(sel *selection) []uint16 {
	switch {
	case sel.portless:
		return portless
	case p == nil:
		return nil
	case sel.protocol == nil:
		return p.numbers
	case sel.port == nil:
		return nil // the name between a port's and the Service's has no records
	}
	if i := p.search(sel); i < len(p.named) && p.named[i].protocol == string(sel.protocol) && p.named[i].name == string(sel.port) {
		return p.named[i].numbers
	}
	return nil
}

// has reports whether sel selects any port.
func (p *portSet) has(sel *selection) bool {
	if sel.protocol != nil && sel.port == nil && !sel.portless && p != nil {
		i := p.search(sel)
		return i < len(p.named) && p.named[i].protocol == string(sel.protocol)
	}
	return len(p.selected(sel)) > 0
}

// search returns the index of the first named port that is not before sel's.
func (p *portSet) search(sel *selection) int {
	from, to := 0, len(p.named)
	for from < to {
		i := int(uint(from+to) / 2)
		if n := &p.named[i]; n.protocol < string(sel.protocol) || n.protocol == string(sel.protocol) && n.name < string(sel.port) {
			from = i + 1
		} else {
			to = i
		}
	}
	return from
}

// portSets are the port sets in use, and some that were. The zero value is empty.
type portSets struct {
	known map[string]*portSet // by cluster and ports
	buf   []byte              // of a key
	kept  int                 // how many the last sweep kept
}

// get returns the port set with this content. The caller keeps the strings; the
// slice is copied.
func (ps *portSets) get(id string, ports []cluster.Port) *portSet {
	buf := append(append(ps.buf[:0], id...), 0)
	for _, p := range ports {
		buf = append(append(append(append(buf, p.Name...), '/'), p.Protocol...), '/', byte(p.Port>>8), byte(p.Port))
	}
	ps.buf = buf[:0]
	if cap(buf) > 1<<16 {
		ps.buf = nil
	}
	if p := ps.known[string(buf)]; p != nil {
		return p
	}
	p := newPortSet(id, ports, fnv(fnvBasis, string(buf)))
	if ps.known == nil {
		ps.known = map[string]*portSet{}
	}
	ps.known[string(buf)] = p
	return p
}

// sweep drops the port sets that no entry uses, once they are the majority.
func (ix *Index) sweepPortSets() {
	if len(ix.portSets.known) <= 2*ix.portSets.kept+64 {
		return
	}
	used := map[*portSet]struct{}{}
	for _, imported := range [2]bool{false, true} {
		for _, e := range ix.table(imported).All() {
			for _, p := range e.usedPortSets() {
				used[p] = struct{}{}
			}
		}
	}
	known := make(map[string]*portSet, len(used))
	for key, p := range ix.portSets.known {
		if _, ok := used[p]; ok {
			known[key] = p
		}
	}
	ix.portSets.known, ix.portSets.kept = known, len(known)
}

// FNV-1a (RFC 9923), 32 bits.
const (
	fnvBasis = 2166136261
	fnvPrime = 16777619
)
