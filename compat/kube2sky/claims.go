package kube2sky

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/seamark/seamark/cluster"
)

// claims are the targets that Services have for reverse names. Several Services
// may claim an address, such as two headless Services with the same endpoints. A
// reverse name has one target (see zone.reverse), which does not depend on the
// order of events: first a Service with this cluster IP, then an endpoint with a
// hostname, then the first by namespace and name.
type claims struct {
	all     map[netip.Addr][]claim
	changes map[netip.Addr]string // previous targets of the addresses that have changed
}

type claim struct {
	entry     *serviceEntry
	host      string // of the endpoint; "" if it has none
	clusterIP bool   // the address is a cluster IP of the Service
}

func newClaims() claims {
	return claims{map[netip.Addr][]claim{}, map[netip.Addr]string{}}
}

// label returns the label before the Service's name; "" if there is none.
func (c claim) label(ip netip.Addr) string {
	switch {
	case c.clusterIP:
		return ""
	case c.host != "":
		return c.host
	}
	return sum(newMessage(ip.String(), 0))
}

func (c claim) compare(d claim) int {
	rank := func(c claim) int {
		switch {
		case c.clusterIP:
			return 0
		case c.host != "":
			return 1
		}
		return 2
	}
	return cmp.Or(cmp.Compare(rank(c), rank(d)), c.entry.key.Compare(d.entry.key), strings.Compare(c.host, d.host))
}

// forEach calls f with each claim that a Service has with the objects in with.
func (cs *claims) forEach(entry, with *serviceEntry, f func(netip.Addr, claim)) {
	if with.service == nil {
		return
	}
	for _, ip := range with.service.ClusterIPs {
		f(ip, claim{entry: entry, clusterIP: true})
	}
	for _, slice := range with.slices {
		cs.forEachOf(entry, with.service, slice, f)
	}
}

// forEachOf calls f with each claim of one EndpointSlice.
func (cs *claims) forEachOf(
	entry *serviceEntry, svc *cluster.Service, slice *cluster.Slice, f func(netip.Addr, claim),
) {
	if svc == nil || !svc.Headless {
		return
	}
	for e := range slice.Endpoints.All() {
		if hasRecords(svc, &e) {
			f(e.Addr, claim{entry: entry, host: e.Hostname})
		}
	}
}

func (cs *claims) add(ip netip.Addr, c claim) {
	cs.touch(ip)
	cs.all[ip] = append(cs.all[ip], c)
}

// remove removes one of several equal claims: two slices may have the same.
func (cs *claims) remove(ip netip.Addr, c claim) {
	cs.touch(ip)
	all := cs.all[ip]
	if i := slices.Index(all, c); i >= 0 {
		all = slices.Delete(all, i, i+1)
	}
	if cs.all[ip] = all; len(all) == 0 {
		delete(cs.all, ip)
	}
}

// best returns the claim that becomes the target.
func (cs *claims) best(ip netip.Addr) (best claim, ok bool) {
	if len(cs.all[ip]) == 0 {
		return claim{}, false
	}
	return slices.MinFunc(cs.all[ip], claim.compare), true
}

func (cs *claims) touch(ip netip.Addr) {
	if _, ok := cs.changes[ip]; !ok {
		cs.changes[ip] = cs.target(ip)
	}
}

func (cs *claims) target(ip netip.Addr) string {
	c, ok := cs.best(ip)
	if !ok {
		return ""
	}
	return c.label(ip) + " " + c.entry.key.Name + " " + c.entry.key.Namespace
}

// changed returns the addresses whose targets have changed since the last call.
func (cs *claims) changed() (ips []netip.Addr) {
	for ip, before := range cs.changes {
		if cs.target(ip) != before {
			ips = append(ips, ip)
		}
	}
	if len(cs.changes) > 64 { // a map never shrinks
		cs.changes = map[netip.Addr]string{}
	} else {
		clear(cs.changes)
	}
	return ips
}
