package kubernetes

import (
	"net/netip"
	"slices"

	"github.com/seamark/seamark/directive/kubernetes/index"
	"github.com/seamark/seamark/wire"
)

// A reverseState finds the Services and pods of one moment, for PTR records.
type reverseState struct {
	entry  func(*index.ServiceKey) *index.Entry // the visible entry of a Service, or nil
	hasPod func(podKey []byte) bool
}

// stateBefore returns the state before the changes in u.
func (g *generator) stateBefore(u *index.Undo) reverseState {
	return reverseState{
		func(k *index.ServiceKey) *index.Entry { return u.Visible(g.view, k.Labels, k.Entry()) },
		u.HadPod,
	}
}

// presentState returns the present state of the index.
func (g *generator) presentState() reverseState {
	return reverseState{
		func(k *index.ServiceKey) *index.Entry { return g.view.Visible(g.index.Service([]byte(k.Labels))) },
		g.index.HasPod,
	}
}

// pointers calls use with each PTR record of an address, which reverseName answers. services
// are all that may have the address, from sortServices.
func (g *generator) pointers(ip netip.Addr, services []*index.ServiceKey, at reverseState, use func([]byte)) {
	g.resolve([]byte(wire.ReverseZones(netip.PrefixFrom(ip, ip.BitLen()))[0]), wire.TypePTR, func(l *lookup) result {
		if g.external != nil {
			return l.writeExternalPointers(ip, services, at)
		}
		return l.writePointers(ip, services, at)
	})
	g.all(use)
}

// sortServices sorts Services as in the reverse index, and removes duplicates.
func sortServices(services []*index.ServiceKey) []*index.ServiceKey {
	slices.SortFunc(services, (*index.ServiceKey).Compare)
	return slices.CompactFunc(services, func(a, b *index.ServiceKey) bool { return a.Labels == b.Labels })
}

// writePointers writes the PTR records of an address: the first Service with the ClusterIP;
// or else the endpoints of Services that have one with a Target; or else all endpoints.
func (l *lookup) writePointers(ip netip.Addr, services []*index.ServiceKey, at reverseState) result {
	for _, own := range [2]bool{true, false} {
		found, skipped := noAddress, ""
		for _, key := range services {
			e := at.entry(key)
			switch isOwner := e != nil && own && e.Has(ip); {
			case isOwner:
				l.q.Answer.Clear()
				l.writePTR(e, nil)
				return isAddress
			case e == nil || key.NamespaceLabel() == skipped || !refersTo(e, ip, own):
				continue
			case l.verifyPTR && !at.hasPod(index.PodKey(nil, key.NamespaceLabel(), ip)):
				skipped = key.NamespaceLabel()
				continue
			}

			for ep := range e.EndpointsAt(ip) {
				l.writePTR(e, ep)
				found = isAddress
			}
		}

		if found == isAddress {
			return found
		}
	}
	return noAddress
}

// writeExternalPointers writes the PTR records of an external address: to every Service that has it.
func (l *lookup) writeExternalPointers(ip netip.Addr, services []*index.ServiceKey, at reverseState) result {
	for _, key := range services {
		if e := at.entry(key); e != nil && e.Has(ip) {
			l.writePTRTo(key.Labels, "", nil)
		}
	}
	return isAddress
}

// refersTo reports whether an endpoint with the address has a Target, or has none.
func refersTo(e *index.Entry, ip netip.Addr, target bool) bool {
	for ep := range e.EndpointsAt(ip) {
		if ep.Target == target {
			return true
		}
	}
	return false
}

// addReverseDifferences adds the differences between the PTR records of the state of u and
// the present ones.
func (g *generator) addReverseDifferences(d *differences, u *index.Undo) {
	prefix, ok := wire.ParseReverse([]byte(g.zone.name))
	if !ok || g.primary == "" {
		return
	}

	services := map[netip.Addr][]*index.ServiceKey{}
	add := func(ip netip.Addr, key *index.ServiceKey) {
		if prefix.Contains(ip) {
			services[ip] = append(services[ip], key)
		}
	}

	for _, c := range u.EntryChanges(g.view) {
		for ep, e := range changedEndpoints(c) {
			add(ep.Addr, e.Key)
		}
		for _, e := range c.Sides() {
			if e != nil {
				for ip := range e.ClusterIPs() {
					add(ip, e.Key)
				}
			}
		}
	}

	if g.verifyPTR {
		for key := range u.ChangedPods() {
			if ip := index.PodAddr(key); prefix.Contains(ip) {
				if _, known := services[ip]; !known {
					services[ip] = nil
				}
			}
		}
	}

	before, now := g.stateBefore(u), g.presentState()
	for ip, keys := range services {
		keys = sortServices(slices.AppendSeq(keys, g.index.ServicesAt(g.view, ip)))
		const recordSize = 64 // about the bytes of a PTR record
		if !d.spend(2 * recordSize * len(keys)) {
			return
		}
		g.pointers(ip, keys, before, func(r []byte) { d.add(r, -1) })
		g.pointers(ip, keys, now, func(r []byte) { d.add(r, 1) })
	}
}
