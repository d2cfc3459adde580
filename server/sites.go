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

// everywhere is the address of a socket for both IPv4 and IPv6.
var everywhere = netip.IPv6Unspecified()

// addresses returns the addresses on which a block listens for a key.
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
	wildcard := slices.ContainsFunc(bound, func(a config.Address) bool { return a.IP == everywhere })
	for _, a := range bound {
		if wildcard && a.IP == netip.IPv4Unspecified() {
			continue // :: includes 0.0.0.0
		}
		sites = append(sites, &site{addr: netip.AddrPortFrom(a.IP, k.Port), from: a.From})
	}
	return sites
}

// name returns the address in the form that metrics and messages use.
func (s *site) name() string {
	if s.addr.Addr() == everywhere {
		return fmt.Sprintf("dns://:%d", s.addr.Port())
	}
	return "dns://" + s.addr.String()
}

// limits returns the TCP limits of the address: each from the first block that
// sets it.
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

// sockets returns the number of UDP sockets of the address, or 0 if no block sets
// it.
func (s *site) sockets() (n int) {
	for _, r := range s.routes {
		for _, m := range config.Find[sockets](r.block) {
			n = cmp.Or(n, m.Sockets())
		}
	}
	return n
}

// unserved returns a chain that observes queries in no block's zone, under
// CoreDNS's name for that zone. It returns nil if no directive observes them.
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

// overlaps returns an error for each pair of addresses that cannot be bound
// together: a TCP socket on a wildcard address conflicts with any other socket on
// its port.
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
