package server

import (
	"net"
	"net/netip"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
)

// An httpListener listens for HTTP requests (health, ready, prometheus and
// others). Listeners whose addresses have the same text share one socket.
type httpListener interface {
	HTTPAddress() (addr string, from corefile.Directive)
}

// httpOverlaps returns an error for each HTTP address that overlaps with another
// one or with an address for DNS over TCP. ofFlag is that of the directive for which a flag stands.
func (p *Plan) httpOverlaps() (errs []error, ofFlag error) {
	type listener struct {
		name string
		from corefile.Token
		addr netip.AddrPort
	}
	onPort, seen := map[uint16][]listener{}, map[string]bool{}
	add := func(l listener) { onPort[l.addr.Port()] = append(onPort[l.addr.Port()], l) }
	for _, s := range p.sites {
		if s.scheme.TCP() {
			add(listener{s.name(), s.from, s.addr})
		}
	}

	for _, b := range p.blocks {
		for _, h := range config.Find[httpListener](b) {
			name, from := h.HTTPAddress()
			addr, ok := parseHTTPAddress(name)
			if !ok || addr.Port() == 0 {
				continue // unknown until it listens
			}

			for _, l := range onPort[addr.Port()] {
				if l.name == name || !overlap(addr.Addr(), l.addr.Addr()) {
					continue
				}
				switch {
				case from.OfFlag():
					ofFlag = flagOverlap(from.Token, name, l.name, l.from)
				case l.from.OfFlag():
					ofFlag = flagOverlap(l.from, l.name, name, from.Token)
				default:
					errs = append(errs, from.Errorf("%s and %s (%s:%d) cannot both be listened on: "+
						"give one of them another port", name, l.name, l.from.File, l.from.Line))
				}
				break
			}
			if !seen[name] { // thousands of blocks may share a socket
				seen[name] = true
				add(listener{name, from.Token, addr})
			}
		}
	}
	return errs, ofFlag
}

func flagOverlap(flag corefile.Token, address, other string, at corefile.Token) error {
	return flag.Errorf("", "%s and %s (%s:%d) cannot both be listened on: its pages are not served",
		address, other, at.File, at.Line)
}

// parseHTTPAddress parses the address of an HTTP listener. ok is false for host
// names other than localhost.
func parseHTTPAddress(text string) (addr netip.AddrPort, ok bool) {
	host, service, err := net.SplitHostPort(text)
	if err != nil {
		return addr, false
	}
	port, err := net.LookupPort("tcp", service)
	if err != nil {
		return addr, false
	}

	ip := everywhere
	switch host {
	case "":
	case "localhost":
		ip = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	default:
		if ip, err = netip.ParseAddr(host); err != nil {
			return addr, false
		}
	}
	return netip.AddrPortFrom(ip.Unmap(), uint16(port)), true
}
