package server

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"net/netip"
	"slices"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/transport"
	"github.com/seamark/seamark/transport/streams"
)

// everywhere is the address of a socket for both IPv4 and IPv6.
var everywhere = netip.IPv6Unspecified()

// addresses returns the addresses on which a block listens for a key.
func (p *Plan) addresses(k config.Key, b *config.Block) (sites []*site) {
	for _, addr := range p.opts.Listen {
		if k.Scheme != config.DNS {
			addr = netip.AddrPortFrom(addr.Addr(), 0)
		}
		sites = append(sites, &site{scheme: k.Scheme, addr: addr, from: k.From})
	}
	if len(sites) > 0 {
		return sites
	}
	bound := b.Bound()
	if len(bound) == 0 {
		return []*site{{scheme: k.Scheme, addr: netip.AddrPortFrom(everywhere, k.Port), from: k.From}}
	}
	wildcard := slices.ContainsFunc(bound, func(a config.Address) bool { return a.IP == everywhere })
	for _, a := range bound {
		if wildcard && a.IP == netip.IPv4Unspecified() {
			continue // :: includes 0.0.0.0
		}
		sites = append(sites, &site{scheme: k.Scheme, addr: netip.AddrPortFrom(a.IP, k.Port), from: a.From})
	}
	return sites
}

// name returns the address in the form that metrics and messages use.
func (s *site) name() string {
	if s.addr.Addr() == everywhere {
		return fmt.Sprintf("%s://:%d", s.scheme, s.addr.Port())
	}
	return string(s.scheme) + "://" + s.addr.String()
}

// findAt returns the values of type T that the directives of the address's blocks offer, in
// the order of the blocks: see config.Find.
func findAt[T any](s *site) (found []T) {
	for _, r := range s.routes {
		found = append(found, config.Find[T](r.block)...)
	}
	return found
}

// limits returns the TCP limits of the address: each from the first block that
// sets it.
func (s *site) limits() (l transport.Limits) {
	for _, t := range findAt[timeouts](s) {
		read, write, idle := t.ConnectionTimeouts()
		l.IdleTimeout = cmp.Or(l.IdleTimeout, idle)
		l.MessageTimeout = cmp.Or(l.MessageTimeout, read)
		l.WriteTimeout = cmp.Or(l.WriteTimeout, write)
		l.MaxQueries = cmp.Or(l.MaxQueries, t.MaxTCPQueries())
	}
	return l
}

// streamLimits returns the limits of the address's connections: the limits of the first
// block that sets some, or the defaults.
func (s *site) streamLimits() streams.Limits {
	for _, l := range findAt[streamLimits](s) {
		if scheme, limits := l.StreamLimits(); scheme == s.scheme {
			return streams.Limits(limits)
		}
	}
	return streams.Limits(s.scheme.StandardLimits())
}

// proxies returns the options for the address's proxies: the options of the first block
// that has some, or nil. TLVs are kept if any block uses them.
func (s *site) proxies() *transport.ProxyOptions {
	found := findAt[proxyHeaders](s)
	if len(found) == 0 {
		return nil
	}

	h := found[0].ProxyHeaders()
	return &transport.ProxyOptions{
		Trusted:     h.Trusted,
		Others:      transport.ProxyPolicy(h.Others),
		SessionTime: h.SessionTime,
		Sessions:    h.Sessions,
		KeepTLVs:    slices.ContainsFunc(found, func(p proxyHeaders) bool { return p.ProxyHeaders().KeepTLVs }),
	}
}

// sockets returns the number of UDP sockets of the address, or 0 if no block sets
// it.
func (s *site) sockets() (n int) {
	for _, m := range findAt[sockets](s) {
		n = cmp.Or(n, m.Sockets())
	}
	return n
}

// unserved returns a chain that observes queries in no block's zone, under
// CoreDNS's name for that zone. It returns nil if no directive observes them.
func (s *site) unserved() *dns.Chain {
	for _, u := range findAt[unserved](s) {
		c := &dns.Chain{Server: s.name(), Zone: "dropped"}
		c.Observe(u.Unserved(c))
		return c
	}
	return nil
}

// tls returns the source of the address's TLS configuration, or nil if it has none.
func (s *site) tls() func() *tls.Config {
	for _, t := range findAt[serverTLS](s) {
		return t.ServerTLS
	}
	return nil
}

// tlsErrors returns an error for each address that has no certificate, or two.
func (p *Plan) tlsErrors() (errs []error) {
	for _, s := range p.sites {
		var found serverTLS
		for _, r := range s.routes {
			for _, t := range config.Find[serverTLS](r.block) {
				if s.scheme != config.DNS && found != nil && found.TLSFiles() != t.TLSFiles() {
					errs = append(errs, r.key.From.Errorf("", "server blocks that listen on %s have different "+
						"certificates: use the same tls directive, or other addresses", s.name()))
				}
				found = t
			}
		}

		if found == nil && s.scheme.NeedsTLS() {
			errs = append(errs, s.from.Errorf("", "%s:// needs a certificate: add the directive tls", s.scheme))
		}
	}
	return errs
}

// overlaps returns an error for each pair of addresses that cannot be bound
// together: a socket on a wildcard address conflicts with any other socket of the same
// protocol on its port.
func (p *Plan) overlaps() (errs []error) {
	onPort := map[uint16][]*site{}
	wildcards, single := map[uint16][]*site{}, map[netip.AddrPort][]*site{}
	for _, s := range p.sites {
		port := s.addr.Port()
		if port == 0 {
			continue
		}

		// Without a wildcard among them, only equal addresses overlap: many zones may share
		// a port at many addresses.
		before := onPort[port]
		if !s.addr.Addr().IsUnspecified() {
			before = slices.Concat(wildcards[port], single[s.addr])
			single[s.addr] = append(single[s.addr], s)
		} else {
			wildcards[port] = append(wildcards[port], s)
		}
		onPort[port] = append(onPort[port], s)

		for _, other := range before {
			sameProtocol := s.scheme.UDP() && other.scheme.UDP() || s.scheme.TCP() && other.scheme.TCP()
			if sameProtocol && overlap(s.addr.Addr(), other.addr.Addr()) {
				errs = append(errs, s.from.Errorf("", "%s and %s (%s:%d) cannot both be listened on: "+
					"give each of these blocks a bind with single addresses",
					s.name(), other.name(), other.from.File, other.from.Line))
			}
		}
	}
	return errs
}

// overlap reports whether sockets with one port on a and b receive the same packets.
func overlap(a, b netip.Addr) bool { return a == b || covers(a, b) || covers(b, a) }

func covers(wildcard, a netip.Addr) bool {
	return wildcard == everywhere || wildcard == netip.IPv4Unspecified() && (a.Is4() || a == everywhere)
}
