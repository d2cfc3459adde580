package config

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/wire"
)

// ParseZones reads zones as a directive's arguments give them: names, and
// prefixes (10.96.0.0/12, fd00::/8), which become the reverse zones that cover
// them. Every error is reported; path is what errors begin with.
func ParseZones(path string, args []corefile.Token) ([]wire.Name, error) {
	var zones []wire.Name
	var errs []error
	for _, a := range args {
		z, err := parseZone(a.Text)
		if err != nil {
			errs = append(errs, a.Errorf(path, "%w", err))
		}
		zones = append(zones, z...)
	}
	return zones, errors.Join(errs...)
}

// ZonesOr is ParseZones of d's arguments, or the block's own zones if there are
// none, as CoreDNS has it.
func (b *Block) ZonesOr(d corefile.Directive) ([]wire.Name, error) {
	if len(d.Args) == 0 {
		return b.Zones, nil
	}
	return ParseZones(d.Path, d.Args)
}

func parseZone(s string) ([]wire.Name, error) {
	// A slash may stand in a name too: 0/26.2.0.192.in-addr.arpa (RFC 2317).
	if address, bits, ok := strings.Cut(s, "/"); ok && (number(bits) || strings.Trim(address, "0123456789.") == "") && !strings.Contains(bits, ".") {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return nil, fmt.Errorf("%q is not a CIDR: want one like 10.96.0.0/12 or fd00::/8", s)
		}
		return reverse(p), nil
	}
	if strings.Contains(s, ":") {
		return nil, fmt.Errorf("%q is not a zone: want a name or a CIDR like fd00::/8", s)
	}
	name, err := wire.ParseName(s)
	if err != nil {
		return nil, fmt.Errorf("not a zone: %w", err)
	}
	return []wire.Name{name}, nil
}

func number(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// reverse gives the zones that cover p exactly: one if its length ends at a
// label (8 bits in IPv4, RFC 1035 §3.5; 4 in IPv6, RFC 3596 §2.5), otherwise up
// to 128 of the next length that does.
func reverse(p netip.Prefix) (zones []wire.Name) {
	p = p.Masked()
	addr := p.Addr().AsSlice()
	per, base, suffix := 8, 10, "in-addr.arpa."
	if p.Addr().Is6() {
		per, base, suffix = 4, 16, "ip6.arpa."
	}
	labels := (p.Bits() + per - 1) / per
	digit := func(i int) int {
		if per == 8 {
			return int(addr[i])
		}
		return int(addr[i/2]>>(4*(1-i%2))) & 15
	}
	for n := range 1 << (labels*per - p.Bits()) {
		var name strings.Builder
		for i := labels - 1; i >= 0; i-- {
			v := digit(i)
			if i == labels-1 {
				v += n
			}
			name.WriteString(strconv.FormatInt(int64(v), base) + ".")
		}
		zone, _ := wire.ParseName(name.String() + suffix) // it cannot fail: digits and a suffix
		zones = append(zones, zone)
	}
	return zones
}

// A Key is one zone on one port that a server block answers for.
type Key struct {
	Zone wire.Name
	Port uint16
	From corefile.Token // the key in the Corefile
}

// ParseKey reads a server block's key, scheme://zone:port; scheme and port may
// be left out, and so may the zone of ":53", which is the root. A CIDR may give
// several zones.
func ParseKey(key corefile.Token, port uint16) ([]Key, error) {
	keys, err := parseKey(key, port)
	if err != nil && !key.Shown() {
		return nil, key.Errorf("", "not a server block's key, want ZONE[:PORT]")
	}
	return keys, err
}

func parseKey(key corefile.Token, port uint16) ([]Key, error) {
	text := key.Text
	if scheme, rest, ok := strings.Cut(text, "://"); ok {
		switch scheme {
		case "dns":
		case "tls", "https", "https3", "quic", "grpc":
			return nil, key.Errorf("", "%s: %s:// is known, not supported yet", key.Text, scheme)
		default:
			return nil, key.Errorf("", "%s: unknown scheme %q, want dns://", key.Text, scheme)
		}
		text = rest
	}
	if i := strings.LastIndexByte(text, ':'); i >= 0 && !strings.Contains(text[i:], "/") {
		n, err := strconv.ParseUint(text[i+1:], 10, 16)
		if err != nil {
			return nil, key.Errorf("", "%s: want a port of 0..65535 after the last colon, got %q", key.Text, text[i+1:])
		}
		text, port = text[:i], uint16(n)
		if text == "" {
			text = "."
		}
	}
	zones, err := parseZone(text)
	if err != nil {
		return nil, key.Errorf("", "%w", err)
	}
	var keys []Key
	for _, z := range zones {
		keys = append(keys, Key{z, port, key})
	}
	return keys, nil
}
