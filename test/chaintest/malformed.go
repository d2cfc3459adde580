package chaintest

import "fmt"

// A RawRecord is the type and the RDATA of a record.
type RawRecord struct {
	Type  uint16
	RData string
}

// Text returns the record in the text of a zone file, without owner and TTL (RFC 3597 §5).
func (r RawRecord) Text() string {
	return fmt.Sprintf(`TYPE%d \# %d %x`, r.Type, len(r.RData), r.RData)
}

// MalformedRecords returns records whose RDATA does not have the form of its type: clients reject a
// message with one of them. Each has another kind of field that is wrong.
func MalformedRecords() []RawRecord {
	const service = "\x00\x01\x00" // priority 1, the owner itself
	return []RawRecord{
		{1, "\x01\x02\x03"}, {1, ""}, {28, "\x01\x02\x03\x04"}, // A, AAAA
		{16, ""}, {16, "\x05abc"}, {16, "\x01a\xff"}, {99, "\x05abc"}, {13, "\x01a"}, // TXT, SPF, HINFO
		{5, "\x01a"}, {5, "\x01a\x00\x00"}, {2, ""}, {12, "\xc0\xff"}, {39, "\x40a\x00"}, // CNAME, NS, PTR, DNAME
		{15, "\x00"}, {15, "\x00\x01\x01a\x00\x00"}, {33, "\x00\x01\x00\x01\x00\x01"}, // MX, SRV
		{35, "\x00\x01\x00\x01\x05a"}, {17, "\x01a\x00"}, // NAPTR, RP
		{43, "\x00\x01\x08\x02\xab"}, {48, "\x01\x00\x03\x08"}, {46, "\x00\x01\x08"}, {47, "\x01a\x00\x00\x00"}, // DS, DNSKEY, RRSIG, NSEC
		{44, "\x01\x01\xab"}, {52, "\x03\x01\x01\xab"}, {29, "\x00\x12\x16"}, {42, "\x00\x01\x21\x00"}, // SSHFP, TLSA, LOC, APL
		{257, "\x00\x05iss"}, {256, "\x00\x01"}, // CAA, URI
		{64, service + "\x00"}, {65, service + "\x00\x03\x00\x02\x20\xfb\x00\x01\x00\x03\x02h2"}, // SVCB; HTTPS, keys out of order
		{65, service + "\x00\x03\x00\x01\x20"}, {65, service + "\x00\x00\x00\x02\x00\x03"}, {65, "\x00\x01\xc0\x0c"},
	}
}
