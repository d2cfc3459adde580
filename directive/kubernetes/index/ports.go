package index

import (
	"cmp"
	"slices"
	"sort"
	"strings"

	"github.com/seamark/seamark/cluster"
)

// A PortSet holds the ports of a Service or of an EndpointSlice, and the ID of the
// cluster that the endpoints are in. Equal sets share memory: a cluster has few
// different ones. It is immutable. A tenant may list 20,000 ports, so an answer
// never scans them.
type PortSet struct {
	Cluster string // "" is this cluster
	Ports   []cluster.Port
	numbers []uint16    // of ports, each once
	Named   []NamedPort // the named ports, by protocol and name
	dotted  bool        // the cluster's ID can stand in a name, or is ""
	hash    uint32      // of the cluster and the ports
}

// A NamedPort has the numbers of the ports with one name and protocol. The API
// allows one number; slices that share an endpoint may disagree.
type NamedPort struct {
	Protocol, Name string
	numbers        []uint16
}

func newPortSet(id string, ports []cluster.Port, hash uint32) *PortSet {
	p := &PortSet{Cluster: id, Ports: slices.Clone(ports), dotted: id == "" || ValidLabels(id), hash: hash}
	all := make([]uint16, len(ports))
	for i, port := range ports {
		all[i] = port.Port
	}
	p.numbers = Unique(all)

	// Stable: the numbers of one name stay in the order of the object.
	byName := slices.DeleteFunc(slices.Clone(ports), func(port cluster.Port) bool { return port.Name == "" })
	slices.SortStableFunc(byName, func(a, b cluster.Port) int {
		return cmp.Or(strings.Compare(a.Protocol, b.Protocol), strings.Compare(a.Name, b.Name))
	})
	for i, port := range byName {
		all[i] = port.Port
	}

	for len(byName) > 0 {
		first, n := byName[0], 1
		for n < len(byName) && byName[n].Protocol == first.Protocol && byName[n].Name == first.Name {
			n++
		}
		p.Named = append(p.Named, NamedPort{first.Protocol, first.Name, Unique(all[:n:n])})
		byName, all = byName[n:], all[n:]
	}
	return p
}

func (p *PortSet) equal(o *PortSet) bool {
	return p == o || p.hash == o.hash && p.Cluster == o.Cluster && slices.Equal(p.Ports, o.Ports)
}

// portless is the port of a SRV record that names none.
var portless = []uint16{0}

// Selected returns the numbers of the ports that sel selects, each once. A port
// without a name has no name of its own in DNS. A nil set has no ports.
func (p *PortSet) Selected(sel *Selection) []uint16 {
	switch {
	case sel.Portless:
		return portless
	case p == nil:
		return nil
	case sel.Protocol == nil:
		return p.numbers
	case sel.Port == nil:
		return nil // the name between a port's and the Service's has no records
	}

	i := p.search(sel)
	if i == len(p.Named) || p.Named[i].Protocol != string(sel.Protocol) || p.Named[i].Name != string(sel.Port) {
		return nil
	}
	return p.Named[i].numbers
}

// Has reports whether sel selects any port.
func (p *PortSet) Has(sel *Selection) bool {
	if sel.Protocol != nil && sel.Port == nil && !sel.Portless && p != nil {
		i := p.search(sel)
		return i < len(p.Named) && p.Named[i].Protocol == string(sel.Protocol)
	}
	return len(p.Selected(sel)) > 0
}

// search returns the index of the first named port that is not before sel's.
func (p *PortSet) search(sel *Selection) int {
	return sort.Search(len(p.Named), func(i int) bool {
		n := &p.Named[i]
		return n.Protocol > string(sel.Protocol) || n.Protocol == string(sel.Protocol) && n.Name >= string(sel.Port)
	})
}

// portSets are the port sets in use, and some that were. The zero value is empty.
type portSets struct {
	known map[string]*PortSet // by cluster and ports
	buf   []byte              // of a key
	kept  int                 // how many the last sweep kept
}

// get returns the port set with this content. The caller keeps the strings; the
// slice is copied.
func (ps *portSets) get(id string, ports []cluster.Port) *PortSet {
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
		ps.known = map[string]*PortSet{}
	}
	ps.known[string(buf)] = p
	return p
}

// sweepPortSets drops the port sets that no entry uses, once they are the majority.
func (ix *Index) sweepPortSets() {
	if len(ix.portSets.known) <= 2*ix.portSets.kept+64 {
		return
	}

	used := map[*PortSet]struct{}{}
	for _, imported := range [2]bool{false, true} {
		for _, e := range ix.table(imported).All() {
			for _, p := range e.UsedPortSets() {
				used[p] = struct{}{}
			}
		}
	}

	known := make(map[string]*PortSet, len(used))
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
