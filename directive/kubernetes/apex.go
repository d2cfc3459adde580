package kubernetes

import (
	"bytes"
	"net/netip"
	"slices"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/wire"
)

// serverLabels is where the name server of a zone is in it.
const serverLabels = "\x02ns\x03dns"

// nameserver answers for ns.dns below the zone, which the SOA record names: the
// addresses at which clients reach this server.
func (l *lookup) nameserver() result {
	if !l.haveListed(cluster.Slices) {
		return notListed
	}
	l.serverAddresses(l.serverAddrs(l.ownServices()))
	return answered
}

// serverAddresses writes the addresses of the family that is asked for, each
// once.
func (l *lookup) serverAddresses(all []netip.Addr) {
	for _, t := range [2]wire.Type{wire.TypeA, wire.TypeAAAA} {
		if !l.wants(t) {
			continue
		}
		for ip := range once(all) {
			if familyOf(ip) == t {
				a := &l.q.Answer
				a.Buf = wire.AppendAddress(a.Buf, wire.OwnerIsQuestion, l.ttl, ip)
				a.Count[wire.Answers]++
			}
		}
	}
}

// reachable gives the addresses of our own Services; if there are none, those
// that we listen on.
func (l *lookup) serverAddrs(servers []nameServer) (all []netip.Addr) {
	if len(servers) == 0 {
		return l.local
	}
	for _, s := range servers {
		all = append(all, s.addrs...)
	}
	return all
}

// An ns is a name server: its labels in front of the zone, and its addresses.
type nameServer struct {
	labels string
	addrs  []netip.Addr
}

// nameservers writes the NS records of the zone with glue: the Services that
// one of our own addresses is an endpoint of (kube-dns, as a rule), or ns.dns.
// Names of Services are in the cluster's own zone alone.
func (l *lookup) nameservers() {
	servers := l.ownServices()
	if len(servers) == 0 || l.zone.reverse || l.zone.multicluster {
		servers = []nameServer{{l.server, l.serverAddrs(servers)}}
	}
	l.writeNS(servers)
}

// servedBy writes the NS records of these name servers, and their addresses.
func (l *lookup) writeNS(servers []nameServer) {
	a, apex := &l.q.Answer, wire.QuestionPointer(l.q.LabelOffset(l.depth))
	for _, s := range servers {
		a.Buf = wire.AppendRecordHeader(a.Buf, wire.OwnerIsQuestion, wire.TypeNS, l.ttl, len(s.labels)+2)
		a.Buf = append(append(a.Buf, s.labels...), apex[:]...)
		a.Count[wire.Answers]++
	}
	for _, s := range servers {
		for ip := range once(s.addrs) {
			a.Buf = wire.AppendAddress(a.Buf, s.labels+string(apex[:]), l.ttl, ip)
			a.Count[wire.Additional]++
		}
	}
}

// dnsService is the Service that selects the cluster's DNS servers, as kubeadm and
// the API's own tests have it.
const dnsService = "\x08kube-dns\x0bkube-system"

// maxOwnServices bounds how many Services are considered as the server's own. Any
// tenant can make Services that have the server's address as an endpoint.
const maxOwnServices = 16

// ownServices finds the Service that clients reach this server by: kube-dns in
// kube-system. If there is none, it is those that this server is an endpoint of.
func (l *lookup) ownServices() []nameServer {
	if e := l.index.services.Get([]byte(dnsService)); e.visible() && !e.headless && !e.externalName && e.records != "" {
		return []nameServer{{dnsService + "\x03svc", slices.Collect(e.clusterIPs())}}
	}
	var found []nameServer
	for _, ip := range l.local {
		n := 0
		for at := l.index.reverse.within(blockOf(ip)); n < maxOwnServices && at.advance(); n++ {
			if e := l.index.services.Get([]byte(at.service.labels)); e.visible() {
				found = append(found, l.asServers(e, ip)...)
			}
		}
	}
	slices.SortFunc(found, func(a, b nameServer) int { return bytes.Compare([]byte(a.labels), []byte(b.labels)) })
	return slices.CompactFunc(found, func(a, b nameServer) bool { return a.labels == b.labels })
}

// asServers gives the names by which clients reach e's endpoint ip: the Service
// itself or, if it is headless, the endpoint, with the addresses of that name.
func (h *Handler) asServers(e *entry, ip netip.Addr) (found []nameServer) {
	name := e.key.labels + "\x03svc"
	w := e.endpoints(selection{})
	for w.parts = e.partsAt(ip); w.next() && len(found) < maxOwnServices; {
		switch {
		case w.ep.Addr != ip:
		case e.headless:
			label := h.appendLabel(nil, w.ep)
			found = append(found, nameServer{string(label) + name, e.addressesOf(h.selectLabel(label[1:]))})
		case e.records != "":
			return []nameServer{{name, slices.Collect(e.clusterIPs())}}
		}
	}
	return found
}

// behind lists the addresses that sel selects, up to maxOwnServices.
func (e *entry) addressesOf(sel selection) (ips []netip.Addr) {
	for w := e.endpoints(sel); len(ips) < maxOwnServices && w.next(); {
		ips = append(ips, w.ep.Addr)
	}
	return ips
}
