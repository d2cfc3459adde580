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
	netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("172.16.0.0/12"),
	netip.MustParsePrefix("192.168.0.0/16"), netip.MustParsePrefix("169.254.0.0/16"),
	netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("198.51.100.0/24"),
	netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("255.255.255.255/32"),
	netip.MustParsePrefix("fd00::/8"), netip.MustParsePrefix("fe80::/10"),
	netip.MustParsePrefix("fec0::/10"), netip.MustParsePrefix("2001:db8::/32"),
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

// reversed returns the address or network that a reverse name stands for. An
// IPv4-mapped one becomes IPv4.
func reversed(q *dns.Query) (netip.Prefix, bool) {
	p, ok := wire.ParseReverse(q.Name())
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p, ok
}
