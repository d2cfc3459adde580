package kubernetes

import (
	"iter"
	"net/netip"
	"slices"

	"github.com/seamark/seamark/wire"
)

// external makes the entry that k8s_external answers from: the Service with the
// addresses by which it is reached from outside in place of its own, or with
// the host name of its load balancer as an alias. It is nil if there is none of
// that, unless a headless Service's endpoints are to be known outside.
func (e *entry) externalEntry(set externalSettings) *entry {
	out := &entry{key: e.key, serviceSpec: e.serviceSpec}
	switch x := e.external; {
	case x != nil && len(x.IPs) > 0:
		// An alias has no addresses beside it (RFC 2181 §10.1): host names count
		// only where there are none.
		out.headless, out.externalName, out.exists = false, false, true
		out.setAddresses(x.IPs, set.ttl)
	case x != nil:
		out.externalName, out.records, out.aEnd = true, cname(x.Hosts[0], set.ttl), 0
		out.exists = out.records != ""
	case set.headless && e.headless && e.exists:
		out.exists, out.parts, out.table = true, e.parts, e.table
		out.setAddresses(slices.Collect(e.addresses()), set.ttl)
	}
	if !out.exists {
		return nil
	}
	return out
}

// fromOutside gives each address by which reverse names find the Service in
// k8s_external.
func (e *entry) externalAddresses() iter.Seq[netip.Addr] {
	if e == nil || e.k8sExternal == nil || e.external == nil {
		return slices.Values[[]netip.Addr](nil)
	}
	return slices.Values(e.external.IPs)
}

// seen gives what k8s_external answers of the entry, if a client may see it.
func (e *entry) visibleExternal() *entry {
	if e == nil || !e.k8sExternal.visible() {
		return nil
	}
	return e.k8sExternal
}

// externalAddresses are those of the Services that this server is an endpoint
// of, as they are reached from outside; if there are none, those that it
// listens on.
func (l *lookup) externalAddresses() (all []netip.Addr) {
	for _, ip := range l.local {
		n := 0
		for at := l.index.reverse.within(blockOf(ip)); n < maxOwnServices && at.advance(); n++ {
			e := l.index.services.Get([]byte(at.service.labels))
			if out := e.visibleExternal(); out != nil && len(l.asServers(e, ip)) > 0 {
				all = slices.AppendSeq(all, out.clusterIPs())
			}
		}
	}
	if len(all) == 0 {
		return l.local
	}
	return all
}

// atPort answers below the name of a Service that a host name stands for. A
// SRV record leads to the host, since its target must not be an alias (RFC
// 2782); addresses have no place beside it.
func (s *serviceLookup) externalPortName() result {
	sel := selection{}
	switch {
	case s.prefix > 2 || s.label(s.prefix - 1)[0] != '_' || s.prefix == 2 && s.label(0)[0] != '_':
		return nameError
	case s.prefix == 2:
		sel.port = s.label(0)[1:]
	}
	sel.protocol = s.label(s.prefix - 1)[1:]
	if !s.entry.ports.has(&sel) {
		return nameError
	}
	if s.prefix == 2 && s.wants(wire.TypeSRV) {
		const head = len(wire.OwnerIsQuestion) + 10
		var room [wire.MaxName]byte
		host := append(room[:0], s.entry.records[head:]...)
		ports := s.entry.ports.selected(&sel)
		for _, port := range ports {
			if len(s.q.Answer.Buf) > s.q.SizeLimit() {
				break
			}
			s.writeSRVTo(len(ports), port, nil, host)
		}
	}
	return answered
}
