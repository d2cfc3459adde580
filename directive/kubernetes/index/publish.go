package index

import (
	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/sys/generation"
)

// flush applies the pending changes, one Service after the other. kind is the kind of
// the changed objects. The reverse index follows at the end: until then a reverse
// name leads to the Service as it was, or does not exist.
func (ix *Index) flush(kind cluster.Kind) {
	ix.flushServices()
	deferrable := ix.reverseChange.deferrable(ix.reverseLen) && ix.claimChange.deferrable(ix.reverseLen)
	if !deferrable || ix.HaveListed(kind, kind) {
		ix.applyReverse()
	}
	ix.externalReverse.applyChange(&ix.externalChange)
	for _, u := range ix.undos {
		u.woken.Send()
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
	ix.store(c, e)

	// The reverse indexes have the references of exposed namespaces, and none of imports.
	switch {
	case c.imported || !c.key.Namespace.Exposed():
	case diff != nil:
		ix.reverseChange.addEndpoints(c.key, diff, &spec, &ix.addrSet.addrs, true)
		ix.claimChange.addEndpoints(c.key, diff, &spec, &ix.addrSet.addrs, false)
	default:
		ix.addReverseChanges(c.key, c.old, e)
	}
}

// store lets readers see the new entry of a Service instead of the old one, or none if nothing
// of the Service is left.
func (ix *Index) store(c *serviceChange, e *Entry) {
	table := ix.table(c.imported)
	named := e.changesName(c.old)
	ix.count((*generation.Cells).Begin, c.key.Labels, named)
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
	ix.count((*generation.Cells).End, c.key.Labels, named)

	// The serials are sums of hashes.
	hash := e.hash
	if c.old != nil {
		hash -= c.old.hash
	}
	ix.addHash(c.key.Namespace, c.imported, hash)

	services, slices := e.countObjects()
	servicesBefore, slicesBefore := c.old.countObjects()
	kinds := [2]cluster.Kind{cluster.Services, cluster.Slices}
	if c.imported {
		kinds = [2]cluster.Kind{cluster.Imports, cluster.ImportSlices}
	}
	ix.objects[kinds[0]].Add(services - servicesBefore)
	ix.objects[kinds[1]].Add(slices - slicesBefore)
}

// changesName reports whether answers for the Service's own name, and those of its ports, may differ from
// the old entry's. With a ClusterIP they do not depend on endpoints, but for the option ignore empty_service.
func (e *Entry) changesName(old *Entry) bool {
	return old == nil || e.Headless || !old.Spec.Equal(&e.Spec) || e.exists != old.exists
}

// count calls Cells.Begin or Cells.End for a change of a Service, or of its endpoints alone.
func (ix *Index) count(call func(*generation.Cells, string), labels string, named bool) {
	if ix.generations == nil {
		return
	}
	call(ix.generations, string(EndpointsKey(nil, labels)))
	if named {
		call(ix.generations, labels)
	}
}

// EndpointsKey appends the key by which changes of a Service or its endpoints are counted (CountChanges).
func EndpointsKey[T string | []byte](buf []byte, labels T) []byte {
	return append(append(buf, 0), labels...)
}

// countObjects returns the number of Services and slices that the entry was made of.
func (e *Entry) countObjects() (services, slices int64) {
	switch {
	case e == nil:
		return 0, 0
	case e.Known():
		services = 1
	}
	return services, int64(len(e.Slices()))
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
	const maxKept = 1 << 8
	if cap(ix.pending) > maxKept {
		ix.pending, ix.partChanges = nil, nil
	}
	if cap(ix.buf) > maxKept<<8 {
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
		if e.Key.Namespace.Exposed() {
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
