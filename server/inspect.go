package server

import "net/netip"

// Addresses are where a started plan listens, in the order of the Corefile;
// what was port 0 is the port that was found.
func (p *Plan) Addresses() (at []netip.AddrPort) {
	for _, l := range p.listeners {
		at = append(at, l.Addr())
	}
	return at
}
