package hosts

import (
	"net/netip"

	"github.com/seamark/seamark/dns"
)

// The reverse trees (RFC 1035 §3.5, RFC 3596 §2.5).
const (
	reverse4 = "\x07in-addr\x04arpa\x00"
	reverse6 = "\x03ip6\x04arpa\x00"
)

// reversed reports whether the query name is in a reverse tree. addr is its address
// if the name is that of a whole address.
func reversed(q *dns.Query) (addr netip.Addr, in bool) {
	labels := q.Labels()
	if labels < 2 {
		return addr, false
	}
	name := q.Name()
	switch string(name[q.LabelOffset(labels-2):]) {
	case reverse4:
		return address4(name, labels-2), true
	case reverse6:
		return address6(name, labels-2), true
	}
	return addr, false
}

// address4 parses four labels, the last byte first. Numbers with leading zeros are
// other names.
func address4(name []byte, labels int) netip.Addr {
	if labels != 4 {
		return netip.Addr{}
	}
	var b [4]byte
	for i := 3; i >= 0; i-- {
		n := int(name[0])
		label := name[1 : 1+n]
		name = name[1+n:]
		if n > 3 || n > 1 && label[0] == '0' {
			return netip.Addr{}
		}
		value := 0
		for _, c := range label {
			if c < '0' || c > '9' {
				return netip.Addr{}
			}
			value = 10*value + int(c-'0')
		}
		if value > 255 {
			return netip.Addr{}
		}
		b[i] = byte(value)
	}
	return netip.AddrFrom4(b)
}

// address6 parses 32 labels of one digit, the last digit first.
func address6(name []byte, labels int) netip.Addr {
	if labels != 32 {
		return netip.Addr{}
	}
	var b [16]byte
	for i := 31; i >= 0; i-- {
		if name[0] != 1 {
			return netip.Addr{}
		}
		digit := name[1]
		switch {
		case '0' <= digit && digit <= '9':
			digit -= '0'
		case 'a' <= digit && digit <= 'f':
			digit -= 'a' - 10
		default:
			return netip.Addr{}
		}
		b[i/2] |= digit << (4 * (1 - i%2))
		name = name[2:]
	}
	return netip.AddrFrom16(b)
}
