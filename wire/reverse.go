package wire

import (
	"bytes"
	"net/netip"
	"strconv"
)

// The zones of reverse names.
const (
	InAddrArpa Name = "\x07in-addr\x04arpa\x00" // RFC 1035 §3.5
	IP6Arpa    Name = "\x03ip6\x04arpa\x00"     // RFC 3596 §2.5
)

// WithinReverse reports whether name, in wire form and lower case, is in one of the
// zones of reverse names.
func WithinReverse[N Name | []byte](name N) bool {
	return Within(name, InAddrArpa) || Within(name, IP6Arpa)
}

// ParseReverse returns the addresses whose reverse names are name or below it: one
// address, or a prefix that ends at a label. name is in wire form and lower case.
// ParseReverse returns false for names that are no reverse names, such as names with
// a leading zero.
func ParseReverse(name []byte) (p netip.Prefix, ok bool) {
	if labels, found := bytes.CutSuffix(name, []byte(InAddrArpa)); found {
		return parseOctets(labels)
	}

	labels, found := bytes.CutSuffix(name, []byte(IP6Arpa))
	const digits = 32
	if !found || len(labels) > 2*digits || len(labels)%2 != 0 {
		return p, false
	}

	var ip [16]byte
	for i := range len(labels) / 2 { // the last digit is first
		label := labels[len(labels)-2*i-2:]
		digit := label[1]
		switch {
		case label[0] != 1:
			return p, false
		case '0' <= digit && digit <= '9':
			digit -= '0'
		case 'a' <= digit && digit <= 'f':
			digit -= 'a' - 10
		default:
			return p, false
		}
		ip[i/2] |= digit << (4 * (1 - i%2))
	}
	return netip.PrefixFrom(netip.AddrFrom16(ip), 2*len(labels)), true
}

// parseOctets parses up to four labels with the bytes of an IPv4 address, the last
// byte first.
func parseOctets(labels []byte) (p netip.Prefix, ok bool) {
	var reversed, ip [4]byte
	n := 0
	for ; len(labels) > 0; n++ {
		size := int(labels[0])
		if n == len(ip) || size >= len(labels) {
			return p, false
		}
		if reversed[n], ok = parseOctet(labels[1 : 1+size]); !ok {
			return p, false
		}
		labels = labels[1+size:]
	}

	for i := range n {
		ip[i] = reversed[n-1-i]
	}
	return netip.PrefixFrom(netip.AddrFrom4(ip), 8*n), true
}

// ParseIPv4 parses four numbers separated by sep. It allocates nothing.
func ParseIPv4(text []byte, sep byte) (addr netip.Addr, ok bool) {
	var ip [4]byte
	for i := range ip {
		end := bytes.IndexByte(text, sep)
		if i == 3 {
			end = len(text)
		}
		if end < 0 {
			return addr, false
		}
		if ip[i], ok = parseOctet(text[:end]); !ok {
			return addr, false
		}
		text = text[min(end+1, len(text)):]
	}
	return netip.AddrFrom4(ip), true
}

// parseOctet parses 0 to 255 without leading zeros.
func parseOctet(text []byte) (byte, bool) {
	if len(text) == 0 || len(text) > 3 || len(text) > 1 && text[0] == '0' {
		return 0, false
	}

	v := 0
	for _, c := range text {
		if c < '0' || c > '9' {
			return 0, false
		}
		v = v*10 + int(c-'0')
	}
	return byte(v), v < 256
}

// ReverseZones returns the zones of reverse names that cover p exactly: one if the
// prefix length is at the end of a label (8 bits for IPv4, 4 bits for IPv6),
// otherwise up to 128 zones of the next such length.
func ReverseZones(p netip.Prefix) (zones []Name) {
	addr := p.Masked().Addr().AsSlice()
	width, base, suffix := 8, 10, InAddrArpa
	if p.Addr().Is6() {
		width, base, suffix = 4, 16, IP6Arpa
	}

	labels := (p.Bits() + width - 1) / width
	for n := range 1 << (labels*width - p.Bits()) {
		zone := suffix
		for i := range labels {
			value := int64(addr[i*width/8])
			if width == 4 {
				value = value >> (4 * (1 - i%2)) & 15
			}
			if i == labels-1 {
				value += int64(n)
			}
			zone = Name(AppendLabel(nil, strconv.FormatInt(value, base))) + zone
		}
		zones = append(zones, zone)
	}
	return zones
}
