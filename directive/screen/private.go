package screen

import (
	"net/netip"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// localhost lists the addresses of the machine itself. 0.0.0.0 and :: also
// reach it.
var localhost = [...]netip.Prefix{
	netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("0.0.0.0/8"),
	netip.MustParsePrefix("::1/128"), netip.MustParsePrefix("::/128"),
}

// private lists the other private addresses.
var private = [...]netip.Prefix{
	netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("172.16.0.0/12"), netip.MustParsePrefix("192.168.0.0/16"),
	netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("198.51.100.0/24"),
	netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("255.255.255.255/32"),
	netip.MustParsePrefix("fd00::/8"), netip.MustParsePrefix("fe80::/10"), netip.MustParsePrefix("fec0::/10"),
	netip.MustParsePrefix("2001:db8::/32"),
}

func isLocalhost(addr netip.Addr) bool { return within(singleAddr(addr), localhost[:]) }

func isPrivate(addr netip.Addr) bool { return isPrivateNet(singleAddr(addr)) }

func isPrivateNet(p netip.Prefix) bool { return within(p, localhost[:]) || within(p, private[:]) }

// singleAddr returns the prefix of one address. An IPv4-mapped address becomes
// IPv4.
func singleAddr(addr netip.Addr) netip.Prefix {
	addr = addr.Unmap()
	return netip.PrefixFrom(addr, addr.BitLen())
}

// within reports whether one of nets contains p.
func within(p netip.Prefix, nets []netip.Prefix) bool {
	for _, n := range nets {
		if n.Bits() <= p.Bits() && n.Contains(p.Addr()) {
			return true
		}
	}
	return false
}

// privateName reports whether q is for the reverse name of a private address or
// network.
func privateName(q *dns.Query) bool {
	if q.Type != wire.TypePTR && q.Type != wire.TypeANY {
		return false
	}
	p, ok := reversed(q)
	return ok && isPrivateNet(p)
}

// reversed returns the address or network that a reverse name stands for (RFC
// 1035 §3.5, RFC 3596 §2.5).
func reversed(q *dns.Query) (netip.Prefix, bool) {
	const v4, v6 = "\x07in-addr\x04arpa\x00", "\x03ip6\x04arpa\x00"
	n := q.Labels() - 2
	if n < 1 {
		return netip.Prefix{}, false
	}
	name := q.Name()
	zone := string(name[q.LabelOffset(n):])
	var b [16]byte
	for i := range n {
		label := name[q.LabelOffset(n-1-i)+1 : q.LabelOffset(n-i)]
		switch {
		case zone == v4 && n <= 4:
			v, ok := number(label, 10)
			if !ok {
				return netip.Prefix{}, false
			}
			b[i] = v
		case zone == v6 && n <= 32 && len(label) == 1:
			v, ok := number(label, 16)
			if !ok {
				return netip.Prefix{}, false
			}
			b[i/2] |= v << (4 * (1 - i%2))
		default:
			return netip.Prefix{}, false
		}
	}
	if zone == v4 {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte(b[:4])), 8*n), true
	}
	addr, bits := netip.AddrFrom16(b), 4*n
	if addr.Is4In6() && bits >= 96 {
		addr, bits = addr.Unmap(), bits-96
	}
	return netip.PrefixFrom(addr, bits), true
}

// number parses a label of digits with a value up to 255.
func number(label []byte, base int) (byte, bool) {
	if len(label) > 3 || len(label) > 1 && label[0] == '0' {
		return 0, false
	}
	n := 0
	for _, c := range label {
		v := int(c) - '0'
		if base == 16 && 'a' <= c && c <= 'f' {
			v = int(c) - 'a' + 10
		}
		if v < 0 || v >= base || v > 9 && c < 'a' {
			return 0, false
		}
		n = n*base + v
	}
	return byte(n), n <= 255
}
