package index

import "github.com/seamark/seamark/cluster"

// An endpointDiff has the endpoints by which two states of a Service's slices differ. An
// endpoint that becomes ready is both removed and added.
type endpointDiff struct{ removed, added []endpointRef }

// An endpointRef is an endpoint and the ports of its slice.
type endpointRef struct {
	ports *PortSet
	ep    cluster.Endpoint
}

// difference returns the endpoints by which an entry with this spec differs from the old
// entry; nil if the new entry cannot be made from them. They are valid until releaseBuffers.
func (ix *Index) difference(old *Entry, spec *Spec, changes []partChange) *endpointDiff {
	if old == nil || !old.exists || old.Merged() != nil || old.ExternalName || !old.Equal(spec) {
		return nil
	}

	for _, c := range changes {
		if c.now != nil && !c.now.hasAddresses() {
			return nil
		}
		ix.diff.addChange(c)
	}
	return &ix.diff
}

// addChange adds the endpoints by which a part differs after a change.
func (d *endpointDiff) addChange(c partChange) {
	var before, after cluster.Endpoints
	if c.old != nil {
		before = c.old.Endpoints()
	}
	if c.now != nil {
		after = c.now.endpoints
	}

	// With other ports every endpoint differs. Otherwise most are the same, in the same order.
	samePorts := c.old != nil && c.now != nil && c.old.Ports.equal(c.now.ports)
	if samePorts {
		before, after = skipCommonPrefix(before, after)
	}

	removed, added := len(d.removed), len(d.added)
	for ep := range before.All() {
		d.removed = append(d.removed, endpointRef{c.old.Ports, ep})
	}
	for ep := range after.All() {
		d.added = append(d.added, endpointRef{c.now.ports, ep})
	}
	if samePorts {
		d.trimCommonSuffix(removed, added)
	}
}

// skipCommonPrefix returns the endpoints after the longest common prefix.
func skipCommonPrefix(a, b cluster.Endpoints) (cluster.Endpoints, cluster.Endpoints) {
	var ep cluster.Endpoint
	for a != "" && b != "" {
		rest := a.Next(&ep)
		n := len(a) - len(rest)
		if len(b) < n || a[:n] != b[:n] {
			break
		}
		a, b = rest, b[n:]
	}
	return a, b
}

// trimCommonSuffix removes the endpoints with which both lists end, down to these lengths.
// They cannot be compared while they are packed, which is read from the start only.
func (d *endpointDiff) trimCommonSuffix(removed, added int) {
	i, j := len(d.removed), len(d.added)
	for i > removed && j > added && d.removed[i-1].ep == d.added[j-1].ep {
		i, j = i-1, j-1
	}
	d.removed, d.added = d.removed[:i], d.added[:j]
}

// reset empties the difference, and drops the memory of a large one.
func (d *endpointDiff) reset() {
	if cap(d.removed)+cap(d.added) > 1<<10 {
		*d = endpointDiff{}
		return
	}
	clear(d.removed[:cap(d.removed)])
	clear(d.added[:cap(d.added)])
	d.removed, d.added = d.removed[:0], d.added[:0]
}

// stillDisjoint is disjoint for slices that are disjoint without the added endpoints. It
// reads only the slices that may have an address or hostname of these.
func (s *Spec) stillDisjoint(all []pendingPart, added []endpointRef, seen *addrSet) bool {
	if len(added) == 0 {
		return true
	}

	// Each address and each hostname of the added endpoints has to occur once in all slices.
	seen.reset(len(added))
	wanted := 0
	for i := range added {
		ep := &added[i].ep
		if isAmbiguous(ep) || s.Has(ep.Addr) || !seen.add(ep) {
			return false
		}
		wanted++
		if ep.Hostname != "" {
			wanted++
		}
	}

	for i := range all {
		if all[i].unchanged != nil && !seen.mayOverlap(string(all[i].endpoints)) {
			continue
		}
		for ep := range all[i].endpoints.All() {
			if seen.addrs.has(ep.Addr) {
				wanted--
			}
			if ep.Hostname != "" && seen.hosts.has(ep.Hostname) {
				wanted--
			}
		}
	}
	return wanted == 0
}
