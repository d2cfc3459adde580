package index

import "github.com/seamark/seamark/cluster"

// flush applies the pending changes, one Service after the other. kind is the kind of
// the changed objects. The reverse index follows at the end: until then a reverse
// name leads to the Service as it was, or does not exist.
func (ix *Index) flush(kind cluster.Kind) {
	ix.flushServices()
	if ix.HaveListed(kind, kind) || !ix.reverseChange.deferrable(ix.reverseLen) || !ix.claimChange.deferrable(ix.reverseLen) {
		ix.applyReverse()
	}
	ix.externalReverse.applyChange(&ix.externalChange)
	for _, u := range ix.undos {
		u.wake()
	}
}

// flushServices applies the pending changes, except the changes of reverse names.
func (ix *Index) flushServices() {
	ix.applyToggled()
	for _, c := range ix.changes.ordered {
		ix.publish(c)
	}
	for _, c := range ix.changes.ordered {
		ix.removeIfEmpty(c.key.Namespace)
	}
	ix.changes.reset()
	ix.sweepPortSets()
}

// applyReverse applies the pending changes of reverse names.
func (ix *Index) applyReverse() {
	ix.reverseLen += len(ix.reverseChange.add) + len(ix.claimChange.add)
	ix.reverse.applyChange(&ix.reverseChange)
	ix.claims.applyChange(&ix.claimChange)
}

// publish replaces the entry of a changed Service.
func (ix *Index) publish(c *serviceChange) {
	all, partChanges := ix.mergeSlices(c)
	defer ix.releaseBuffers()
	spec := c.spec(ix)
	if len(partChanges) == 0 && (c.old == nil && !spec.Known() || c.old != nil && c.old.Equal(&spec)) {
		return // as after most lists
	}

	e, diff := ix.newEntry(c, &spec, all, partChanges)
	for _, u := range ix.undos {
		u.addEntry(c)
	}
	table, before := ix.table(c.imported), uint32(0)
	if c.old != nil {
		before = c.old.hash
	}
	switch {
	case e.Known() || len(e.Slices()) > 0:
		table.Set(c.key.Labels, e)
		c.key.entry.Store(e)
		if c.old == nil {
			c.key.Namespace.objects++
		}
	case c.old != nil:
		table.Delete(c.key.Labels)
		c.key.entry.Store(nil)
		c.key.Namespace.objects--
	}
	ix.addHash(c.key.Namespace, c.imported, e.hash-before)
	ix.count(c.imported, c.old, e)
	switch {
	case c.imported || !c.key.Namespace.exposed.Load(): // imports have no reverse names
	case diff != nil:
		ix.reverseChange.addEndpoints(c.key, diff, &spec, &ix.addrSet.addrs, true)
		ix.claimChange.addEndpoints(c.key, diff, &spec, &ix.addrSet.addrs, false)
	default:
		ix.addReverseChanges(c.key, c.old, e)
	}
}

// count changes the numbers of Services and slices. old is nil for a new Service.
func (ix *Index) count(imported bool, old, now *Entry) {
	count := func(e *Entry) (services, slices int64) {
		if e == nil {
			return 0, 0
		}
		if e.Known() {
			services = 1
		}
		return services, int64(len(e.Slices()))
	}
	servicesBefore, slicesBefore := count(old)
	services, slices := count(now)
	kinds := [2]cluster.Kind{cluster.Services, cluster.Slices}
	if imported {
		kinds = [2]cluster.Kind{cluster.Imports, cluster.ImportSlices}
	}
	ix.objects[kinds[0]].Add(services - servicesBefore)
	ix.objects[kinds[1]].Add(slices - slicesBefore)
}

// spec returns the Service's spec after the change.
func (c *serviceChange) spec(ix *Index) Spec {
	switch {
	case c.replaced && c.service != nil:
		return ix.portSets.specOf(c.service, ix.settings.TTL)
	case !c.replaced && c.old != nil:
		return c.old.Spec
	}
	return Spec{}
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

// applyToggled adds the references of namespaces that have been exposed, and removes
// the references of hidden namespaces, so that answers need not skip them.
func (ix *Index) applyToggled() {
	if len(ix.toggled) == 0 {
		return
	}
	for _, e := range ix.services.All() {
		if _, ok := ix.toggled[e.Key.Namespace]; !ok {
			continue
		}
		var old, now *Entry
		if e.Key.Namespace.exposed.Load() {
			now = e
		} else {
			old = e
		}
		ix.addReverseChanges(e.Key, old, now)
	}
	clear(ix.toggled)
}

// addReverseChanges notes how the addresses of two entries differ.
func (ix *Index) addReverseChanges(service *ServiceKey, old, now *Entry) {
	if old == nil && now.exists { // as in a snapshot
		for ip := range now.ClusterIPs() {
			ix.reverseChange.add = append(ix.reverseChange.add, addrRef{ip, service})
		}
		for _, ep := range now.Served() {
			c := &ix.claimChange
			if ep.Target {
				c = &ix.reverseChange
			}
			c.add = append(c.add, addrRef{ep.Addr, service})
		}
	} else {
		ix.reverseChange.addDifference(service, old.addresses(true, false), now.addresses(true, false))
		ix.claimChange.addDifference(service, old.addresses(false, true), now.addresses(false, true))
	}
	if ix.settings.External.Enabled {
		ix.externalChange.addDifference(service, old.externalAddresses(), now.externalAddresses())
	}
}
