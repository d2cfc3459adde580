package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/seamark/seamark/corefile"
)

// An Address is an IP address that a block listens on, without a port. The zone of
// a link-local address is its interface.
type Address struct {
	IP   netip.Addr
	From corefile.Token // its position in the Corefile
}

// Bound returns the addresses that a block listens on: the result of this method of
// the last offered value that has it. None means every address.
func (b *Block) Bound() []Address {
	bound := Find[interface{ Bound() []Address }](b)
	if len(bound) == 0 {
		return nil
	}
	return bound[len(bound)-1].Bound()
}

// Addresses returns the addresses at which clients reach the block: the addresses
// of the directive bind, or the machine's. It omits loopback and link-local
// addresses unless bind has no others.
func (b *Block) Addresses() []netip.Addr {
	var bound, usable []netip.Addr
	for _, a := range b.Bound() {
		if !a.IP.IsUnspecified() {
			bound = append(bound, a.IP.Unmap().WithZone(""))
		}
	}

	candidates := bound
	if len(candidates) == 0 {
		networks, _ := Networks() // after an error there is no glue, and nothing else is lost
		for _, n := range networks {
			candidates = append(candidates, n.Addr().Unmap())
		}
	}

	for _, ip := range candidates {
		if !ip.IsLoopback() && !ip.IsLinkLocalUnicast() {
			usable = append(usable, ip)
		}
	}
	if len(usable) == 0 {
		return bound
	}
	return usable
}

// Networks returns the machine's addresses, each with the prefix length of its
// network.
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

// InterfaceAddresses returns the addresses of a network interface of this
// machine, or none if the interface does not exist.
func InterfaceAddresses(name string) (ips []netip.Addr, err error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(interfaces, func(i net.Interface) bool { return i.Name == name })
	if i < 0 {
		return nil, nil
	}
	addrs, err := interfaces[i].Addrs()
	if err != nil {
		return nil, err
	}

	for _, a := range addrs {
		prefix, bad := netip.ParsePrefix(a.String())
		if bad != nil {
			err = errors.Join(err, bad)
			continue
		}

		ip := prefix.Addr().Unmap()
		if ip.Is6() && ip.IsLinkLocalUnicast() {
			ip = ip.WithZone(name)
		}
		ips = append(ips, ip)
	}
	return ips, err
}

// ParseSource parses the address or the CIDR of clients. The network of an address is the
// address alone. IPv4-mapped IPv6 addresses are returned as IPv4.
func ParseSource(text string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(text); err == nil {
		addr = addr.Unmap().WithZone("")
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}

	p, err := netip.ParsePrefix(text)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("want an address or a CIDR, got %q", text)
	}
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p.Masked(), nil
}

// ParseServer parses the address of a server: an IP address, with a port or without one. The
// default is port 53.
func ParseServer(text string) (netip.AddrPort, error) {
	if ip, err := netip.ParseAddr(text); err == nil {
		return netip.AddrPortFrom(ip.Unmap(), 53), nil
	}
	at, err := netip.ParseAddrPort(text)
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port()), err
}
