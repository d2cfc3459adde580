package kubernetes

import (
	"slices"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/wire"
)

// A pendingPart is a slice from which an entry is built.
type pendingPart struct {
	name      string
	ports     *portSet
	endpoints cluster.Endpoints
	unchanged *part // the part of the old entry that equals it; nil if none does
}

// buildEntry makes the entry of a Service from its spec and its slices, in the order
// of their names. It reuses parts of the old entry.
func (ix *Index) buildEntry(k *serviceKey, spec serviceSpec, from []pendingPart) *entry {
	e := &entry{key: k, serviceSpec: spec}
	if spec.headless {
		e.records, e.aEnd = "", 0
	}
	disjoint := spec.disjoint(from, &ix.addrSet)
	recorded := spec.known() && spec.headless && disjoint
	var parts []part
	if len(from) > 0 {
		parts = make([]part, len(from))
	}
	for i, r := range from {
		if r.unchanged != nil && spec.isPackedFor(r.unchanged, recorded) {
			parts[i] = *r.unchanged
		} else {
			parts[i] = ix.packPart(&spec, r, recorded)
		}
	}
	if disjoint {
		e.answerParts = parts
		e.table = e.newTable(ix.tableFrom, nil)
	} else {
		e.mergeParts(ix, parts)
	}
	e.derive(ix.settings, recorded)
	if ix.settings.k8sExternal.enabled && spec.known() {
		e.k8sExternal = e.externalEntry(ix.settings.k8sExternal)
	}
	e.hash = e.headHash() + e.endpointsHash()
	return e
}

// derive sets the fields that follow from the parts: where the records are, and
// whether the Service has a name.
func (e *entry) derive(set settings, recorded bool) {
	switch {
	case !recorded:
	case len(e.answerParts) == 1: // its records are the records of the Service's name
		p := &e.answerParts[0]
		e.records, e.aEnd = p.data[p.endpointsEnd:], p.aEnd-p.endpointsEnd
	default:
		e.inParts = len(e.answerParts) > 0
	}
	switch {
	case !e.known(): // slices alone make no names
	case e.externalName:
		e.exists = e.records != ""
	case e.headless: // 2.4.1: without a ready endpoint the name does not exist
		e.exists = e.hasReadyEndpoints() || e.alias() != nil
	default:
		e.exists = !set.ignoreEmpty || e.hasReadyEndpoints()
	}
}

// hasReadyEndpoints reports whether any endpoint is served.
func (e *entry) hasReadyEndpoints() bool {
	return slices.ContainsFunc(e.answerParts, func(p part) bool { return p.served > 0 })
}

// isPackedFor reports whether packPart would return an equal part.
func (s *serviceSpec) isPackedFor(p *part, recorded bool) bool {
	count, bytes := uint32(0), 0
	for ep := range p.endpoints().All() {
		if s.isServed(&ep) {
			count++
			bytes += lenA
			if ep.Addr.Is6() {
				bytes += lenAAAA - lenA
			}
		}
	}
	if !recorded {
		bytes = 0
	}
	return count == p.served && bytes == len(p.data)-int(p.endpointsEnd)
}

// packPart makes a part of a slice, with the records of its endpoints if recorded.
func (ix *Index) packPart(spec *serviceSpec, r pendingPart, recorded bool) part {
	p := part{ports: r.ports, nameEnd: uint16(len(r.name))}
	buf := append(append(ix.buf[:0], r.name...), r.endpoints...)
	p.endpointsEnd = uint32(len(buf))
	for ep := range r.endpoints.All() {
		if spec.isServed(&ep) {
			p.served++
			if recorded && ep.Addr.Is4() {
				buf = wire.AppendAddress(buf, wire.OwnerIsQuestion, ix.settings.ttl, ep.Addr)
			}
		}
	}
	p.aEnd = uint32(len(buf))
	if recorded && len(buf)-int(p.endpointsEnd) < lenA*int(p.served) {
		for ep := range r.endpoints.All() {
			if spec.isServed(&ep) && ep.Addr.Is6() {
				buf = wire.AppendAddress(buf, wire.OwnerIsQuestion, ix.settings.ttl, ep.Addr)
			}
		}
	}
	p.data = string(buf)
	ix.buf = buf[:0]
	return p
}

// disjoint reports whether no two endpoints of the slices share an address or a
// hostname, and none has a ClusterIP of the Service, or a name instead of an address.
func (s *serviceSpec) disjoint(from []pendingPart, seen *addrSet) bool {
	if s.externalName && len(from) > 0 { // the endpoints have no names
		return false
	}
	n := 0
	for _, r := range from {
		if !r.ports.dotted || r.endpoints.HasNames() {
			return false
		}
		n += len(r.endpoints) / 5 // an endpoint has at least five bytes
	}
	seen.reset(n + len(s.records)/lenA)
	for ip := range s.clusterIPs() {
		seen.addrs.add(ip)
	}
	for _, r := range from {
		for ep := range r.endpoints.All() {
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
	_, address := addrOfLabel([]byte(ep.Hostname))
	return address
}
