package index

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/wire"
)

// AppendEndpointLabel appends the label of an endpoint in wire form: its hostname, or its
// address with dashes as in CoreDNS (the specification leaves the choice, D2).
func AppendEndpointLabel(buf []byte, ep cluster.Endpoint) []byte {
	if ep.Hostname != "" {
		return wire.AppendLabel(buf, ep.Hostname)
	}
	at := len(buf)
	buf = AppendDashed(append(buf, 0), ep.Addr)
	buf[at] = byte(len(buf) - at - 1)
	return buf
}

// AppendDashed appends 10.0.0.1 as 10-0-0-1 and fd00::1 as fd00--1. A label may not end
// in a dash, so 0 is appended.
func AppendDashed(buf []byte, ip netip.Addr) []byte {
	at := len(buf)
	buf = ip.AppendTo(buf)
	for i := at; i < len(buf); i++ {
		if buf[i] == '.' || buf[i] == ':' {
			buf[i] = '-'
		}
	}
	if buf[len(buf)-1] == '-' {
		buf = append(buf, '0')
	}
	return buf
}

func FamilyOf(ip netip.Addr) wire.Type {
	if ip.Is4() {
		return wire.TypeA
	}
	return wire.TypeAAAA
}

// AddrOfLabel returns the address that an endpoint's label is made of. Unlike the name of
// a pod, an endpoint's label has only one form.
func AddrOfLabel(label []byte) (netip.Addr, bool) {
	if ip, ok := wire.ParseIPv4(label, '-'); ok { // these have only one form
		return ip, true
	}
	var room [48]byte
	if ip, ok := parseIPv6(label); ok && string(AppendDashed(room[:0], ip)) == string(label) {
		return ip, true
	}
	return netip.Addr{}, false
}

// ParsePodLabel parses the label of a pod's address.
func ParsePodLabel(label []byte) (netip.Addr, bool) {
	if ip, ok := wire.ParseIPv4(label, '-'); ok {
		return ip, true
	}
	return parseIPv6(label)
}

// parseIPv6 parses RFC 4291's first two forms with dashes for colons.
func parseIPv6(text []byte) (netip.Addr, bool) {
	var ip [16]byte
	n, gap := 0, -1 // bytes so far, and where "--" stands among them
	i := 0
	if len(text) >= 2 && text[0] == '-' && text[1] == '-' {
		gap, i = 0, 2
	}

	// Before each turn a group has to follow, unless the text ends with the gap.
	for i < len(text) {
		group, digits := parseGroup(text[i:])
		if digits == 0 || n == len(ip) {
			return netip.Addr{}, false
		}
		ip[n], ip[n+1] = byte(group>>8), byte(group)
		n, i = n+2, i+digits
		if i == len(text) {
			break
		}

		if text[i] != '-' || i+1 == len(text) {
			return netip.Addr{}, false
		}
		if i++; text[i] == '-' {
			if gap >= 0 {
				return netip.Addr{}, false
			}
			gap, i = n, i+1
		}
	}

	switch {
	case gap < 0 && n < len(ip), gap >= 0 && n == len(ip):
		return netip.Addr{}, false
	case gap >= 0: // the bytes after it are the last ones
		copy(ip[len(ip)-(n-gap):], ip[gap:n])
		clear(ip[gap : len(ip)-(n-gap)])
	}
	return netip.AddrFrom16(ip).Unmap(), true
}

// parseGroup parses the hexadecimal digits at the beginning of text. It returns how many there
// are: 1 to 4, or 0 if there are none or more.
func parseGroup(text []byte) (group, digits int) {
	for digits < len(text) {
		d := unhex(text[digits])
		if d < 0 {
			break
		}
		if digits++; digits > 4 {
			return 0, 0
		}
		group = group<<4 | d
	}
	return group, digits
}

func unhex(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	}
	return -1
}

// ValidLabels reports whether a cluster's ID, with its dots, can be part of a name. It is the value of a
// Kubernetes label, which may have two adjacent dots.
func ValidLabels(id string) bool {
	name, err := wire.ParseName(id)
	return err == nil && string(name) == string(AppendLabels(nil, id))+"\x00"
}

// AppendLabels appends the labels of a cluster's ID or of a topology zone, which may have
// dots, without a root label.
func AppendLabels(buf []byte, name string) []byte {
	for name != "" {
		first, rest, _ := strings.Cut(name, ".")
		buf = wire.AppendLabel(buf, first)
		name = rest
	}
	return buf
}

// equalLabels reports whether labels, without a root label, are those of a name with dots.
func equalLabels(labels []byte, name string) bool {
	var room [wire.MaxName]byte
	return string(AppendLabels(room[:0], name)) == string(labels)
}

// EndsIn reports whether labels end in tail, itself a sequence of labels.
func EndsIn(labels, tail []byte) bool {
	for i := 0; i < len(labels); i += int(labels[i]) + 1 {
		if string(labels[i:]) == string(tail) {
			return true
		}
	}
	return false
}

// MaxHashLabel is the length of the longest label that kube-dns makes of an address.
const MaxHashLabel = 16

// HashLabel returns the label that kube-dns makes of an address: see AppendHashLabel.
func HashLabel(ip netip.Addr) string { return string(AppendHashLabel(nil, ip)) }

// AppendHashLabel appends the label that kube-dns makes of an address, without a length
// byte: 6263626163303737 for 1.2.3.4. It is the hash of the SkyDNS message with the
// address in hexadecimal digits, which are encoded in hexadecimal digits again: 16 of
// them, or fewer if the hash begins with zeros. Two addresses may have the same label.
func AppendHashLabel(buf []byte, ip netip.Addr) []byte {
	var digits [8]byte
	const hex = "0123456789abcdef"
	for _, c := range strconv.AppendUint(digits[:0], uint64(hashOf(ip)), 16) {
		buf = append(buf, hex[c>>4], hex[c&15])
	}
	return buf
}

// hashOf returns the hash in the label of an address.
func hashOf(ip netip.Addr) uint32 {
	var room [48]byte
	return fnv(fnv(fnv(fnvBasis, "&{"), ip.AppendTo(room[:0])), " 0 10 10  false 30 0  }")
}

// ParseHashLabel parses a label of AppendHashLabel.
func ParseHashLabel(label []byte) (h uint32, ok bool) {
	if len(label) == 0 || len(label) > MaxHashLabel || len(label)%2 != 0 {
		return 0, false
	}

	for i := 0; i < len(label); i += 2 {
		high, low := unhex(label[i]), unhex(label[i+1])
		if high < 0 || low < 0 {
			return 0, false
		}
		digit := unhex(byte(high<<4 | low))
		if digit < 0 || digit == 0 && i == 0 && len(label) > 2 {
			return 0, false
		}
		h = h<<4 | uint32(digit)
	}
	return h, true
}
