package server

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/transport"
)

// everywhere is one socket for IPv4 and IPv6.
var everywhere = netip.IPv6Unspecified()

// addresses gives where a block is asked for a key.
func (p *Plan) addresses(k config.Key, b *config.Block) (sites []*site) {
	for _, addr := range p.opts.Listen {
		sites = append(sites, &site{addr: addr, from: k.From})
	}
	if len(sites) > 0 {
		return sites
	}
	bound := b.Bound()
	if len(bound) == 0 {
		return []*site{{addr: netip.AddrPortFrom(everywhere, k.Port), from: k.From}}
	}
	all := slices.ContainsFunc(bound, func(a config.Address) bool { return a.IP == everywhere })
	for _, a := range bound {
		if all && a.IP == netip.IPv4Unspecified() {
			continue // :: is that, too
		}
		sites = append(sites, &site{addr: netip.AddrPortFrom(a.IP, k.Port), from: a.From})
	}
	return sites
}

// name is how metrics and people call the address.
func (s *site) name() string {
	if s.addr.Addr() == everywhere {
		return fmt.Sprintf("dns://:%d", s.addr.Port())
	}
	return "dns://" + s.addr.String()
}

// limits are those of the first of the address's blocks that gives one each.
func (s *site) limits() (l transport.Limits) {
	for _, r := range s.routes {
		for _, t := range config.Find[timeouts](r.block) {
			read, write, idle := t.ConnectionTimeouts()
			l.IdleTimeout = cmp.Or(l.IdleTimeout, idle)
			l.MessageTimeout = cmp.Or(l.MessageTimeout, read)
			l.WriteTimeout = cmp.Or(l.WriteTimeout, write)
			l.MaxQueries = cmp.Or(l.MaxQueries, t.MaxTCPQueries())
		}
	}
	return l
}

// sockets is zero if no block says how many.
func (s *site) sockets() (n int) {
	for _, r := range s.routes {
		for _, m := range config.Find[sockets](r.block) {
			n = cmp.Or(n, m.Sockets())
		}
	}
	return n
}

// unserved is the chain for the queries that no block has, under the zone that
// CoreDNS gives them; nil if nobody looks at them.
func (s *site) unserved() *dns.Chain {
	for _, r := range s.routes {
		for _, u := range config.Find[unserved](r.block) {
			c := &dns.Chain{Server: s.name(), Zone: "dropped"}
			c.Observe(u.Unserved(c))
			return c
		}
	}
	return nil
}

// overlaps finds addresses that cannot be listened on together: a TCP socket on
// all addresses keeps every other from its port.
func (p *Plan) overlaps() (errs []error) {
	for i, s := range p.sites {
		for _, other := range p.sites[:i] {
			if s.addr.Port() == 0 || s.addr.Port() != other.addr.Port() || !covers(s.addr.Addr(), other.addr.Addr()) && !covers(other.addr.Addr(), s.addr.Addr()) {
				continue
			}
			errs = append(errs, s.from.Errorf("", "%s and %s (%s:%d) cannot both be listened on: give each of these blocks a bind with single addresses",
				s.name(), other.name(), other.from.File, other.from.Line))
		}
	}
	return errs
}

func covers(wildcard, a netip.Addr) bool {
	return wildcard == everywhere || wildcard == netip.IPv4Unspecified() && a.Is4() || wildcard == netip.IPv4Unspecified() && a == everywhere
}
