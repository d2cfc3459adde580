package kubernetes

import (
	"iter"
	"net/netip"
	"slices"
	"strings"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/directive/kubernetes/index"
	"github.com/seamark/seamark/wire"
)

// serverLabels are the labels of the name server, in front of the zone.
const serverLabels = "\x02ns\x03dns"

// nameserver answers for ns.dns, which SOA records name: the addresses at which clients
// reach this server.
func (l *lookup) nameserver() result {
	if !l.haveListedServers() {
		return notListed
	}
	l.serverAddresses(l.serverAddrs(l.ownServices()))
	return isServer
}

// haveListedServers reports whether everything has been listed that ownServices looks at. In a multi-cluster
// zone, too, that is the cluster's own Services.
func (l *lookup) haveListedServers() bool {
	return l.index.HaveListed(cluster.Namespaces, cluster.Services) &&
		l.index.HaveListed(cluster.Namespaces, cluster.Slices)
}

// serverAddresses writes the addresses of the query's family, each once.
func (l *lookup) serverAddresses(all []netip.Addr) {
	for _, t := range [2]wire.Type{wire.TypeA, wire.TypeAAAA} {
		if !l.wants(t) {
			continue
		}
		for _, ip := range index.Unique(all) {
			if index.FamilyOf(ip) == t {
				a := &l.q.Answer
				a.Buf = wire.AppendAddress(a.Buf, wire.OwnerIsQuestion, l.ttl, ip)
				a.Count[wire.Answers]++
			}
		}
	}
}

// serverAddrs returns the addresses of the server's Services; without any, the addresses that
// the server listens on.
func (l *lookup) serverAddrs(servers []nameServer) (all []netip.Addr) {
	if len(servers) == 0 {
		return l.local
	}
	for _, s := range servers {
		all = append(all, s.addrs...)
	}
	return all
}

// A nameServer has the labels of a name server in front of the zone, and its addresses.
type nameServer struct {
	labels string
	addrs  []netip.Addr
}

// nameservers writes the zone's NS records with glue: the server's Services, or ns.dns.
// Only the zone of Services has names of Services.
func (l *lookup) nameservers() {
	servers := l.ownServices()
	if len(servers) == 0 || l.zone.reverse || l.zone.multicluster {
		servers = []nameServer{{l.server, l.serverAddrs(servers)}}
	}
	l.writeNS(servers)
}

// writeNS writes the NS records of name servers, and their addresses.
func (l *lookup) writeNS(servers []nameServer) {
	a, apex := &l.q.Answer, wire.QuestionPointer(l.q.LabelOffset(l.depth))
	for _, s := range servers {
		a.Buf = wire.AppendRecordHeader(a.Buf, wire.OwnerIsQuestion, wire.TypeNS, l.ttl, len(s.labels)+2)
		a.Buf = append(append(a.Buf, s.labels...), apex[:]...)
		a.Count[wire.Answers]++
	}
	for _, s := range servers {
		for _, ip := range index.Unique(s.addrs) {
			a.Buf = wire.AppendAddress(a.Buf, s.labels+string(apex[:]), l.ttl, ip)
			a.Count[wire.Additional]++
		}
	}
}

// dnsService is the Service that selects the DNS servers of a cluster. kubeadm
// makes it, and Kubernetes' own tests expect it.
const dnsService = "\x08kube-dns\x0bkube-system"

// maxOwnServices limits how many Services are considered the server's own: any tenant
// can make Services that have the server's address as an endpoint.
const maxOwnServices = 16

// ownServices returns the Service by which clients reach this server: kube-dns in
// kube-system. Without it, the Services with a ClusterIP that have this server as an
// endpoint. The names of a headless Service's endpoints may change with every restart.
func (l *lookup) ownServices() (found []nameServer) {
	add := func(e *index.Entry) {
		if e.Visible() && !e.Headless && !e.ExternalName && e.Records != "" {
			found = append(found, nameServer{e.Key.Labels + "\x03svc", slices.Collect(e.ClusterIPs())})
		}
	}
	if add(l.index.Service([]byte(dnsService))); len(found) > 0 {
		return found
	}
	for e := range l.servicesWithEndpoint(l.local) {
		add(e)
	}
	slices.SortFunc(found, func(a, b nameServer) int { return strings.Compare(a.labels, b.labels) })
	return slices.CompactFunc(found, func(a, b nameServer) bool { return a.labels == b.labels })
}

// servicesWithEndpoint returns the Services that have an endpoint at one of the
// addresses, up to maxOwnServices for each.
func (l *lookup) servicesWithEndpoint(ips []netip.Addr) iter.Seq[*index.Entry] {
	return func(yield func(*index.Entry) bool) {
		for _, ip := range ips {
			n := 0
			for _, x := range [2]*index.ReverseIndex{l.index.Reverse(), l.index.Claims()} {
				for at := x.Within(netip.PrefixFrom(ip, ip.BitLen())); n < maxOwnServices && at.Advance(); n++ {
					if e := at.Service.Entry(); e.Visible() && hasEndpoint(e, ip) && !yield(e) {
						return
					}
				}
			}
		}
	}
}

// hasEndpoint reports whether an endpoint that is served has the address.
func hasEndpoint(e *index.Entry, ip netip.Addr) bool {
	parts := e.PartsAt(ip)
	for i := range parts {
		for ep := range parts[i].Endpoints().All() {
			if ep.Addr == ip && e.IsServed(&ep) {
				return true
			}
		}
	}
	return false
}
