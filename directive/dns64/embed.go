package dns64

import (
	"net/netip"

	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/wire"
)

// parsePrefix parses a prefix for IPv6 addresses that contain IPv4 addresses (RFC
// 6052 §2.2).
func parsePrefix(d corefile.Directive, text string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	if err != nil || !p.Addr().Is6() || p.Addr().Is4In6() {
		return p, d.Errorf("want an IPv6 prefix like 64:ff9b::/96, got %q", text)
	}
	switch p.Bits() {
	case 32, 40, 48, 56, 64, 96:
	default:
		return p, d.Errorf("want a length of 32, 40, 48, 56, 64 or 96, got %q", text)
	}
	if p = p.Masked(); p.Addr().As16()[reserved] != 0 {
		return p, d.Errorf("%s: bits 64 to 71 must be zero (RFC 6052)", text)
	}
	return p, nil
}

// reserved is the index of the byte of an address that is always zero (RFC 6052
// §2.2).
const reserved = 8

// embed returns the IPv6 address that consists of the prefix p and ip, with the
// reserved byte left out.
func embed(p netip.Prefix, ip [4]byte) [16]byte {
	out := p.Addr().As16()
	at := p.Bits() / 8
	for _, b := range ip {
		if at == reserved {
			at++
		}
		out[at] = b
		at++
	}
	return out
}

// extract returns the IPv4 address inside from. It returns false if the bits
// after the address are not zero.
func extract(p netip.Prefix, from netip.Addr) (netip.Addr, bool) {
	ip := embedded(p, from)
	return ip, embed(p, ip.As4()) == from.As16()
}

// embedded returns the IPv4 address inside from, whatever the bits after it are.
func embedded(p netip.Prefix, from netip.Addr) netip.Addr {
	in := from.As16()
	var ip [4]byte
	at := p.Bits() / 8
	for i := range ip {
		if at == reserved {
			at++
		}
		ip[i] = in[at]
		at++
	}
	return netip.AddrFrom4(ip)
}

// reverseName returns the reverse name of an address in wire form.
func reverseName(ip netip.Addr) []byte {
	return []byte(wire.ReverseZones(netip.PrefixFrom(ip, ip.BitLen()))[0])
}
