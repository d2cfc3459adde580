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
	first map[netip.Addr]claim   // one claim of each address
	more  map[netip.Addr][]claim // the other claims
	moved map[netip.Addr]string  // previous targets of the addresses changed since the last call of changed
}

type claim struct {
	entry     *serviceEntry
	host      string // of the endpoint; "" if it has none
	clusterIP bool   // the address is a cluster IP of the Service
}

func newClaims() claims {
	return claims{map[netip.Addr]claim{}, map[netip.Addr][]claim{}, map[netip.Addr]string{}}
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
	return cmp.Or(cmp.Compare(rank(c), rank(d)),
		strings.Compare(c.entry.key.Namespace, d.entry.key.Namespace), strings.Compare(c.entry.key.Name, d.entry.key.Name),
		strings.Compare(c.host, d.host))
}

// forEach calls f with each claim that a Service has if its objects are those of
// with.
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
func (cs *claims) forEachOf(entry *serviceEntry, svc *cluster.Service, slice *cluster.Slice, f func(netip.Addr, claim)) {
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
	if _, ok := cs.first[ip]; !ok {
		cs.first[ip] = c
	} else {
		cs.more[ip] = append(cs.more[ip], c)
	}
}

// remove removes one of several equal claims: two slices may have the same.
func (cs *claims) remove(ip netip.Addr, c claim) {
	cs.touch(ip)
	more := cs.more[ip]
	if i := slices.Index(more, c); i >= 0 {
		more = slices.Delete(more, i, i+1)
	} else if len(more) > 0 && cs.first[ip] == c {
		cs.first[ip] = more[len(more)-1]
		more = more[:len(more)-1]
	} else if cs.first[ip] == c {
		delete(cs.first, ip)
	}
	if len(more) > 0 {
		cs.more[ip] = more
	} else {
		delete(cs.more, ip)
	}
}

// best returns the claim that becomes the target.
func (cs *claims) best(ip netip.Addr) (best claim, ok bool) {
	best, ok = cs.first[ip]
	for _, c := range cs.more[ip] {
		if c.compare(best) < 0 {
			best = c
		}
	}
	return best, ok
}

func (cs *claims) touch(ip netip.Addr) {
	if _, ok := cs.moved[ip]; !ok {
		cs.moved[ip] = cs.target(ip)
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
	for ip, before := range cs.moved {
		if cs.target(ip) != before {
			ips = append(ips, ip)
		}
	}
	if len(cs.moved) > 64 { // a map never shrinks
		cs.moved = map[netip.Addr]string{}
	} else {
		clear(cs.moved)
	}
	return ips
}
