package index

import (
	"slices"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/wire"
)

// A pendingPart is a slice from which an entry is built.
type pendingPart struct {
	name      string
	ports     *PortSet
	endpoints cluster.Endpoints
	unchanged *Part // the part of the old entry that equals it; nil if none does
}

// hasAddresses reports whether the endpoints can be in a part as they are: they have
// addresses instead of names, and the ID of their cluster can be in a name.
func (p *pendingPart) hasAddresses() bool { return p.ports.dotted && !p.endpoints.HasNames() }

// newEntry makes the entry of a changed Service from its spec and all its slices, in the order
// of their names. If the old entry is similar, only the endpoints by which they differ are
// looked at; newEntry returns these, and nil otherwise. The entry is the same either way.
func (ix *Index) newEntry(
	c *serviceChange, spec *Spec, all []pendingPart, changes []partChange,
) (*Entry, *endpointDiff) {
	e := &Entry{Key: c.key, Spec: *spec}
	if spec.Headless { // the old entry's
		e.Records, e.aEnd = "", 0
	}

	// If the old endpoints are disjoint, only the added ones have to be compared with the others.
	diff := ix.difference(c.old, spec, changes)
	var disjoint bool
	if diff != nil {
		disjoint = spec.stillDisjoint(all, diff.added, &ix.addrSet)
	} else {
		disjoint = spec.disjoint(all, &ix.addrSet)
	}

	recorded := disjoint && spec.Headless && spec.Known()
	parts := ix.packParts(c.old, spec, all, recorded)
	switch {
	case !disjoint:
		diff = nil // merged parts are made from all endpoints
		e.mergeParts(ix, parts)
	case diff != nil:
		e.Parts = parts
		e.table = c.old.table.changed(e, ix.settings.TableFrom, diff)
	default:
		e.Parts = parts
		e.table = e.newTable(ix.settings.TableFrom, nil)
	}

	e.derive(ix.settings, recorded)
	switch x := ix.settings.External; {
	case !x.Enabled || !spec.Known():
	case diff != nil && !(x.Headless && spec.Headless): // the spec is the same, and endpoints do not matter
		e.k8sExternal = c.old.k8sExternal
	default:
		e.k8sExternal = e.externalEntry(x)
	}
	if !e.exists {
		return e, nil // all endpoints have lost their names
	}

	if e.hash = e.headHash(); diff != nil {
		e.hash += c.old.hash - c.old.headHash() + e.hashDifference(diff)
	} else {
		e.hash += e.endpointsHash()
	}
	return e, diff
}

// packParts makes a part of each slice. A part depends on the slice, on whether it has
// records, and on which endpoints are served: if these are the same, it is the old entry's.
func (ix *Index) packParts(old *Entry, spec *Spec, all []pendingPart, recorded bool) []Part {
	reusable := old != nil && old.PublishNotReady == spec.PublishNotReady && old.slicesRecorded() == recorded
	parts := make([]Part, len(all))
	for i, p := range all {
		if reusable && p.unchanged != nil {
			parts[i] = *p.unchanged
		} else {
			parts[i] = ix.packPart(spec, p, recorded)
		}
	}
	return parts
}

// derive sets the fields that follow from the parts: where the records are, and
// whether the Service has a name.
func (e *Entry) derive(set Settings, recorded bool) {
	switch {
	case !recorded:
	case len(e.Parts) == 1: // its records are the records of the Service's name
		p := &e.Parts[0]
		e.Records, e.aEnd = p.data[p.endpointsEnd:], p.aEnd-p.endpointsEnd
	default:
		e.InParts = len(e.Parts) > 0
	}

	switch {
	case !e.Known(): // slices alone make no names
	case e.ExternalName:
		e.exists = e.Records != ""
	case e.Headless: // 2.4.1: without a ready endpoint the name does not exist
		e.exists = e.hasReadyEndpoints() || e.Alias() != nil
	default:
		e.exists = !set.IgnoreEmpty || e.hasReadyEndpoints()
	}
}

// hasReadyEndpoints reports whether any endpoint is served.
func (e *Entry) hasReadyEndpoints() bool {
	return slices.ContainsFunc(e.Parts, func(p Part) bool { return p.Served > 0 })
}

// slicesRecorded reports whether the slices of the entry have records.
func (e *Entry) slicesRecorded() bool { return e.HasPartRecords() && e.Merged() == nil }

// packPart makes a part of a slice, with the records of its endpoints if recorded.
func (ix *Index) packPart(spec *Spec, p pendingPart, recorded bool) Part {
	part := Part{Ports: p.ports, nameEnd: uint16(len(p.name))}
	buf := append(append(ix.buf[:0], p.name...), p.endpoints...)
	part.endpointsEnd = uint32(len(buf))

	for ep := range p.endpoints.All() {
		if spec.IsServed(&ep) {
			part.Served++
			if recorded && ep.Addr.Is4() {
				buf = wire.AppendAddress(buf, wire.OwnerIsQuestion, ix.settings.TTL, ep.Addr)
			}
		}
	}
	part.aEnd = uint32(len(buf))

	// Few slices have IPv6 addresses: the others are read once.
	if recorded && len(buf)-int(part.endpointsEnd) < LenA*int(part.Served) {
		for ep := range p.endpoints.All() {
			if spec.IsServed(&ep) && ep.Addr.Is6() {
				buf = wire.AppendAddress(buf, wire.OwnerIsQuestion, ix.settings.TTL, ep.Addr)
			}
		}
	}

	part.data = string(buf)
	ix.buf = buf[:0]
	return part
}

// disjoint reports whether no two endpoints of the slices share an address or a
// hostname, and none has a ClusterIP of the Service, or a name instead of an address.
func (s *Spec) disjoint(all []pendingPart, seen *addrSet) bool {
	if s.ExternalName && len(all) > 0 { // the endpoints have no names
		return false
	}

	n := 0
	for i := range all {
		if !all[i].hasAddresses() {
			return false
		}
		n += len(all[i].endpoints) / 5 // an endpoint has at least five bytes
	}

	seen.reset(n + len(s.Records)/LenA)
	for ip := range s.ClusterIPs() {
		seen.addrs.add(ip)
	}
	for i := range all {
		for ep := range all[i].endpoints.All() {
			if isAmbiguous(&ep) || !seen.add(&ep) {
				return false
			}
		}
	}
	return true
}

// isAmbiguous reports whether the endpoint's hostname is not a label, or equals the
// label of another endpoint's address.
func isAmbiguous(ep *cluster.Endpoint) bool {
	if ep.Hostname == "" {
		return false
	}
	if len(ep.Hostname) > wire.MaxLabel {
		return true // the API server rejects it
	}
	_, address := AddrOfLabel([]byte(ep.Hostname))
	return address
}
