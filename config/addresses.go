package config

import (
	"fmt"
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
		networks, _ := Networks() // without them there is no glue; nothing else is lost
		for _, n := range networks {
			all = append(all, n.Addr().Unmap())
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

// Networks gives the machine's addresses, each with the length of its network's
// prefix.
func Networks() ([]netip.Prefix, error) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("reading the machine's addresses: %w", err)
	}
	var networks []netip.Prefix
	for _, a := range addrs {
		if n, err := netip.ParsePrefix(a.String()); err == nil {
			networks = append(networks, n)
		}
	}
	return networks, nil
}
