package wire

import (
	"bytes"
	"encoding/binary"
	"unicode/utf8"
)

// rdataFormats are the fields of the RDATA of types whose names are not compressed, in order. They
// are empty for addresses, and types that are unknown or that AppendRecord checks:
//
//	1, 2, 4  a number of as many bytes
//	*, +     any other bytes; at least one
//	s, S, o  a character-string; at least one (RFC 1035 §3.3); perhaps one
//	t, g     a character-string that is not empty; of letters and digits (RFC 8659 §4.1)
//	x, w     bytes behind their number in one byte, or two, which may be zero
//	h        the same, a hash of the algorithm in the first byte (RFC 5155 §3.2)
//	d        a digest of the algorithm in the byte before
//	n        a name that is written out
//	b, B     a type bit map (RFC 4034 §4.1.2); with a type
//	p        service parameters (RFC 9460 §2.2)
var rdataFormats = [...]string{
	TypeHINFO: "ss",
	TypeTXT:   "S",
	11:        "41*",  // WKS
	19:        "t",    // X25
	20:        "so",   // ISDN
	27:        "ttt",  // GPOS
	37:        "221+", // CERT
	56:        "S",    // NINFO
	61:        "+",    // OPENPGPKEY
	99:        "S",    // SPF
	258:       "S",    // AVC
	261:       "S",    // RESINFO

	25:             "211*", // KEY, which may be without a key (RFC 2535 §3.1.2)
	57:             "211*", // RKEY
	62:             "42b",  // CSYNC
	TypeDS:         formatDS,
	TypeCDS:        formatDS,
	TypeDNSKEY:     "211+",
	TypeCDNSKEY:    "211+",
	TypeRRSIG:      "2114442n+",
	typeSIG:        "2114442n+",
	TypeNSEC:       "nB",
	typeNXT:        "n+",
	TypeNSEC3:      "112xhb",
	TypeNSEC3PARAM: "112x",
	TypeZONEMD:     "411d",
	typeSSHFP:      "11d",
	typeDHCID:      "21d",
	typeTLSA:       "111d",
	typeSMIMEA:     "111d",
	249:            "n4422ww", // TKEY
	TypeTSIG:       "n422w22w",

	58:        "nn",   // TALINK
	66:        "212n", // DSYNC
	TypeSVCB:  "2np",
	TypeHTTPS: "2np",
	104:       "244", // NID
	105:       "24",  // L32
	106:       "244", // L64
	107:       "2n",  // LP
	108:       "42",  // EUI48
	109:       "44",  // EUI64
	256:       "22+", // URI
	257:       "1g*", // CAA
}

// formatDS is also the format of two types whose numbers are far from all others.
const formatDS = "211d"

func (t Type) rdataFormat() string {
	switch {
	case int(t) < len(rdataFormats):
		return rdataFormats[t]
	case t == typeTA, t == typeDLV:
		return formatDS
	}
	return ""
}

// ValidRData reports whether the RDATA of a record of class IN, as AppendRecord has copied it, has
// the form of its type. RDATA of types that are not known is valid.
func (t Type) ValidRData(rdata []byte) bool {
	switch t {
	case TypeA:
		return len(rdata) == 4
	case TypeAAAA:
		return len(rdata) == 16

	case typeLOC:
		return validLOC(rdata)
	case typeAPL:
		return validAPL(rdata)
	case typeIPSECKEY:
		return validIPSECKEY(rdata)
	case typeHIP:
		return validHIP(rdata)
	case typeAMTRELAY:
		return len(rdata) >= 2 && gatewayLen(rdata[1]&^amtDiscovery, rdata[2:]) == len(rdata)-2
	}

	format := t.rdataFormat()
	if format == "" {
		return true
	}

	whole := rdata
	for i := range len(format) {
		n := t.fieldLen(format[i], whole, rdata)
		if n < 0 || n > len(rdata) {
			return false
		}
		rdata = rdata[n:]
	}
	return len(rdata) == 0
}

// fieldLen returns the length of the field of a format at the start of rdata, the rest of whole;
// -1 if it is malformed.
func (t Type) fieldLen(field byte, whole, rdata []byte) int {
	switch field {
	case '1', '2', '4':
		return int(field - '0')
	case 'n':
		return nameLen(rdata)
	case 'S':
		return stringsLen(rdata)
	case 'p':
		return parametersLen(rdata)
	case 'd':
		if !t.validDigest(whole[len(whole)-len(rdata)-1], len(rdata)) {
			return -1
		}
		return len(rdata)
	case '*':
		return len(rdata)
	}

	if len(rdata) == 0 {
		if field == 'o' || field == 'b' {
			return 0
		}
		return -1
	}
	const sha1 = 1
	switch first := int(rdata[0]); {
	case field == '+':
		return len(rdata)
	case field == 'b' || field == 'B':
		return bitMapLen(rdata)
	case field == 'w' && len(rdata) >= 2:
		return 2 + int(binary.BigEndian.Uint16(rdata))
	case field == 'w', field == 't' && first == 0, field == 'g' && !isTag(rdata):
		return -1
	case field == 'h' && (first == 0 || whole[0] == sha1 && first != 20):
		return -1
	default:
		return 1 + first
	}
}

// isTag reports whether b begins with a character-string of letters and digits.
func isTag(b []byte) bool {
	n := int(b[0])
	if n == 0 || n >= len(b) {
		return false
	}
	for _, c := range b[1 : 1+n] {
		if (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z') {
			return false
		}
	}
	return true
}

// stringsLen returns the length of a list of character-strings that fills b; -1 if there is none.
func stringsLen(b []byte) int {
	off := 0
	for off < len(b) {
		off += 1 + int(b[off])
	}
	if off != len(b) || off == 0 {
		return -1
	}
	return off
}

// NameAt returns the name at an offset of RDATA that is not compressed; it is empty if there is none.
func NameAt[B string | []byte](rdata B, off int) (name B) {
	if off < 0 || off > len(rdata) {
		return name
	}
	if n := nameLen(rdata[off:]); n > 0 {
		name = rdata[off : off+n]
	}
	return name
}

// nameLen returns the length of the name at the start of b that is not compressed, or -1.
func nameLen[B string | []byte](b B) int {
	for off := 0; off < min(len(b), MaxName); off += 1 + int(b[off]) {
		switch n := b[off]; {
		case n == 0:
			return off + 1
		case n > MaxLabel:
			return -1
		}
	}
	return -1
}

// bitMapLen returns the length of a type bit map that fills b, or -1. No block ends with a zero.
func bitMapLen(b []byte) int {
	last := -1
	for off := 0; off < len(b); {
		if off+2 > len(b) || int(b[off]) <= last || b[off+1] < 1 || b[off+1] > 32 {
			return -1
		}
		last = int(b[off])
		if off += 2 + int(b[off+1]); off > len(b) || b[off-1] == 0 {
			return -1
		}
	}
	return len(b)
}

// Keys of service parameters (RFC 9460 §14.3.2).
const (
	svcMandatory     = 0
	svcALPN          = 1
	svcNoDefaultALPN = 2
	svcPort          = 3
	svcIPv4Hint      = 4
	svcIPv6Hint      = 6
	svcDoHPath       = 7 // RFC 9461 §5
	svcOHTTP         = 8 // RFC 9540 §4
)

// parametersLen returns the length of service parameters that fill b, or -1. Keys are in
// ascending order, and the values of known keys have their form.
func parametersLen(b []byte) int {
	var mandatory []byte
	for off, last := 0, -1; off < len(b); {
		if off+4 > len(b) {
			return -1
		}
		key, value := int(binary.BigEndian.Uint16(b[off:])), b[off+4:]
		n := int(binary.BigEndian.Uint16(b[off+2:]))
		if key <= last || n > len(value) || !validParameter(key, value[:n]) {
			return -1
		}

		switch {
		case key == svcMandatory:
			mandatory = value[:n]
		case key == svcNoDefaultALPN && last != svcALPN: // RFC 9460 §7.1.1
			return -1
		}
		if len(mandatory) > 0 && int(binary.BigEndian.Uint16(mandatory)) == key {
			mandatory = mandatory[2:]
		}
		last = key
		off += 4 + n
	}

	if len(mandatory) > 0 { // a key that is missing, or not in ascending order
		return -1
	}
	return len(b)
}

// validParameter reports whether the value of a service parameter has the form of its key.
func validParameter(key int, value []byte) bool {
	switch key {
	case svcMandatory:
		return len(value) > 0 && len(value)%2 == 0 && binary.BigEndian.Uint16(value) != svcMandatory
	case svcALPN:
		return validALPN(value)
	case svcNoDefaultALPN, svcOHTTP:
		return len(value) == 0
	case svcPort:
		return len(value) == 2
	case svcIPv4Hint:
		return len(value) > 0 && len(value)%4 == 0
	case svcIPv6Hint:
		return len(value) > 0 && len(value)%16 == 0
	case svcDoHPath: // a relative URI template with the variable dns
		return len(value) > 0 && value[0] == '/' && utf8.Valid(value) && bytes.Contains(value, []byte("dns"))
	}
	return true
}

// validALPN reports whether value is a list of protocols (RFC 9460 §7.1.1), of which none is empty.
func validALPN(value []byte) bool {
	if stringsLen(value) < 0 {
		return false
	}
	for off := 0; off < len(value); off += 1 + int(value[off]) {
		if value[off] == 0 {
			return false
		}
	}
	return true
}
