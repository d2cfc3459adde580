package index

import (
	"github.com/seamark/seamark/cluster"
)

// An endpointRef is an endpoint and the ports of its slice.
type endpointRef struct {
	ports *PortSet
	ep    cluster.Endpoint
}

// An endpointDiff has the endpoints by which two states of a Service's slices differ. An
// endpoint that becomes ready is both removed and added.
type endpointDiff struct{ removed, added []endpointRef }

// amendEntry makes the entry of a Service after a change of some of its slices, from
// the old entry and the endpoints that differ. The result equals buildEntry's, but
// the cost depends on the changed slices alone. It returns nil, and the entry has to
// be built, if endpoints share an address or hostname, or if the spec has changed.
func (ix *Index) amendEntry(old *Entry, spec *Spec, all []pendingPart, partChanges []partChange) *Entry {
	x := ix.settings.External
	switch {
	case old == nil || old.Merged() != nil || !old.exists || old.ExternalName || !old.Equal(spec):
		return nil
	case x.Enabled && x.Headless && old.Headless: // the outside records depend on all endpoints
		return nil
	}
	diff := &ix.diff
	for _, c := range partChanges {
		if c.now != nil && (!c.now.ports.dotted || c.now.endpoints.HasNames()) {
			return nil
		}
		diff.addChange(c)
	}
	if !spec.stillDisjoint(all, diff.added, &ix.addrSet) {
		return nil
	}
	e := &Entry{Key: old.Key, Spec: old.Spec, k8sExternal: old.k8sExternal}
	if old.Headless {
		e.Records, e.aEnd = "", 0
	}
	if len(all) > 0 {
		e.Parts = make([]Part, len(all))
	}
	for i, r := range all {
		if r.unchanged != nil {
			e.Parts[i] = *r.unchanged
		} else {
			e.Parts[i] = ix.packPart(spec, r, spec.Headless)
		}
	}
	e.table = old.table.amended(e, ix.tableFrom, diff)
	e.derive(ix.settings, spec.Headless)
	if !e.exists {
		return nil
	}
	e.hash = old.hash
	h := fnv(fnvBasis, e.Key.Labels)
	for i := range diff.removed {
		if ref := &diff.removed[i]; spec.IsServed(&ref.ep) {
			e.hash -= hashEndpoint(h, ref.ports, &ref.ep)
		}
	}
	for i := range diff.added {
		if ref := &diff.added[i]; spec.IsServed(&ref.ep) {
			e.hash += hashEndpoint(h, ref.ports, &ref.ep)
		}
	}
	return e
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
	if c.old != nil && c.now != nil && c.old.Ports.equal(c.now.ports) {
		before, after = skipCommonPrefix(before, after)
	}
	removed, added := len(d.removed), len(d.added)
	for ep := range before.All() {
		d.removed = append(d.removed, endpointRef{c.old.Ports, ep})
	}
	for ep := range after.All() {
		d.added = append(d.added, endpointRef{c.now.ports, ep})
	}
	if c.old == nil || c.now == nil || !c.old.Ports.equal(c.now.ports) {
		return
	}
	for len(d.removed) > removed && len(d.added) > added && d.removed[len(d.removed)-1].ep == d.added[len(d.added)-1].ep {
		d.removed, d.added = d.removed[:len(d.removed)-1], d.added[:len(d.added)-1]
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

// stillDisjoint reports whether the endpoints of all slices share no address or
// hostname. Without the added ones they share none.
func (s *Spec) stillDisjoint(all []pendingPart, added []endpointRef, seen *addrSet) bool {
	if len(added) == 0 {
		return true
	}
	seen.reset(len(added))
	want := 0 // number of occurrences if each is unique
	for i := range added {
		ep := &added[i].ep
		if isAmbiguous(ep) || s.Has(ep.Addr) || !seen.add(ep) {
			return false
		}
		want++
		if ep.Hostname != "" {
			want++
		}
	}
	for i := range all {
		if all[i].unchanged != nil && !seen.mayOverlap(string(all[i].endpoints)) {
			continue
		}
		for ep := range all[i].endpoints.All() {
			if seen.addrs.has(ep.Addr) {
				want--
			}
			if ep.Hostname != "" && seen.hosts.has(ep.Hostname) {
				want--
			}
		}
	}
	return want == 0
}
