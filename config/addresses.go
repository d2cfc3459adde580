package config

import (
	"net"
	"net/netip"
)

// Addresses gives the addresses at which clients reach the block: those it is
// bound to, or those of the machine. Loopback and link-local addresses are left
// out unless the block is bound to nothing else.
func (b *Block) Addresses() []netip.Addr {
	var bound, usable []netip.Addr
	for _, a := range b.Bind {
		if !a.IP.IsUnspecified() {
			bound = append(bound, a.IP.Unmap().WithZone(""))
		}
	}
	all := bound
	if len(all) == 0 {
		addrs, _ := net.InterfaceAddrs() // without them there is no glue; nothing else is lost
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				all = append(all, p.Addr().Unmap())
			}
		}
	}
	for _, ip := range all {
		if !ip.IsLoopback() && !ip.IsLinkLocalUnicast() {
			usable = append(usable, ip)
		}
	}
	if len(usable) == 0 {
		return bound
	}
	return usable
}
