package wire

import "encoding/binary"

// digestLens has the lengths of the digests that a type knows, by their algorithm; zero for others.
func (t Type) digestLens() string {
	switch t {
	case TypeDS, TypeCDS, typeTA, typeDLV: // SHA-1, SHA-256, GOST, SHA-384, GOST 2012, SM3
		return "\x00\x14\x20\x20\x30\x20\x20"
	case typeSSHFP: // SHA-1, SHA-256 (RFC 6594 §3)
		return "\x00\x14\x20"
	case TypeZONEMD: // SHA-384, SHA-512 (RFC 8976 §5.3)
		return "\x00\x30\x40"
	case typeTLSA, typeSMIMEA: // SHA-256, SHA-512; 0 is the whole certificate or key (RFC 6698 §2.1.3)
		return "\x00\x20\x40"
	case typeDHCID: // SHA-256 (RFC 4701 §3.4)
		return "\x00\x20"
	}
	return ""
}

// validDigest reports whether a digest of n bytes has the length of its algorithm. One of an
// algorithm that is not known has at least the smallest length that the type allows.
func (t Type) validDigest(algorithm byte, n int) bool {
	if lens := t.digestLens(); int(algorithm) < len(lens) && lens[algorithm] > 0 {
		return n == int(lens[algorithm])
	}
	switch t {
	case TypeZONEMD:
		return n >= 12 // RFC 8976 §2.2.4
	case typeDHCID:
		return true
	}
	return n > 0
}

// validLOC checks RDATA of version 0 (RFC 1876 §2); of others the form is not known.
func validLOC(b []byte) bool {
	if len(b) == 0 || b[0] != 0 {
		return len(b) > 0
	}
	if len(b) != 16 {
		return false
	}
	for _, size := range b[1:4] { // a digit and the exponent of ten
		if size>>4 > 9 || size&15 > 9 {
			return false
		}
	}

	const degree, zero = 3_600_000, 1 << 31 // in thousandths of a second
	latitude, longitude := int64(binary.BigEndian.Uint32(b[4:]))-zero, int64(binary.BigEndian.Uint32(b[8:]))-zero
	return max(latitude, -latitude) <= 90*degree && max(longitude, -longitude) <= 180*degree
}

// validAPL checks a list of address prefixes (RFC 3123 §4), which may be empty. The address has no
// zeros at its end.
func validAPL(b []byte) bool {
	for len(b) > 0 {
		if len(b) < 4 {
			return false
		}
		family, prefix, n := binary.BigEndian.Uint16(b), int(b[2]), int(b[3]&0x7F)
		if n > len(b)-4 || n > 0 && b[4+n-1] == 0 {
			return false
		}

		const ipv4, ipv6 = 1, 2
		if family == ipv4 && (prefix > 32 || n > 4) || family == ipv6 && (prefix > 128 || n > 16) {
			return false
		}
		b = b[4+n:]
	}
	return true
}

// amtDiscovery is the bit D before the type of an AMT relay (RFC 8777 §4.2).
const amtDiscovery = 1 << 7

// gatewayLen returns the length of a gateway or relay of a kind at the start of b (RFC 4025 §2.3, RFC
// 8777 §4.2.3); -1 if it is malformed. One of another kind fills b.
func gatewayLen(kind byte, b []byte) int {
	switch kind {
	case 0:
		return 0
	case 1:
		return 4
	case 2:
		return 16
	case 3:
		return nameLen(b)
	}
	return len(b)
}

// validIPSECKEY reports whether a gateway and a key follow, or no key if there is no algorithm (RFC
// 4025 §2.4).
func validIPSECKEY(b []byte) bool {
	if len(b) < 3 {
		return false
	}
	kind, algorithm, rest := b[1], b[2], b[3:]
	n := gatewayLen(kind, rest)
	switch {
	case kind > 3:
		return true
	case n < 0 || n > len(rest):
		return false
	}
	return (algorithm == 0) == (n == len(rest))
}

// validHIP reports whether a host identity tag, a key and the names of servers follow their lengths
// (RFC 8005 §5).
func validHIP(b []byte) bool {
	if len(b) < 4 {
		return false
	}
	tag, key, rest := int(b[0]), int(binary.BigEndian.Uint16(b[2:])), b[4:]
	if tag == 0 || key == 0 || tag+key > len(rest) {
		return false
	}

	for rest = rest[tag+key:]; len(rest) > 0; {
		n := nameLen(rest)
		if n < 0 {
			return false
		}
		rest = rest[n:]
	}
	return true
}
