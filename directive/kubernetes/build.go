package kubernetes

import (
	"net/netip"
	"slices"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/wire"
)

// A raw is a slice that an entry is built of.
type raw struct {
	name      string
	of        *portSet
	endpoints cluster.Endpoints
	packed    *part // as an entry has it already; nil if none does
}

// build makes the entry of a Service from what its object says and from its
// slices, in order of their names. Parts that are right already are taken over.
func (ix *Index) build(h *home, f facts, from []raw) *entry {
	e := &entry{home: h, facts: f}
	if f.headless {
		e.records, e.ends = "", 0
	}
	apart := f.apart(from, &ix.seen)
	recorded := f.known() && f.headless && apart
	var parts []part
	if len(from) > 0 {
		parts = make([]part, len(from))
	}
	for i, r := range from {
		if r.packed != nil && f.fits(r.packed, recorded) {
			parts[i] = *r.packed
		} else {
			parts[i] = ix.pack(&f, r, recorded)
		}
	}
	if apart {
		e.parts = parts
	} else {
		e.mix(ix, parts)
	}
	e.settle(ix.set, recorded)
	if ix.set.external.on && f.known() {
		e.outside = e.external(ix.set.external)
	}
	e.sum = e.head() + e.members()
	return e
}

// settle finds out what follows from the parts: where the records are, and
// whether there is such a name.
func (e *entry) settle(set settings, recorded bool) {
	switch {
	case !recorded:
	case len(e.parts) == 1: // they are the Service's too
		p := &e.parts[0]
		e.records, e.ends = p.data[p.end:], p.ends-p.end
	default:
		e.spread = len(e.parts) > 0
	}
	switch {
	case !e.known(): // slices alone make no names
	case e.alias:
		e.exists = e.records != ""
	case e.headless: // specification 2.4.1: none ready, no name
		e.exists = e.populated()
	default:
		e.exists = !set.ignoreEmpty || e.populated()
	}
}

// populated says whether any endpoint counts.
func (e *entry) populated() bool {
	return slices.ContainsFunc(e.parts, func(p part) bool { return p.count > 0 })
}

// fits says whether a part is packed as it would be for these facts.
func (f *facts) fits(p *part, recorded bool) bool {
	count, bytes := uint32(0), 0
	for ep := range p.endpoints().All() {
		if f.counts(&ep) {
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
	return count == p.count && bytes == len(p.data)-int(p.end)
}

// pack makes a part of a slice, with the records of its endpoints if they are
// wanted.
func (ix *Index) pack(f *facts, r raw, recorded bool) part {
	p := part{of: r.of, named: uint16(len(r.name))}
	buf := append(append(ix.buf[:0], r.name...), r.endpoints...)
	p.end = uint32(len(buf))
	for ep := range r.endpoints.All() {
		if f.counts(&ep) {
			p.count++
			if recorded && ep.Addr.Is4() {
				buf = wire.AppendAddress(buf, wire.OwnerIsQuestion, ix.set.ttl, ep.Addr)
			}
		}
	}
	p.ends = uint32(len(buf))
	if recorded && len(buf)-int(p.end) < lenA*int(p.count) {
		for ep := range r.endpoints.All() {
			if f.counts(&ep) && ep.Addr.Is6() {
				buf = wire.AppendAddress(buf, wire.OwnerIsQuestion, ix.set.ttl, ep.Addr)
			}
		}
	}
	p.data = string(buf)
	ix.buf = buf[:0]
	return p
}

// apart says whether no two endpoints of the slices have anything to do with
// each other, or with the Service's own addresses.
func (f *facts) apart(from []raw, seen *crowd) bool {
	if f.alias && len(from) > 0 { // no name has these endpoints
		return false
	}
	n := 0
	for _, r := range from {
		if !r.of.dotted {
			return false
		}
		n += len(r.endpoints) / 5 // at the most
	}
	seen.expect(n + len(f.records)/lenA)
	for ip := range f.clusterIPs() {
		seen.addr(ip)
	}
	for _, r := range from {
		for ep := range r.endpoints.All() {
			if ambiguous(&ep) || !seen.addr(ep.Addr) || ep.Hostname != "" && !seen.host(ep.Hostname) {
				return false
			}
		}
	}
	return true
}

// ambiguous says whether the endpoint's hostname is none, or reads like the
// label of another endpoint.
func ambiguous(ep *cluster.Endpoint) bool {
	if ep.Hostname == "" {
		return false
	}
	if len(ep.Hostname) > wire.MaxLabel {
		return true // no API server lets it pass
	}
	_, address := labelled([]byte(ep.Hostname))
	return address
}

// A crowd is addresses and hostnames, each once. It can be used again.
type crowd struct {
	few   []netip.Addr
	hosts []string
	addrs map[netip.Addr]struct{} // in place of few where there are many
	named map[string]struct{}
}

// many is from where on a map is faster than looking at each.
const many = 24

// expect empties it, and says how many there will be at the most.
func (c *crowd) expect(n int) {
	c.few, c.hosts, c.addrs, c.named = c.few[:0], c.hosts[:0], nil, nil
	if n > many {
		c.addrs, c.named = make(map[netip.Addr]struct{}, n), map[string]struct{}{}
	} else if cap(c.few) < n {
		c.few = make([]netip.Addr, 0, many)
	}
}

// addr adds an address, and is false if it is there.
func (c *crowd) addr(ip netip.Addr) bool {
	if c.addrs == nil {
		if slices.Contains(c.few, ip) {
			return false
		}
		c.few = append(c.few, ip)
		return true
	}
	n := len(c.addrs)
	c.addrs[ip] = struct{}{}
	return len(c.addrs) > n
}

// host adds a hostname, and is false if it is there.
func (c *crowd) host(name string) bool {
	if c.named == nil {
		if slices.Contains(c.hosts, name) {
			return false
		}
		c.hosts = append(c.hosts, name)
		return true
	}
	n := len(c.named)
	c.named[name] = struct{}{}
	return len(c.named) > n
}

func (c *crowd) hasAddr(ip netip.Addr) bool {
	if c.addrs == nil {
		return slices.Contains(c.few, ip)
	}
	_, ok := c.addrs[ip]
	return ok
}

func (c *crowd) hasHost(name string) bool {
	if c.named == nil {
		return slices.Contains(c.hosts, name)
	}
	_, ok := c.named[name]
	return ok
}

// unique gives each address once, in order of their first place.
func unique(ips []netip.Addr) []netip.Addr {
	var seen crowd
	seen.expect(len(ips))
	once := make([]netip.Addr, 0, len(ips))
	for _, ip := range ips {
		if seen.addr(ip) {
			once = append(once, ip)
		}
	}
	return once
}

// head is a number that two replicas with equal data agree on: what the answers
// depend on besides the endpoints.
func (e *entry) head() uint32 {
	if !e.exists {
		return 0
	}
	h := fnv(fnvBasis, e.home.key)
	if e.own != nil {
		h = (h ^ e.own.hash) * fnvPrime
	}
	if e.headless {
		h *= fnvPrime // or one without any address of its own would look the same
	} else {
		h = fnv(h, e.records)
	}
	sum := mix(h)
	if e.outside != nil {
		sum += mix(fnv(h*fnvPrime, e.outside.records))
	}
	return sum
}

// members is the sum over all endpoints, in whatever order.
func (e *entry) members() (sum uint32) {
	if !e.exists {
		return 0
	}
	h := fnv(fnvBasis, e.home.key)
	for w := e.walk(selection{}); w.next(); {
		sum += worth(h, w.of, &w.ep)
	}
	return sum
}

// worth is what one endpoint adds to the sum of a Service, whose key has the
// hash h.
func worth(h uint32, of *portSet, ep *cluster.Endpoint) uint32 {
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
