package kube2sky

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/seamark/seamark/cluster"
)

// Claims are which Services would have a reverse name lead to them. Several may want
// the same: endpoints are often those of two headless Services. The name can lead to
// one (see zone.reverse), and that is the same one whatever came first: a Service with
// the address for its own, then an endpoint with a hostname, then by name.
type claims struct {
	first map[netip.Addr]claim   // one of each address
	more  map[netip.Addr][]claim // the others
	moved map[netip.Addr]string  // names that have been touched, and where they led
}

type claim struct {
	of   *held
	host string // of the endpoint; "" if it has none
	own  bool   // the address is the Service's, not an endpoint's
}

func newClaims() claims {
	return claims{map[netip.Addr]claim{}, map[netip.Addr][]claim{}, map[netip.Addr]string{}}
}

// label is what stands before the Service's name.
func (c claim) label(ip netip.Addr) string {
	switch {
	case c.own:
		return ""
	case c.host != "":
		return c.host
	}
	return sum(newMessage(ip.String(), 0))
}

func (c claim) compare(d claim) int {
	rank := func(c claim) int {
		switch {
		case c.own:
			return 0
		case c.host != "":
			return 1
		}
		return 2
	}
	return cmp.Or(cmp.Compare(rank(c), rank(d)),
		strings.Compare(c.of.key.Namespace, d.of.key.Namespace), strings.Compare(c.of.key.Name, d.of.key.Name),
		strings.Compare(c.host, d.host))
}

// all tells each of the claims that a Service has with these objects.
func (cs *claims) all(of, with *held, each func(netip.Addr, claim)) {
	if with.service == nil {
		return
	}
	for _, ip := range with.service.ClusterIPs {
		each(ip, claim{of: of, own: true})
	}
	for _, slice := range with.slices {
		cs.slice(of, with.service, slice, each)
	}
}

// slice tells each of those that one of its slices makes.
func (cs *claims) slice(of *held, svc *cluster.Service, slice *cluster.Slice, each func(netip.Addr, claim)) {
	if svc == nil || !svc.Headless {
		return
	}
	for e := range slice.Endpoints.All() {
		if counts(svc, &e) {
			each(e.Addr, claim{of: of, host: e.Hostname})
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

// remove takes one of several equal claims: two slices may make the same.
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

// best is the claim that counts.
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
	return c.label(ip) + " " + c.of.key.Name + " " + c.of.key.Namespace
}

// changed gives the names that lead elsewhere than before the last call.
func (cs *claims) changed() (ips []netip.Addr) {
	for ip, before := range cs.moved {
		if cs.target(ip) != before {
			ips = append(ips, ip)
		}
	}
	if len(cs.moved) > 64 { // a map keeps the room of its largest day
		cs.moved = map[netip.Addr]string{}
	} else {
		clear(cs.moved)
	}
	return ips
}
