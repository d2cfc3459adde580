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

// Types whose RDATA ValidRData checks by name.
const (
	typeLOC      Type = 29
	typeAPL      Type = 42
	typeSSHFP    Type = 44
	typeIPSECKEY Type = 45
	typeDHCID    Type = 49
	typeTLSA     Type = 52
	typeSMIMEA   Type = 53
	typeHIP      Type = 55
	typeAMTRELAY Type = 260
)

// mnemonics are the names of types (RFC 6895 §3.1). All but two are below 262.
var mnemonics = [...]string{
	1: "A", "NS", "MD", "MF", "CNAME", "SOA", "MB", "MG", "MR", "NULL", 12: "PTR", "HINFO", "MINFO", "MX", "TXT",
	"RP", "AFSDB", "X25", "ISDN", "RT", 23: "NSAP-PTR", "SIG", "KEY", "PX", "GPOS", "AAAA", "LOC", "NXT", "EID",
	"NIMLOC", "SRV", "ATMA", "NAPTR", "KX", "CERT", 39: "DNAME", 41: "OPT", "APL", "DS", "SSHFP", "IPSECKEY",
	"RRSIG", "NSEC", "DNSKEY", "DHCID", "NSEC3", "NSEC3PARAM", "TLSA", "SMIMEA", 55: "HIP", "NINFO", "RKEY",
	"TALINK", "CDS", "CDNSKEY", "OPENPGPKEY", "CSYNC", "ZONEMD", "SVCB", "HTTPS",
	99: "SPF", "UINFO", "UID", "GID", "UNSPEC", "NID", "L32", "L64", "LP", "EUI48", "EUI64", 128: "NXNAME",
	249: "TKEY", "TSIG", "IXFR", "AXFR", "MAILB", "MAILA", "ANY", "URI", "CAA", "AVC", 260: "AMTRELAY", "RESINFO",
}

// The two types with mnemonics above the others.
const (
	typeTA  Type = 32768
	typeDLV Type = 32769
)

// IsTransfer reports whether queries of the type request a zone transfer. Its messages are sent as they
// are in the zone: a handler that changes answers must not change the last one, which it sees alone.
func (t Type) IsTransfer() bool { return t == TypeAXFR || t == TypeIXFR }

// IsMeta reports whether the type is of queries and messages only, so that no zone has records of it
// (RFC 6895 §3.1).
func (t Type) IsMeta() bool { return t == 0 || t == TypeOPT || 128 <= t && t <= 255 }

// TargetOffset returns the offset in the RDATA of the name whose addresses go into the additional section
// (RFC 1035 §3.3, RFC 2782, RFC 9460 §4.1), or -1.
func (t Type) TargetOffset() int {
	switch t {
	case TypeNS:
		return 0
	case TypeMX, TypeSVCB, TypeHTTPS:
		return 2
	case TypeSRV:
		return 6
	}
	return -1
}

// String returns the mnemonic, or TYPE123 (RFC 3597).
func (t Type) String() string {
	switch {
	case int(t) < len(mnemonics) && mnemonics[t] != "":
		return mnemonics[t]
	case t == typeTA:
		return "TA"
	case t == typeDLV:
		return "DLV"
	}
	return "TYPE" + strconv.Itoa(int(t))
}

// ParseType parses a type in any letter case: a mnemonic or TYPE123 (RFC 3597).
func ParseType(s string) (Type, bool) {
	s = strings.ToUpper(s)
	if n, ok := strings.CutPrefix(s, "TYPE"); ok {
		t, err := strconv.ParseUint(n, 10, 16)
		return Type(t), err == nil
	}

	switch s {
	case "": // there are types without a mnemonic
		return 0, false
	case "TA":
		return typeTA, true
	case "DLV":
		return typeDLV, true
	}
	i := slices.Index(mnemonics[:], s)
	return Type(max(i, 0)), i >= 0
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
	YXRRSet  RCode = 7
	NXRRSet  RCode = 8
	NotAuth  RCode = 9
	NotZone  RCode = 10
	BadVers  RCode = 16 // this and higher ones are sent in the OPT record
	// BadCookie is the highest code with a mnemonic.
	BadCookie RCode = 23
)

// rcodes are the mnemonics of the codes (RFC 6895 §2.3).
var rcodes = [...]string{"NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED",
	"YXDOMAIN", "YXRRSET", "NXRRSET", "NOTAUTH", "NOTZONE", "DSOTYPENI",
	16: "BADVERS", "BADKEY", "BADTIME", "BADMODE", "BADNAME", "BADALG", "BADTRUNC", "BADCOOKIE"}

// String returns the mnemonic, or RCODE12.
func (r RCode) String() string {
	if int(r) < len(rcodes) && rcodes[r] != "" {
		return rcodes[r]
	}
	return "RCODE" + strconv.Itoa(int(r))
}

// ParseRCode parses a mnemonic in any spelling, or a number that is not above those of the mnemonics.
func ParseRCode(text string) (RCode, bool) {
	if n, err := strconv.ParseUint(text, 10, 8); err == nil {
		if int(n) >= len(rcodes) {
			return 0, false
		}
		return RCode(n), true
	}
	if strings.EqualFold(text, "BADSIG") { // the other meaning of this code (RFC 8945 §3)
		return BadVers, true
	}
	if i := slices.Index(rcodes[:], strings.ToUpper(text)); i >= 0 && text != "" {
		return RCode(i), true
	}
	return 0, false
}

// EDNS options that the code of this server uses by name.
const (
	OptionNSID      = 3     // RFC 5001
	OptionKeepalive = 11    // RFC 7828
	OptionPadding   = 12    // RFC 7830
	OptionFollow    = 65074 // for local use: see directive transfer
	OptionSubnet    = 8     // RFC 7871
	OptionCookie    = 10    // RFC 7873
	OptionEDE       = 15    // RFC 8914
)

// Codes of extended errors (RFC 8914 §5.2).
const (
	EDEOther        uint16 = 0
	EDEStale        uint16 = 3
	EDECached       uint16 = 13 // Cached Error
	EDEBlocked      uint16 = 15
	EDEFiltered     uint16 = 17
	EDEProhibited   uint16 = 18
	EDEStaleNX      uint16 = 19
	EDENoReachable  uint16 = 22 // No Reachable Authority
	EDENetworkError uint16 = 23
	EDEInvalidType  uint16 = 30 // Invalid Query Type
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

// Opcodes of messages that have the form of a query.
const (
	OpcodeNotify = 4 // RFC 1996
	OpcodeUpdate = 5 // RFC 2136
)

// Sizes of messages and of their parts, in bytes.
const (
	HeaderLen         = 12
	MaxName           = 255 // with the root label (RFC 1035 §3.1)
	MaxLabel          = 63
	MaxLabels         = 127
	MaxMessage        = 65535
	MinUDPSize        = 512  // accepted by every client (RFC 1035 §4.2.1)
	DefaultUDPReply   = 1232 // the largest UDP reply by default: not fragmented at the minimum IPv6 MTU
	MaxUDPReply       = 4096 // the largest that may be configured
	AdvertisedUDPSize = 1232 // the advertised request size, for the same reason
)
