package kube

import (
	"bytes"
	"net/netip"
	"slices"

	"github.com/seamark/seamark/wire"
)

// nameserver answers for ns.dns below the zone: the addresses that this server
// listens on.
func (l *lookup) nameserver() outcome {
	for _, t := range [2]wire.Type{wire.TypeA, wire.TypeAAAA} {
		if !l.wants(t) {
			continue
		}
		for _, ip := range l.local {
			if familyOf(ip) == t {
				a := &l.q.Answer
				a.Buf = wire.AppendAddress(a.Buf, wire.OwnerIsQuestion, l.ttl, ip)
				a.Count[wire.Answers]++
			}
		}
	}
	return present
}

// An ns is a name server: its labels in front of the zone, and its addresses.
type ns struct {
	labels    string
	addresses []netip.Addr
}

// nameservers writes the NS records of the zone with glue: the Services that
// one of our own addresses is an endpoint of (kube-dns, as a rule), or ns.dns.
func (l *lookup) nameservers() {
	servers := l.ownServices()
	if len(servers) == 0 {
		server := ns{labels: "\x02ns\x03dns"}
		for _, ip := range l.local {
			server.addresses = append(server.addresses, ip)
		}
		servers = []ns{server}
	}
	a, apex := &l.q.Answer, wire.Pointer(l.q.Offset(l.below))
	for _, s := range servers {
		a.Buf = wire.AppendHead(a.Buf, wire.OwnerIsQuestion, wire.TypeNS, l.ttl, len(s.labels)+2)
		a.Buf = append(append(a.Buf, s.labels...), apex[:]...)
		a.Count[wire.Answers]++
	}
	for _, s := range servers {
		for _, ip := range s.addresses {
			a.Buf = wire.AppendAddress(a.Buf, s.labels+string(apex[:]), l.ttl, ip)
			a.Count[wire.Additional]++
		}
	}
}

// ownServices finds the Services that this server is an endpoint of. It is only
// for the cluster's own zone: names of it are in no other.
func (l *lookup) ownServices() []ns {
	if l.zone.reverse || l.zone.multicluster {
		return nil
	}
	var found []ns
	for _, ip := range l.local {
		addr := address(ip.As16())
		for p := range l.index.reverse.from(addr) {
			if p.addr != addr {
				break
			}
			if e := l.index.services.Get([]byte(p.home.key)); e.visible() {
				found = append(found, e.asServers(addr)...)
			}
		}
	}
	slices.SortFunc(found, func(a, b ns) int { return bytes.Compare([]byte(a.labels), []byte(b.labels)) })
	return slices.CompactFunc(found, func(a, b ns) bool { return a.labels == b.labels })
}

// asServers gives the names by which clients reach e's endpoint addr: the
// Service itself or, if it is headless, the endpoint.
func (e *entry) asServers(addr address) (found []ns) {
	name := e.home.key + "\x03svc"
	for _, g := range e.groups {
		for ep := range g.endpoints.All() {
			switch {
			case ep.Addr.As16() != addr:
			case e.service.Headless:
				found = append(found, ns{string(appendEndpointLabel(nil, ep)) + name, []netip.Addr{ep.Addr}})
			default:
				server := ns{labels: name}
				for _, ip := range e.service.ClusterIPs {
					server.addresses = append(server.addresses, ip)
				}
				return []ns{server}
			}
		}
	}
	return found
}
