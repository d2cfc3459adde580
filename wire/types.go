package wire

import (
	"slices"
	"strconv"
	"strings"
)

// A Type is the TYPE of a resource record or of a question.
type Type uint16

// The types that the code of this server uses by name.
const (
	TypeA     Type = 1
	TypeNS    Type = 2
	TypeCNAME Type = 5
	TypeSOA   Type = 6
	TypePTR   Type = 12
	TypeHINFO Type = 13
	TypeMX    Type = 15
	TypeTXT   Type = 16
	TypeRP    Type = 17
	TypeAFSDB Type = 18
	TypeAAAA  Type = 28
	TypeSRV   Type = 33
	TypeNAPTR Type = 35
	TypeKX    Type = 36
	TypeDNAME Type = 39
	TypeOPT   Type = 41
	TypeDS    Type = 43

	TypeRRSIG      Type = 46
	TypeNSEC       Type = 47
	TypeDNSKEY     Type = 48
	TypeNSEC3      Type = 50
	TypeNSEC3PARAM Type = 51
	TypeCDS        Type = 59
	TypeCDNSKEY    Type = 60
	TypeZONEMD     Type = 63

	TypeSVCB  Type = 64
	TypeHTTPS Type = 65
	TypeTSIG  Type = 250
	TypeIXFR  Type = 251
	TypeAXFR  Type = 252
	TypeANY   Type = 255
)

// Types in whose RDATA names may be compressed.
const (
	typeMD    Type = 3
	typeMF    Type = 4
	typeMB    Type = 7
	typeMG    Type = 8
	typeMR    Type = 9
	typeMINFO Type = 14
	typeRT    Type = 21
	typeSIG   Type = 24
	typePX    Type = 26
	typeNXT   Type = 30
)

// String returns the mnemonic, or TYPE123 (RFC 3597).
func (t Type) String() string {
	if s := t.mnemonic(); s != "" {
		return s
	}
	return "TYPE" + strconv.Itoa(int(t))
}

func (t Type) mnemonic() string {
	switch t {
	case TypeA:
		return "A"
	case TypeNS:
		return "NS"
	case TypeCNAME:
		return "CNAME"
	case TypeSOA:
		return "SOA"
	case TypePTR:
		return "PTR"
	case TypeHINFO:
		return "HINFO"
	case TypeMX:
		return "MX"
	case TypeTXT:
		return "TXT"
	case TypeRP:
		return "RP"
	case TypeAFSDB:
		return "AFSDB"
	case TypeAAAA:
		return "AAAA"
	case 29:
		return "LOC"
	case TypeSRV:
		return "SRV"
	case TypeNAPTR:
		return "NAPTR"
	case TypeKX:
		return "KX"
	case 37:
		return "CERT"
	case TypeDNAME:
		return "DNAME"
	case TypeOPT:
		return "OPT"
	case TypeDS:
		return "DS"
	case 44:
		return "SSHFP"
	case TypeRRSIG:
		return "RRSIG"
	case TypeNSEC:
		return "NSEC"
	case TypeDNSKEY:
		return "DNSKEY"
	case TypeNSEC3:
		return "NSEC3"
	case TypeNSEC3PARAM:
		return "NSEC3PARAM"
	case 52:
		return "TLSA"
	case TypeCDS:
		return "CDS"
	case TypeCDNSKEY:
		return "CDNSKEY"
	case TypeSVCB:
		return "SVCB"
	case TypeHTTPS:
		return "HTTPS"
	case 99:
		return "SPF"
	case TypeTSIG:
		return "TSIG"
	case TypeIXFR:
		return "IXFR"
	case TypeAXFR:
		return "AXFR"
	case TypeANY:
		return "ANY"
	case 256:
		return "URI"
	case 257:
		return "CAA"
	}
	for _, r := range rareTypes() {
		if r.t == t {
			return r.name
		}
	}
	return ""
}

// A rareType is a type that is known by its mnemonic alone.
type rareType struct {
	t    Type
	name string
}

func rareTypes() [49]rareType {
	return [...]rareType{
		{3, "MD"}, {4, "MF"}, {7, "MB"}, {8, "MG"}, {9, "MR"}, {10, "NULL"}, {14, "MINFO"}, {19, "X25"}, {20, "ISDN"}, {21, "RT"},
		{23, "NSAP-PTR"}, {24, "SIG"}, {25, "KEY"}, {26, "PX"}, {27, "GPOS"}, {30, "NXT"}, {31, "EID"}, {32, "NIMLOC"}, {34, "ATMA"}, {42, "APL"}, {45, "IPSECKEY"},
		{49, "DHCID"}, {53, "SMIMEA"}, {55, "HIP"}, {56, "NINFO"}, {57, "RKEY"}, {58, "TALINK"}, {61, "OPENPGPKEY"}, {62, "CSYNC"},
		{63, "ZONEMD"}, {100, "UINFO"}, {101, "UID"}, {102, "GID"}, {103, "UNSPEC"}, {104, "NID"}, {105, "L32"}, {106, "L64"},
		{107, "LP"}, {108, "EUI48"}, {109, "EUI64"}, {128, "NXNAME"}, {249, "TKEY"}, {253, "MAILB"}, {254, "MAILA"}, {258, "AVC"},
		{260, "AMTRELAY"}, {261, "RESINFO"}, {32768, "TA"}, {32769, "DLV"},
	}
}

// ParseType parses a type in any letter case: a mnemonic or TYPE123 (RFC 3597).
func ParseType(s string) (Type, bool) {
	s = strings.ToUpper(s)
	if n, ok := strings.CutPrefix(s, "TYPE"); ok {
		t, err := strconv.ParseUint(n, 10, 16)
		return Type(t), err == nil
	}
	for _, r := range rareTypes() {
		if r.name == s {
			return r.t, true
		}
	}
	for t := range Type(1 << 9) { // all other mnemonics are below
		if s != "" && t.mnemonic() == s {
			return t, true
		}
	}
	return 0, false
}

// A Class is the CLASS of a resource record or of a question.
type Class uint16

const (
	ClassIN  Class = 1
	ClassCH  Class = 3
	ClassHS  Class = 4
	ClassANY Class = 255
)

// String returns the mnemonic, or CLASS123 (RFC 3597).
func (c Class) String() string {
	switch c {
	case ClassIN:
		return "IN"
	case ClassCH:
		return "CH"
	case ClassHS:
		return "HS"
	case ClassANY:
		return "ANY"
	}
	return "CLASS" + strconv.Itoa(int(c))
}

// ParseClass parses a class in any letter case: a mnemonic or CLASS123 (RFC 3597).
func ParseClass(s string) (Class, bool) {
	s = strings.ToUpper(s)
	if n, ok := strings.CutPrefix(s, "CLASS"); ok {
		c, err := strconv.ParseUint(n, 10, 16)
		return Class(c), err == nil
	}
	for _, c := range [...]Class{ClassIN, ClassCH, ClassHS, ClassANY} {
		if s == c.String() {
			return c, true
		}
	}
	return 0, false
}

// An RCode is a response code with the upper bits that EDNS adds (RFC 6895 §2.3).
type RCode uint16

const (
	NoError  RCode = 0
	FormErr  RCode = 1
	ServFail RCode = 2
	NXDomain RCode = 3
	NotImp   RCode = 4
	Refused  RCode = 5
	YXDomain RCode = 6
	NotAuth  RCode = 9
	BadVers  RCode = 16 // sent in the OPT record
)

// rcodes are the mnemonics of the first codes (RFC 6895 §2.3).
var rcodes = [...]string{"NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED",
	"YXDOMAIN", "YXRRSET", "NXRRSET", "NOTAUTH", "NOTZONE", "DSOTYPENI"}

// String returns the mnemonic, or RCODE12.
func (r RCode) String() string {
	switch {
	case int(r) < len(rcodes):
		return rcodes[r]
	case r == BadVers:
		return "BADVERS"
	}
	return "RCODE" + strconv.Itoa(int(r))
}

// ParseRCode parses a code that fits into the message header: a mnemonic in any
// spelling, or a number.
func ParseRCode(text string) (RCode, bool) {
	if n, err := strconv.ParseUint(text, 10, 4); err == nil {
		return RCode(n), true
	}
	i := slices.Index(rcodes[:], strings.ToUpper(text))
	return RCode(max(i, 0)), i >= 0
}

// EDNS options that the code of this server uses by name.
const (
	OptionNSID      = 3  // RFC 5001
	OptionKeepalive = 11 // RFC 7828
	OptionPadding   = 12 // RFC 7830
	OptionSubnet    = 8  // RFC 7871
	OptionCookie    = 10 // RFC 7873
	OptionEDE       = 15 // RFC 8914
)

// Codes of extended errors (RFC 8914 §5.2).
const (
	EDEOther        uint16 = 0
	EDEStale        uint16 = 3
	EDEBlocked      uint16 = 15
	EDEFiltered     uint16 = 17
	EDEProhibited   uint16 = 18
	EDEStaleNX      uint16 = 19
	EDENoReachable  uint16 = 22 // No Reachable Authority
	EDENetworkError uint16 = 23
)

// Bits of the second word of the header (RFC 1035 §4.1.1, RFC 2535).
const (
	FlagQR = 1 << 15
	FlagAA = 1 << 10
	FlagTC = 1 << 9
	FlagRD = 1 << 8
	FlagRA = 1 << 7
	FlagAD = 1 << 5
	FlagCD = 1 << 4
)

// OpcodeNotify is the opcode of NOTIFY messages (RFC 1996).
const OpcodeNotify = 4

// Sizes of messages and of their parts, in bytes.
const (
	HeaderLen         = 12
	MaxName           = 255 // with the root label (RFC 1035 §3.1)
	MaxLabel          = 63
	MaxLabels         = 127
	MaxMessage        = 65535
	MinUDPSize        = 512  // accepted by every client (RFC 1035 §4.2.1)
	DefaultUDPReply   = 1232 // the largest reply sent over UDP by default: not fragmented at the minimum IPv6 MTU
	MaxUDPReply       = 4096 // the largest that may be configured
	AdvertisedUDPSize = 1232 // the advertised request size, for the same reason
)
