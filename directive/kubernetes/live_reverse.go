package kubernetes

import (
	"iter"
	"net/netip"
	"slices"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone/ordered"
)

// A reverseState finds the Services and pods of one moment, for PTR records.
type reverseState struct {
	entry  func(*serviceKey) *entry // the visible entry of a Service, or nil
	hasPod func(podKey []byte) bool
}

// state returns the state before the changes in u.
func (u *undo) state() reverseState {
	return reverseState{func(k *serviceKey) *entry { return u.visible(false, k.labels, k.entry.Load()) }, u.hadPod}
}

// state returns the present state.
func (ix *Index) state() reverseState {
	return reverseState{func(k *serviceKey) *entry {
		if e := ix.services.Get([]byte(k.labels)); e.visible() {
			return e
		}
		return nil
	}, func(key []byte) bool { return ix.pods.Get(key) != nil }}
}

// pointers calls use with each PTR record of an address, which reverseName answers. services
// are all that may have the address, from sortServices.
func (g *generator) pointers(ip netip.Addr, services []*serviceKey, at reverseState, use func([]byte)) {
	g.resolve([]byte(wire.ReverseZones(netip.PrefixFrom(ip, ip.BitLen()))[0]), wire.TypePTR, func(l *lookup) result {
		return l.writePointers(ip, services, at)
	})
	g.all(use)
}

// sortServices sorts Services as in the reverse index, and removes duplicates.
func sortServices(services []*serviceKey) []*serviceKey {
	slices.SortFunc(services, (*serviceKey).compare)
	return slices.CompactFunc(services, func(a, b *serviceKey) bool { return a.labels == b.labels })
}

// writePointers writes the PTR records of an address: the first Service with the ClusterIP;
// or else the endpoints of Services that have one with a Target; or else all endpoints.
func (l *lookup) writePointers(ip netip.Addr, services []*serviceKey, at reverseState) result {
	for _, own := range [2]bool{true, false} {
		found, skipped := nameError, ""
		for _, key := range services {
			e := at.entry(key)
			switch isOwner := e != nil && own && e.has(ip); {
			case e == nil || key.namespaceLabel() == skipped || !isOwner && !e.refersTo(ip, own):
				continue
			case isOwner:
				l.q.Answer.Clear()
				l.writePTR(e, nil)
				return answered
			case l.verifyPTR && !at.hasPod(podKey(nil, key.namespaceLabel(), ip)):
				skipped = key.namespaceLabel()
				continue
			}
			for ep := range e.endpointsAt(ip) {
				l.writePTR(e, ep)
				found = answered
			}
		}
		if found == answered {
			return found
		}
	}
	return nameError
}

// refersTo reports whether an endpoint with the address has a Target, or has none.
func (e *entry) refersTo(ip netip.Addr, target bool) bool {
	for ep := range e.endpointsAt(ip) {
		if ep.Target == target {
			return true
		}
	}
	return false
}

// endpointsAt returns the endpoints with an address that answers include. An endpoint is
// valid until the next one.
func (e *entry) endpointsAt(ip netip.Addr) iter.Seq[*cluster.Endpoint] {
	return func(yield func(*cluster.Endpoint) bool) {
		parts := e.partsAt(ip)
		var ep cluster.Endpoint
		for i := range parts {
			for rest := parts[i].endpoints(); rest != "" && !rest.HasNames(); {
				if rest = rest.Next(&ep); ep.Addr == ip && e.isServed(&ep) && !yield(&ep) {
					return
				}
			}
		}
	}
}

// addReverseDifferences adds the differences between the PTR records of the state of u and
// the present ones.
func (g *generator) addReverseDifferences(d *differences, u *undo) {
	prefix, ok := wire.ParseReverse([]byte(g.zone.name))
	if !ok || g.primary == "" {
		return
	}
	services := map[netip.Addr][]*serviceKey{}
	add := func(ip netip.Addr, key *serviceKey) {
		if prefix.Contains(ip) {
			services[ip] = append(services[ip], key)
		}
	}
	for _, c := range u.entryChanges(false) {
		for ep, e := range c.endpoints() {
			add(ep.Addr, e.key)
		}
		for _, e := range c.sides() {
			if e != nil {
				for ip := range e.clusterIPs() {
					add(ip, e.key)
				}
			}
		}
	}
	if g.verifyPTR {
		for key := range u.pods {
			if ip := podAddr(key); prefix.Contains(ip) {
				setOnce(services, ip, nil)
			}
		}
	}
	before, now := u.state(), g.index.state()
	for ip, keys := range services {
		keys = sortServices(slices.AppendSeq(keys, g.index.servicesAt(ip)))
		const recordSize = 64 // about the bytes of a PTR record
		if !d.spend(2 * recordSize * len(keys)) {
			return
		}
		g.pointers(ip, keys, before, func(r []byte) { d.add(r, -1) })
		g.pointers(ip, keys, now, func(r []byte) { d.add(r, 1) })
	}
}

// servicesAt returns the Services that refer to an address.
func (ix *Index) servicesAt(ip netip.Addr) iter.Seq[*serviceKey] {
	return func(yield func(*serviceKey) bool) {
		for _, x := range [2]*reverseIndex{&ix.reverse, &ix.claims} {
			for at := x.within(netip.PrefixFrom(ip, ip.BitLen())); at.advance(); {
				if !yield(at.service) {
					return
				}
			}
		}
	}
}

// A refCursor moves over the references of leaves of a reverse index, in order.
type refCursor struct {
	leaves []*addrLeaf
	i      int // of the next reference in the first leaf
}

// addr returns the address of the next reference; it is invalid at the end.
func (c *refCursor) addr() (ip netip.Addr) {
	for len(c.leaves) > 0 && c.i == len(c.leaves[0].services) {
		c.leaves, c.i = c.leaves[1:], 0
	}
	if len(c.leaves) > 0 {
		ip, _ = netip.AddrFromSlice(c.leaves[0].addr(c.i))
	}
	return ip
}

// appendAt appends the Services that refer to an address, which must not be after the next
// reference.
func (c *refCursor) appendAt(ip netip.Addr, to []*serviceKey) []*serviceKey {
	for c.addr() == ip {
		to = append(to, c.leaves[0].services[c.i])
		c.i++
	}
	return to
}

// newRefCursor returns a cursor over the references to addresses of the prefix's family.
func (r *reverseIndex) newRefCursor(prefix netip.Prefix) *refCursor {
	var x *ordered.Index[addrLeaf, *addrLeaf] = &r.ipv6
	if prefix.Addr().Is4() {
		x = &r.ipv4
	}
	return &refCursor{leaves: x.Leaves()}
}
