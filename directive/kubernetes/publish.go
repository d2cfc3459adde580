package kubernetes

import (
	"iter"
	"net/netip"
	"slices"

	"github.com/seamark/seamark/cluster"
)

// A reverseChange is references to be added to a reverse index, and to be removed.
type reverseChange struct{ add, remove []addrRef }

// flush applies the pending changes, one Service after the other. kind is that of the
// objects that have changed. The reverse index follows at the end: until then a
// reverse name leads to the Service as it was, or does not exist.
func (ix *Index) flush(kind cluster.Kind) {
	ix.applyToggled()
	for _, d := range ix.changes.ordered {
		ix.publish(d)
	}
	for _, d := range ix.changes.ordered {
		ix.removeIfEmpty(d.key.namespace)
	}
	ix.changes.reset()
	ix.sweepPortSets()
	if ix.haveListed(kind, kind) || !ix.reverseChange.deferrable(ix.reverseLen) {
		ix.reverseLen += len(ix.reverseChange.add)
		ix.reverse.applyChange(&ix.reverseChange)
	}
	ix.externalReverse.applyChange(&ix.externalChange)
}

// publish replaces the entry of a changed Service.
func (ix *Index) publish(d *serviceChange) {
	all, shifts := ix.mergeSlices(d)
	defer ix.releaseBuffers()
	f := d.spec(ix)
	if len(shifts) == 0 && (d.old == nil && !f.known() || d.old != nil && d.old.equal(&f)) {
		return // as after most lists
	}
	e := ix.amendEntry(d.old, &f, all, shifts)
	amended := e != nil
	if !amended {
		e = ix.buildEntry(d.key, f, all)
	}
	table, before := ix.table(d.imported), uint32(0)
	if d.old != nil {
		before = d.old.hash
	}
	switch {
	case e.known() || len(e.slices()) > 0:
		table.Set(d.key.labels, e)
		d.key.entry.Store(e)
		if d.old == nil {
			d.key.namespace.objects++
		}
	case d.old != nil:
		table.Delete(d.key.labels)
		d.key.entry.Store(nil)
		d.key.namespace.objects--
	}
	ix.addHash(d.key.namespace, d.imported, e.hash-before)
	switch {
	case d.imported || !d.key.namespace.exposed.Load(): // imports have no reverse names
	case amended:
		ix.reverseChange.addAmended(d.key, &ix.diff, &f, &ix.addrSet.addrs)
	default:
		ix.addReverseChanges(d.key, d.old, e)
	}
}

// spec returns the Service's spec after the change.
func (d *serviceChange) spec(ix *Index) serviceSpec {
	switch {
	case d.replaced && d.service != nil:
		return ix.portSets.specOf(d.service, ix.settings.ttl)
	case !d.replaced && d.old != nil:
		return d.old.serviceSpec
	}
	return serviceSpec{}
}

// releaseBuffers clears the buffers after a Service, and drops large ones.
func (ix *Index) releaseBuffers() {
	const plenty = 1 << 8
	if cap(ix.pending) > plenty {
		ix.pending, ix.partChanges = nil, nil
	}
	if cap(ix.buf) > plenty<<8 {
		ix.buf = nil
	}
	clear(ix.pending)
	clear(ix.partChanges)
	ix.diff.reset()
	ix.addrSet.reset(0)
	clear(ix.addrSet.hosts.list[:cap(ix.addrSet.hosts.list)])
}

// deferrable reports whether the change can be applied later, together with
// others, while the first list arrives and no reverse name is answered yet. A
// small change would copy many leaves for few references. Removals cannot wait:
// the reference might be added again.
func (c *reverseChange) deferrable(pairs int) bool {
	return len(c.remove) == 0 && len(c.add) < max(1<<12, pairs/2)
}

// applyChange applies a change and empties it.
func (a *reverseIndex) applyChange(c *reverseChange) {
	a.apply(c.add, c.remove)
	c.add, c.remove = c.add[:0], c.remove[:0]
	if cap(c.add)+cap(c.remove) > 1<<10 {
		*c = reverseChange{}
	}
}

// applyToggled adds the references of namespaces that have been exposed, and removes
// those of hidden ones, so that answers need not skip them.
func (ix *Index) applyToggled() {
	if len(ix.toggled) == 0 {
		return
	}
	for _, e := range ix.services.All() {
		if _, ok := ix.toggled[e.key.namespace]; !ok {
			continue
		}
		var old, now *entry
		if e.key.namespace.exposed.Load() {
			now = e
		} else {
			old = e
		}
		ix.addReverseChanges(e.key, old, now)
	}
	clear(ix.toggled)
}

// addReverseChanges notes how the addresses of two entries differ.
func (ix *Index) addReverseChanges(of *serviceKey, old, now *entry) {
	ix.reverseChange.addDifference(of, old.addresses(), now.addresses())
	if ix.settings.k8sExternal.enabled {
		ix.externalChange.addDifference(of, old.externalAddresses(), now.externalAddresses())
	}
}

func (c *reverseChange) addDifference(of *serviceKey, had, has iter.Seq[netip.Addr]) {
	sorted := func(ips iter.Seq[netip.Addr]) []netip.Addr {
		return slices.Compact(slices.SortedFunc(ips, netip.Addr.Compare))
	}
	old := sorted(had)
	if len(old) == 0 { // as in most of a list
		for ip := range has {
			c.add = append(c.add, addrRef{ip, of})
		}
		return
	}
	now := sorted(has)
	for len(old)+len(now) > 0 {
		order := 0
		switch {
		case len(old) == 0:
			order = 1
		case len(now) == 0:
			order = -1
		default:
			order = old[0].Compare(now[0])
		}
		if order < 0 {
			c.remove = append(c.remove, addrRef{old[0], of})
		} else if order > 0 {
			c.add = append(c.add, addrRef{now[0], of})
		}
		if order <= 0 {
			old = old[1:]
		}
		if order >= 0 {
			now = now[1:]
		}
	}
}

// addAmended notes how the addresses of an amended entry differ from the old one's.
func (c *reverseChange) addAmended(of *serviceKey, diff *endpointDiff, f *serviceSpec, seen *set[netip.Addr]) {
	c.add = f.addOnlyIn(diff.added, diff.removed, c.add, of, seen)
	c.remove = f.addOnlyIn(diff.removed, diff.added, c.remove, of, seen)
}

// addOnlyIn appends references of the addresses that are served in some and not in
// others.
func (f *serviceSpec) addOnlyIn(some, others []endpointRef, to []addrRef, of *serviceKey, c *set[netip.Addr]) []addrRef {
	c.reset(len(others))
	for i := range others {
		if f.isServed(&others[i].ep) {
			c.add(others[i].ep.Addr)
		}
	}
	for i := range some {
		if ep := &some[i].ep; f.isServed(ep) && !c.has(ep.Addr) {
			to = append(to, addrRef{ep.Addr, of})
		}
	}
	return to
}
