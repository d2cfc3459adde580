package dns64

import (
	"net/netip"

	"github.com/seamark/seamark/corefile"
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
	return netip.AddrFrom4(ip), embed(p, ip) == in
}

const (
	arpa6 = "\x03ip6\x04arpa\x00"
	arpa4 = "\x07in-addr\x04arpa\x00"
)

// parseReverse returns the IPv6 address of a reverse name (RFC 3596 §2.5).
func parseReverse(name []byte) (netip.Addr, bool) {
	const digits = 32
	if len(name) != 2*digits+len(arpa6) || string(name[2*digits:]) != arpa6 {
		return netip.Addr{}, false
	}
	var ip [16]byte
	for i := range digits {
		n, v := name[2*i], name[2*i+1]
		switch {
		case n != 1:
			return netip.Addr{}, false
		case '0' <= v && v <= '9':
			v -= '0'
		case 'a' <= v && v <= 'f':
			v -= 'a' - 10
		default:
			return netip.Addr{}, false
		}
		at := digits - 1 - i
		ip[at/2] |= v << (4 * (1 - at%2))
	}
	return netip.AddrFrom16(ip), true
}

// appendReverse appends the reverse name of an IPv4 address to buf, in wire
// format (RFC 1035 §3.5).
func appendReverse(buf []byte, ip netip.Addr) []byte {
	b := ip.As4()
	for i := len(b) - 1; i >= 0; i-- {
		at := len(buf)
		buf = append(buf, 0)
		v := b[i]
		if v >= 100 {
			buf = append(buf, '0'+v/100)
		}
		if v >= 10 {
			buf = append(buf, '0'+v/10%10)
		}
		buf = append(buf, '0'+v%10)
		buf[at] = byte(len(buf) - at - 1)
	}
	return append(buf, arpa4...)
}
