package kubernetes

import (
	"net/netip"
	"slices"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/wire"
)

// A raw is a slice that an entry is built of.
type pendingPart struct {
	name      string
	ports     *portSet
	endpoints cluster.Endpoints
	unchanged *part // as an entry has it already; nil if none does
}

// build makes the entry of a Service from what its object says and from its
// slices, in order of their names. Parts that are right already are taken over.
func (ix *Index) buildEntry(h *serviceKey, f serviceSpec, from []pendingPart) *entry {
	e := &entry{key: h, serviceSpec: f}
	if f.headless {
		e.records, e.aEnd = "", 0
	}
	apart := f.disjoint(from, &ix.addrSet)
	recorded := f.known() && f.headless && apart
	var parts []part
	if len(from) > 0 {
		parts = make([]part, len(from))
	}
	for i, r := range from {
		if r.unchanged != nil && f.isPackedFor(r.unchanged, recorded) {
			parts[i] = *r.unchanged
		} else {
			parts[i] = ix.packPart(&f, r, recorded)
		}
	}
	if apart {
		e.parts = parts
		e.table = e.newTable(ix.tableFrom, nil)
	} else {
		e.mergeParts(ix, parts)
	}
	e.derive(ix.settings, recorded)
	if ix.settings.k8sExternal.enabled && f.known() {
		e.k8sExternal = e.externalEntry(ix.settings.k8sExternal)
	}
	e.hash = e.headHash() + e.endpointsHash()
	return e
}

// settle finds out what follows from the parts: where the records are, and
// whether there is such a name.
func (e *entry) derive(set settings, recorded bool) {
	switch {
	case !recorded:
	case len(e.parts) == 1: // they are the Service's too
		p := &e.parts[0]
		e.records, e.aEnd = p.data[p.endpointsEnd:], p.aEnd-p.endpointsEnd
	default:
		e.inParts = len(e.parts) > 0
	}
	switch {
	case !e.known(): // slices alone make no names
	case e.externalName:
		e.exists = e.records != ""
	case e.headless: // specification 2.4.1: none ready, no name
		e.exists = e.hasReadyEndpoints()
	default:
		e.exists = !set.ignoreEmpty || e.hasReadyEndpoints()
	}
}

// populated says whether any endpoint counts.
func (e *entry) hasReadyEndpoints() bool {
	return slices.ContainsFunc(e.parts, func(p part) bool { return p.served > 0 })
}

// fits says whether a part is packed as it would be for these facts.
func (f *serviceSpec) isPackedFor(p *part, recorded bool) bool {
	count, bytes := uint32(0), 0
	for ep := range p.endpoints().All() {
		if f.isServed(&ep) {
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

// pack makes a part of a slice, with the records of its endpoints if they are
// wanted.
func (ix *Index) packPart(f *serviceSpec, r pendingPart, recorded bool) part {
	p := part{ports: r.ports, nameEnd: uint16(len(r.name))}
	buf := append(append(ix.buf[:0], r.name...), r.endpoints...)
	p.endpointsEnd = uint32(len(buf))
	for ep := range r.endpoints.All() {
		if f.isServed(&ep) {
			p.served++
			if recorded && ep.Addr.Is4() {
				buf = wire.AppendAddress(buf, wire.OwnerIsQuestion, ix.settings.ttl, ep.Addr)
			}
		}
	}
	p.aEnd = uint32(len(buf))
	if recorded && len(buf)-int(p.endpointsEnd) < lenA*int(p.served) {
		for ep := range r.endpoints.All() {
			if f.isServed(&ep) && ep.Addr.Is6() {
				buf = wire.AppendAddress(buf, wire.OwnerIsQuestion, ix.settings.ttl, ep.Addr)
			}
		}
	}
	p.data = string(buf)
	ix.buf = buf[:0]
	return p
}

// apart says whether no two endpoints of the slices have anything to do with
// each other, or with the Service's own addresses.
func (f *serviceSpec) disjoint(from []pendingPart, seen *addrSet) bool {
	if f.externalName && len(from) > 0 { // no name has these endpoints
		return false
	}
	n := 0
	for _, r := range from {
		if !r.ports.dotted {
			return false
		}
		n += len(r.endpoints) / 5 // at the most
	}
	seen.reset(n + len(f.records)/lenA)
	for ip := range f.clusterIPs() {
		seen.addAddr(ip)
	}
	for _, r := range from {
		for ep := range r.endpoints.All() {
			if isAmbiguous(&ep) || !seen.addAddr(ep.Addr) || ep.Hostname != "" && !seen.addHost(ep.Hostname) {
				return false
			}
		}
	}
	return true
}

// ambiguous says whether the endpoint's hostname is none, or reads like the
// label of another endpoint.
func isAmbiguous(ep *cluster.Endpoint) bool {
	if ep.Hostname == "" {
		return false
	}
	if len(ep.Hostname) > wire.MaxLabel {
		return true // no API server lets it pass
	}
	_, address := addrOfLabel([]byte(ep.Hostname))
	return address
}

// A crowd is addresses and hostnames, each once. It can be used again.
type addrSet struct {
	addrList []netip.Addr
	hostList []string
	addrMap  map[netip.Addr]struct{} // in place of few where there are many
	hostMap  map[string]struct{}
}

// many is from where on a map is faster than looking at each.
const mapThreshold = 24

// expect empties it, and says how many there will be at the most.
func (c *addrSet) reset(n int) {
	c.addrList, c.hostList, c.addrMap, c.hostMap = c.addrList[:0], c.hostList[:0], nil, nil
	if n > mapThreshold {
		c.addrMap, c.hostMap = make(map[netip.Addr]struct{}, n), map[string]struct{}{}
	} else if cap(c.addrList) < n {
		c.addrList = make([]netip.Addr, 0, mapThreshold)
	}
}

// addr adds an address, and is false if it is there.
func (c *addrSet) addAddr(ip netip.Addr) bool {
	if c.addrMap == nil {
		if slices.Contains(c.addrList, ip) {
			return false
		}
		c.addrList = append(c.addrList, ip)
		return true
	}
	n := len(c.addrMap)
	c.addrMap[ip] = struct{}{}
	return len(c.addrMap) > n
}

// host adds a hostname, and is false if it is there.
func (c *addrSet) addHost(name string) bool {
	if c.hostMap == nil {
		if slices.Contains(c.hostList, name) {
			return false
		}
		c.hostList = append(c.hostList, name)
		return true
	}
	n := len(c.hostMap)
	c.hostMap[name] = struct{}{}
	return len(c.hostMap) > n
}

func (c *addrSet) hasAddr(ip netip.Addr) bool {
	if c.addrMap == nil {
		return slices.Contains(c.addrList, ip)
	}
	_, ok := c.addrMap[ip]
	return ok
}

func (c *addrSet) hasHost(name string) bool {
	if c.hostMap == nil {
		return slices.Contains(c.hostList, name)
	}
	_, ok := c.hostMap[name]
	return ok
}

// unique gives each address once, in order of their first place.
func unique(ips []netip.Addr) []netip.Addr {
	var seen addrSet
	seen.reset(len(ips))
	once := make([]netip.Addr, 0, len(ips))
	for _, ip := range ips {
		if seen.addAddr(ip) {
			once = append(once, ip)
		}
	}
	return once
}

// head is a number that two replicas with equal data agree on: what the answers
// depend on besides the endpoints.
func (e *entry) headHash() uint32 {
	if !e.exists {
		return 0
	}
	h := fnv(fnvBasis, e.key.labels)
	if e.ports != nil {
		h = (h ^ e.ports.hash) * fnvPrime
	}
	if e.headless {
		h *= fnvPrime // or one without any address of its own would look the same
	} else {
		h = fnv(h, e.records)
	}
	sum := mix(h)
	if e.k8sExternal != nil {
		sum += mix(fnv(h*fnvPrime, e.k8sExternal.records))
	}
	return sum
}

// members is the sum over all endpoints, in whatever order.
func (e *entry) endpointsHash() (sum uint32) {
	if !e.exists {
		return 0
	}
	h := fnv(fnvBasis, e.key.labels)
	for w := e.endpoints(selection{}); w.next(); {
		sum += hashEndpoint(h, w.ports, &w.ep)
	}
	return sum
}

// worth is what one endpoint adds to the sum of a Service, whose key has the
// hash h.
func hashEndpoint(h uint32, of *portSet, ep *cluster.Endpoint) uint32 {
	h = (h ^ of.hash) * fnvPrime
	if ep.Addr.Is4() {
		b := ep.Addr.As4()
		h = fnv(h, b[:])
	} else {
		b := ep.Addr.As16()
		h = fnv(h, b[:])
	}
	h = fnv(h, ep.Hostname)
	h = fnv(h*fnvPrime, ep.Zone)
	return mix(h)
}
