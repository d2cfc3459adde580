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

// Slow makes every handler of a plan that has not been started wait, so that
// each query is answered off its reader. Tests show that the answers are the
// same.
func (p *Plan) Slow() {
	for _, b := range p.blocks {
		b.Chain.Slow()
	}
}
