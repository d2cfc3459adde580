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

// buildEntry makes the entry of a Service from its spec and its slices, in the order
// of their names. It reuses parts of the old entry.
func (ix *Index) buildEntry(k *ServiceKey, spec Spec, from []pendingPart) *Entry {
	e := &Entry{Key: k, Spec: spec}
	if spec.Headless {
		e.Records, e.aEnd = "", 0
	}
	disjoint := spec.disjoint(from, &ix.addrSet)
	recorded := spec.Known() && spec.Headless && disjoint
	var parts []Part
	if len(from) > 0 {
		parts = make([]Part, len(from))
	}
	for i, r := range from {
		if r.unchanged != nil && spec.isPackedFor(r.unchanged, recorded) {
			parts[i] = *r.unchanged
		} else {
			parts[i] = ix.packPart(&spec, r, recorded)
		}
	}
	if disjoint {
		e.Parts = parts
		e.table = e.newTable(ix.tableFrom, nil)
	} else {
		e.mergeParts(ix, parts)
	}
	e.derive(ix.settings, recorded)
	if ix.settings.External.Enabled && spec.Known() {
		e.k8sExternal = e.externalEntry(ix.settings.External)
	}
	e.hash = e.headHash() + e.endpointsHash()
	return e
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

// isPackedFor reports whether packPart would return an equal part.
func (s *Spec) isPackedFor(p *Part, recorded bool) bool {
	count, bytes := uint32(0), 0
	for ep := range p.Endpoints().All() {
		if s.IsServed(&ep) {
			count++
			bytes += LenA
			if ep.Addr.Is6() {
				bytes += LenAAAA - LenA
			}
		}
	}
	if !recorded {
		bytes = 0
	}
	return count == p.Served && bytes == len(p.data)-int(p.endpointsEnd)
}

// packPart makes a part of a slice, with the records of its endpoints if recorded.
func (ix *Index) packPart(spec *Spec, r pendingPart, recorded bool) Part {
	p := Part{Ports: r.ports, nameEnd: uint16(len(r.name))}
	buf := append(append(ix.buf[:0], r.name...), r.endpoints...)
	p.endpointsEnd = uint32(len(buf))
	for ep := range r.endpoints.All() {
		if spec.IsServed(&ep) {
			p.Served++
			if recorded && ep.Addr.Is4() {
				buf = wire.AppendAddress(buf, wire.OwnerIsQuestion, ix.settings.TTL, ep.Addr)
			}
		}
	}
	p.aEnd = uint32(len(buf))
	if recorded && len(buf)-int(p.endpointsEnd) < LenA*int(p.Served) {
		for ep := range r.endpoints.All() {
			if spec.IsServed(&ep) && ep.Addr.Is6() {
				buf = wire.AppendAddress(buf, wire.OwnerIsQuestion, ix.settings.TTL, ep.Addr)
			}
		}
	}
	p.data = string(buf)
	ix.buf = buf[:0]
	return p
}

// disjoint reports whether no two endpoints of the slices share an address or a
// hostname, and none has a ClusterIP of the Service, or a name instead of an address.
func (s *Spec) disjoint(from []pendingPart, seen *addrSet) bool {
	if s.ExternalName && len(from) > 0 { // the endpoints have no names
		return false
	}
	n := 0
	for _, r := range from {
		if !r.ports.dotted || r.endpoints.HasNames() {
			return false
		}
		n += len(r.endpoints) / 5 // an endpoint has at least five bytes
	}
	seen.reset(n + len(s.Records)/LenA)
	for ip := range s.ClusterIPs() {
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
	_, address := AddrOfLabel([]byte(ep.Hostname))
	return address
}
