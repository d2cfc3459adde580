package hosts

import (
	"net/netip"

	"github.com/seamark/seamark/wire"
)

// reversed reports whether a name, in wire form and lower case, is in a zone of
// reverse names. addr is its address if it is the name of a single address.
func reversed(name []byte) (addr netip.Addr, in bool) {
	if p, ok := wire.ParseReverse(name); ok && p.IsSingleIP() {
		return p.Addr(), true
	}
	return netip.Addr{}, wire.WithinReverse(name)
}
