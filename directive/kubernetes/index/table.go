package index

import (
	"iter"
	"net/netip"

	"github.com/seamark/seamark/cluster"
)

// largeService is the smallest number of endpoints of a Service with a table. A scan of fewer
// endpoints costs less than the table's memory.
const largeService = 256

// An endpointTable finds endpoints in the parts of an entry without going through all of
// them: a tenant may write a hundred thousand into one EndpointSlice. It has an index for each
// way to select endpoints, which is empty if the entry does not need it. It is immutable.
type endpointTable struct {
	merged  *MergedParts // nil if the parts are the slices as they are
	buckets buckets      // by label, unless the parts are merged
	runs    runs         // by label, if the parts are merged
	zones   zoneIndex    // by topology zone
	ports   portIndex    // by the name of a port
}

// newTable returns the table of an entry's parts; nil if it needs none. It has indexes if
// there are at least as many endpoints as from.
func (e *Entry) newTable(from int, merged *MergedParts) *endpointTable {
	limit := 0
	for i := range e.Parts {
		limit += len(e.Parts[i].Endpoints()) / 5 // an endpoint has at least five bytes
	}
	switch {
	case limit < from && merged == nil:
		return nil
	case limit < from:
		return &endpointTable{merged: merged}
	}

	t := &endpointTable{merged: merged, zones: indexZones(e), ports: indexPorts(e.Parts)}
	if merged != nil {
		t.runs = indexRuns(e.Parts)
	} else {
		t.buckets = newBuckets(e)
	}
	return t
}

// changed returns the table of e, which differs by diff from the entry that t is the table
// of. Neither has merged parts.
func (t *endpointTable) changed(e *Entry, from int, diff *endpointDiff) *endpointTable {
	if t == nil || t.buckets.shared == nil {
		return e.newTable(from, nil)
	}
	next, ok := t.buckets.changed(e, diff)
	if !ok || next.size < from {
		return e.newTable(from, nil)
	}

	table := &endpointTable{buckets: next, ports: indexPorts(e.Parts)}
	if t.zones != nil || diff.addsZone() {
		table.zones = indexZones(e)
	}
	return table
}

// find returns parts with all endpoints that sel selects among parts, the parts of
// the entry. oneFamily reports whether the endpoints of each returned part have one
// family.
func (t *endpointTable) find(sel *Selection, parts []Part) (found []Part, oneFamily bool) {
	switch {
	case sel.Zone != nil && t.hasZones():
		return t.zones[string(sel.Zone)].endpoints, true
	case sel.Label == nil || sel.AnyForm:
		return parts, false
	case t.runs.byLabel != nil:
		return t.runs.find(sel), true
	case t.buckets.shared != nil:
		return t.buckets.find(sel), false
	}
	return parts, false
}

// hasZones reports whether zones has the zones of all endpoints. Small tables have no indexes.
func (t *endpointTable) hasZones() bool {
	return t != nil && (t.runs.byLabel != nil || t.buckets.shared != nil)
}

// PartsAt returns parts that have all endpoints with an address.
func (e *Entry) PartsAt(ip netip.Addr) []Part {
	switch t := e.table; {
	case t != nil && t.runs.byAddr != nil:
		return t.runs.byAddr[ip]
	case t != nil && t.buckets.shared != nil:
		return *t.buckets.shared[t.buckets.ofAddr(ip)]
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

// partGroups are parts under construction: endpoints by their ports.
type partGroups []partGroup

type partGroup struct {
	ports     *PortSet
	endpoints []byte
	n         uint32
}

func (gs *partGroups) add(ports *PortSet, ep cluster.Endpoint) {
	for i := len(*gs) - 1; i >= 0; i-- { // most have the ports of the one before
		if g := &(*gs)[i]; g.ports == ports {
			g.endpoints = cluster.AppendEndpoint(g.endpoints, ep)
			g.n++
			return
		}
	}
	*gs = append(*gs, partGroup{ports, cluster.AppendEndpoint(nil, ep), 1})
}

func (gs partGroups) parts() []Part {
	parts := make([]Part, 0, len(gs))
	for _, g := range gs {
		if g.n > 0 {
			parts = append(parts, newRun(g.ports, cluster.Endpoints(g.endpoints), g.n))
		}
	}
	return parts
}
