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
func (e *entry) external(set externalSettings) *entry {
	out := &entry{home: e.home, facts: e.facts}
	switch x := e.reached; {
	case x != nil && len(x.IPs) > 0:
		// An alias has no addresses beside it (RFC 2181 §10.1): host names count
		// only where there are none.
		out.headless, out.alias, out.exists = false, false, true
		out.setAddresses(x.IPs, set.ttl)
	case x != nil:
		out.alias, out.records, out.ends = true, cname(x.Hosts[0], set.ttl), 0
		out.exists = out.records != ""
	case set.headless && e.headless && e.exists:
		out.exists, out.parts, out.mixed = true, e.parts, e.mixed
		out.setAddresses(slices.Collect(e.addresses()), set.ttl)
	}
	if !out.exists {
		return nil
	}
	return out
}

// fromOutside gives each address by which reverse names find the Service in
// k8s_external.
func (e *entry) fromOutside() iter.Seq[netip.Addr] {
	if e == nil || e.outside == nil || e.reached == nil {
		return slices.Values[[]netip.Addr](nil)
	}
	return slices.Values(e.reached.IPs)
}

// seen gives what k8s_external answers of the entry, if a client may see it.
func (e *entry) seen() *entry {
	if e == nil || !e.outside.visible() {
		return nil
	}
	return e.outside
}

// externalAddresses are those of the Services that this server is an endpoint
// of, as they are reached from outside; if there are none, those that it
// listens on.
func (l *lookup) externalAddresses() (all []netip.Addr) {
	for _, ip := range l.local {
		n := 0
		for at := l.index.reverse.within(only(ip)); n < maxOwnServices && at.advance(); n++ {
			e := l.index.services.Get([]byte(at.service.key))
			if out := e.seen(); out != nil && len(l.asServers(e, ip)) > 0 {
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
func (s *service) atPort() outcome {
	sel := selection{}
	switch {
	case s.left > 2 || s.label(s.left - 1)[0] != '_' || s.left == 2 && s.label(0)[0] != '_':
		return missing
	case s.left == 2:
		sel.port = s.label(0)[1:]
	}
	sel.proto = s.label(s.left - 1)[1:]
	if !s.e.own.has(&sel) {
		return missing
	}
	if s.left == 2 && s.wants(wire.TypeSRV) {
		const head = len(wire.OwnerIsQuestion) + 10
		var room [wire.MaxName]byte
		host := append(room[:0], s.e.records[head:]...)
		ports := s.e.own.selected(&sel)
		for _, port := range ports {
			if len(s.q.Answer.Buf) > s.q.SizeLimit() {
				break
			}
			s.srvTo(len(ports), port, nil, host)
		}
	}
	return present
}
