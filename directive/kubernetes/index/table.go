package index

import (
	"hash/maphash"
	"iter"
	"net/netip"
	"slices"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/wire"
)

const (
	// largeService is the smallest number of endpoints of a Service with a table
	// that finds them. A scan of fewer endpoints costs less than the table's
	// memory.
	largeService = 256
	// shardSize is how many endpoints a shard has on average.
	shardSize = 32
)

// An endpointTable finds endpoints in the parts of an entry without going through
// all of them: a tenant may write a hundred thousand into one EndpointSlice. It is
// immutable.
type endpointTable struct {
	merged *MergedParts // nil if the parts are the slices as they are

	// The endpoints that are served, by their hostnames and by their addresses. An
	// event replaces a few shards. Nil if the parts are merged, or if they are few.
	shards []*[]Part
	seed   maphash.Seed
	size   int // endpoints in the shards

	// The same for merged parts: endpoints that share a label or an address may be
	// many, so each run of them has its own entry. These are made anew by each event.
	byLabel map[endpointID][]Part
	byAddr  map[netip.Addr][]Part

	// byZone has the endpoints by the labels of their topology zone. A name
	// between such a name and the Service's has an empty value.
	byZone map[string]zoneParts

	// byPort has the numbers of the parts that have a port of some name and protocol,
	// or with an empty name of some protocol. Nil if the parts have few port sets.
	byPort map[portKey][]uint32
}

// zoneParts are the endpoints of one topology zone.
type zoneParts struct {
	endpoints []Part // each part has endpoints of one family
	targets   []Part // one endpoint for each label
}

type portKey struct{ protocol, name string }

// newTable returns the table of an entry's parts; nil if it needs none. It has the
// endpoints if there are at least as many as from.
func (e *Entry) newTable(from int, merged *MergedParts) *endpointTable {
	n, most := 0, 0
	for i := range e.Parts {
		n += int(e.Parts[i].Served)
		most += len(e.Parts[i].Endpoints()) / 5
	}
	if most < from {
		if merged == nil {
			return nil
		}
		return &endpointTable{merged: merged}
	}
	t := &endpointTable{merged: merged, size: n}
	t.indexPorts(e)
	t.indexZones(e)
	if merged != nil {
		t.indexRuns(e)
		return t
	}
	t.seed = maphash.MakeSeed()
	t.shards = make([]*[]Part, shardCount(n))
	groups := make([]partGroups, len(t.shards))
	for ports, ep := range e.Served() {
		first, second := t.shardsOf(ep)
		groups[first].add(ports, *ep)
		if second != first {
			groups[second].add(ports, *ep)
		}
	}
	for i := range groups {
		t.shards[i] = groups[i].parts()
	}
	return t
}

func shardCount(endpoints int) (n int) {
	for n = 1; n*shardSize < endpoints; {
		n *= 2
	}
	return n
}

// amended returns the table of e, which differs by diff from the entry that t is
// the table of. Neither has merged parts.
func (t *endpointTable) amended(e *Entry, from int, diff *endpointDiff) *endpointTable {
	if t == nil || t.shards == nil {
		return e.newTable(from, nil)
	}
	next := &endpointTable{shards: slices.Clone(t.shards), seed: t.seed, size: t.size}
	next.indexPorts(e)
	changes := map[int]*shardChange{}
	note := func(refs []endpointRef, removed bool) {
		for i := range refs {
			r := &refs[i]
			if !e.IsServed(&r.ep) {
				continue
			}
			first, second := t.shardsOf(&r.ep)
			for n, shard := range [2]int{first, second} {
				if n == 1 && second == first {
					break
				}
				c := changes[shard]
				if c == nil {
					c = new(shardChange)
					changes[shard] = c
				}
				if removed {
					c.removed = append(c.removed, r.ep.Addr)
				} else {
					c.added = append(c.added, r)
				}
			}
			if removed {
				next.size--
			} else {
				next.size++
			}
		}
	}
	note(diff.removed, true)
	note(diff.added, false)
	if n := shardCount(next.size); next.size < from || n > 2*len(t.shards) || 2*n < len(t.shards) {
		return e.newTable(from, nil)
	}
	for i, c := range changes {
		next.shards[i] = c.apply(*t.shards[i])
	}
	if t.byZone != nil || slices.ContainsFunc(diff.added, func(r endpointRef) bool { return r.ep.Zone != "" }) {
		next.indexZones(e)
	}
	return next
}

// A shardChange has the changes of an event in one shard. Addresses are unique in it.
type shardChange struct {
	removed []netip.Addr
	added   []*endpointRef
}

func (c *shardChange) apply(shard []Part) *[]Part {
	groups := make(partGroups, 0, len(shard)+len(c.added))
	for i := range shard {
		groups = append(groups, partGroup{ports: shard[i].Ports, endpoints: make([]byte, 0, len(shard[i].data)+32)})
		for ep := range shard[i].Endpoints().All() {
			if !slices.Contains(c.removed, ep.Addr) {
				groups.add(shard[i].Ports, ep)
			}
		}
	}
	for _, r := range c.added {
		groups.add(r.ports, r.ep)
	}
	return groups.parts()
}

// shardsOf returns the shards that an endpoint is in: by its address, and by its
// hostname if it has one.
func (t *endpointTable) shardsOf(ep *cluster.Endpoint) (byAddr, byHostname int) {
	byAddr = t.shardOfAddr(ep.Addr)
	if ep.Hostname == "" {
		return byAddr, byAddr
	}
	return byAddr, int(maphash.String(t.seed, ep.Hostname) & uint64(len(t.shards)-1))
}

func (t *endpointTable) shardOfAddr(ip netip.Addr) int {
	b := ip.As16()
	return int(maphash.Bytes(t.seed, b[:]) & uint64(len(t.shards)-1))
}

// find returns parts with all endpoints that sel selects among parts, the parts of
// the entry. oneFamily reports whether the endpoints of each returned part have one
// family.
func (t *endpointTable) find(sel *Selection, parts []Part) (found []Part, oneFamily bool) {
	switch {
	case t.byZone != nil && sel.Zone != nil:
		return t.byZone[string(sel.Zone)].endpoints, true
	case sel.Label == nil || sel.AnyForm:
		return parts, false
	case t.byLabel != nil && sel.Addr.IsValid():
		return t.byLabel[endpointID{cluster: string(sel.Cluster), addr: sel.Addr}], true
	case t.byLabel != nil:
		return t.byLabel[endpointID{cluster: string(sel.Cluster), hostname: string(sel.Label)}], true
	case t.shards != nil && sel.Addr.IsValid():
		return *t.shards[t.shardOfAddr(sel.Addr)], false
	case t.shards != nil:
		return *t.shards[maphash.Bytes(t.seed, sel.Label)&uint64(len(t.shards)-1)], false
	}
	return parts, false
}

// PartsAt returns parts that have all endpoints with an address.
func (e *Entry) PartsAt(ip netip.Addr) []Part {
	switch t := e.table; {
	case t != nil && t.byAddr != nil:
		return t.byAddr[ip]
	case t != nil && t.shards != nil:
		return *t.shards[t.shardOfAddr(ip)]
	}
	return e.Parts
}

// EndpointsAt returns the endpoints with an address that answers include. An endpoint is
// valid until the next one.
func (e *Entry) EndpointsAt(ip netip.Addr) iter.Seq[*cluster.Endpoint] {
	return func(yield func(*cluster.Endpoint) bool) {
		parts := e.PartsAt(ip)
		var ep cluster.Endpoint
		for i := range parts {
			for rest := parts[i].Endpoints(); rest != "" && !rest.HasNames(); {
				if rest = rest.Next(&ep); ep.Addr == ip && e.IsServed(&ep) && !yield(&ep) {
					return
				}
			}
		}
	}
}

// indexRuns makes the maps of merged parts. Endpoints with one label are
// consecutive, and among them the endpoints of one family.
func (t *endpointTable) indexRuns(e *Entry) {
	t.byLabel, t.byAddr = map[endpointID][]Part{}, map[netip.Addr][]Part{}
	for i := range e.Parts {
		p := &e.Parts[i]
		cluster := string(AppendDotted(nil, p.Ports.Cluster))
		all := p.Endpoints()
		for rest := all; rest != ""; {
			var first, ep endpointAt
			first.read(rest)
			id := endpointIDOf(cluster, first.Endpoint)
			run, n := rest, uint32(0)
			for ep = first; ; ep.read(rest) {
				if endpointIDOf(cluster, ep.Endpoint) != id || ep.Addr.Is4() != first.Addr.Is4() {
					break
				}
				t.byAddr[ep.Addr] = append(t.byAddr[ep.Addr], newRun(p.Ports, rest[:len(rest)-len(ep.rest)], 1))
				n++
				if rest = ep.rest; rest == "" {
					break
				}
			}
			t.byLabel[id] = append(t.byLabel[id], newRun(p.Ports, run[:len(run)-len(rest)], n))
		}
	}
}

// An endpointAt is the first endpoint of a packed sequence, and the rest of the sequence.
type endpointAt struct {
	cluster.Endpoint
	rest cluster.Endpoints
}

func (e *endpointAt) read(es cluster.Endpoints) { e.rest = es.Next(&e.Endpoint) }

// newRun returns a part without a name and records.
func newRun(ports *PortSet, endpoints cluster.Endpoints, n uint32) Part {
	return Part{Ports: ports, data: string(endpoints), endpointsEnd: uint32(len(endpoints)), aEnd: uint32(len(endpoints)), Served: n}
}

// indexZones makes the map of topology zones, if there are any.
func (t *endpointTable) indexZones(e *Entry) {
	type zone struct{ ipv4, ipv6, targets partGroups }
	zones := map[string]*zone{}
	before := map[string]SRVTarget{}
	for ports, ep := range e.Served() {
		if ep.Zone == "" {
			continue
		}
		z := zones[ep.Zone]
		if z == nil {
			z = new(zone)
			zones[ep.Zone] = z
		}
		if ep.Addr.Is4() {
			z.ipv4.add(ports, *ep)
		} else {
			z.ipv6.add(ports, *ep)
		}
		if target := (SRVTarget{ports, ep.Hostname}); !target.Equals(before[ep.Zone]) {
			z.targets.add(ports, *ep)
			before[ep.Zone] = target
		}
	}
	if len(zones) == 0 {
		return
	}
	t.byZone = map[string]zoneParts{}
	for name, z := range zones {
		labels := string(AppendDotted(nil, name))
		t.byZone[labels] = zoneParts{slices.Concat(*z.ipv4.parts(), *z.ipv6.parts()), *z.targets.parts()}
		for labels = labels[1+labels[0]:]; labels != ""; labels = labels[1+labels[0]:] {
			if _, known := t.byZone[labels]; !known {
				t.byZone[labels] = zoneParts{}
			}
		}
	}
}

// HasZone reports whether a topology zone has these labels, or ends in them.
func (e *Entry) HasZone(labels []byte) bool {
	if e.table != nil && e.table.byZone != nil {
		_, known := e.table.byZone[string(labels)]
		return known
	}
	var all Selection
	for c := e.Endpoints(&all); c.Next(&all); {
		var room [wire.MaxName]byte
		if EndsIn(AppendDotted(room[:0], c.Endpoint.Zone), labels) {
			return true
		}
	}
	return false
}

const (
	// manyPortSets is how many parts may have different ports before these are
	// indexed, and maxIndexedPorts how many ports the index may have.
	manyPortSets    = 16
	maxIndexedPorts = 1 << 16
)

// indexPorts makes the index of ports if there are many different sets.
func (t *endpointTable) indexPorts(e *Entry) {
	if len(e.Parts) < manyPortSets {
		return
	}
	sets, named := map[*PortSet]struct{}{}, 0
	for i := range e.Parts {
		if _, known := sets[e.Parts[i].Ports]; !known {
			sets[e.Parts[i].Ports] = struct{}{}
			named += len(e.Parts[i].Ports.Named)
		}
	}
	if len(sets) < manyPortSets || named > maxIndexedPorts {
		return
	}
	t.byPort = map[portKey][]uint32{}
	for i := range e.Parts {
		protocol := ""
		for _, p := range e.Parts[i].Ports.Named {
			key := portKey{p.Protocol, p.Name}
			t.byPort[key] = append(t.byPort[key], uint32(i))
			if p.Protocol != protocol {
				protocol = p.Protocol
				t.byPort[portKey{protocol, ""}] = append(t.byPort[portKey{protocol, ""}], uint32(i))
			}
		}
	}
}

// numbersOf returns the numbers of the parts that have the ports of sel; nil means
// any part may have them.
func (t *endpointTable) numbersOf(sel *Selection) []uint32 {
	if t.byPort == nil || sel.Protocol == nil || sel.Label != nil || sel.Zone != nil {
		return nil
	}
	if numbers := t.byPort[portKey{string(sel.Protocol), string(sel.Port)}]; numbers != nil {
		return numbers
	}
	return []uint32{}
}

// partGroups are parts under construction: endpoints by their ports.
type partGroups []partGroup

type partGroup struct {
	ports     *PortSet
	endpoints []byte
	n         uint32
}

func (gs *partGroups) add(ports *PortSet, ep cluster.Endpoint) {
	for i := len(*gs) - 1; i >= 0; i-- {
		if g := &(*gs)[i]; g.ports == ports {
			g.endpoints = cluster.AppendEndpoint(g.endpoints, ep)
			g.n++
			return
		}
	}
	*gs = append(*gs, partGroup{ports, cluster.AppendEndpoint(nil, ep), 1})
}

func (gs partGroups) parts() *[]Part {
	parts := make([]Part, 0, len(gs))
	for _, g := range gs {
		if g.n > 0 {
			parts = append(parts, newRun(g.ports, cluster.Endpoints(g.endpoints), g.n))
		}
	}
	return &parts
}
