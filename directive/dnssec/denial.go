package dnssec

import (
	"slices"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone/signing"
)

// typeNXName marks the NSEC record of a name that does not exist (RFC 9824 §2).
const typeNXName wire.Type = 128

// The types in NSEC records. The server below does not say which types a name has, so
// the NSEC record of a name that exists has every type that it may have, except the one
// of the query. Resolvers that use NSEC records for other queries (RFC 8198) would take
// a missing type for one that does not exist.
var (
	nameTypes = [...]wire.Type{
		wire.TypeA, wire.TypePTR, wire.TypeHINFO, wire.TypeMX, wire.TypeTXT, wire.TypeRP, wire.TypeAFSDB, wire.TypeAAAA,
		29, wire.TypeSRV, wire.TypeNAPTR, 37, 44, wire.TypeRRSIG, wire.TypeNSEC,
		52, 53, 55, 61, wire.TypeSVCB, wire.TypeHTTPS, 99, 256, 257,
	}
	apexTypes = [...]wire.Type{
		wire.TypeA, wire.TypeNS, wire.TypeSOA, wire.TypePTR, wire.TypeHINFO, wire.TypeMX, wire.TypeTXT,
		wire.TypeRP, wire.TypeAFSDB, wire.TypeAAAA, 29, wire.TypeSRV, wire.TypeNAPTR, 37, 44,
		wire.TypeRRSIG, wire.TypeNSEC, wire.TypeDNSKEY, 52, 53, 55, 59, 60, 61,
		wire.TypeSVCB, wire.TypeHTTPS, 99, 256, 257,
	}
	cutTypes     = [...]wire.Type{wire.TypeNS, wire.TypeRRSIG, wire.TypeNSEC}
	missingTypes = [...]wire.Type{wire.TypeRRSIG, wire.TypeNSEC, typeNXName}
)

// without appends types to buf, except t.
func without(buf, types []wire.Type, t wire.Type) []wire.Type {
	for _, other := range types {
		if other != t || t == wire.TypeNSEC || t == wire.TypeRRSIG {
			buf = append(buf, other)
		}
	}
	return buf
}

// A negation describes the name and types that an answer denies.
type negation struct {
	name    []byte // in lower case
	soa     []byte // owner of the SOA record, in lower case; nil if there is none
	cut     []byte // owner of the NS records of a referral, in lower case, or nil
	ttl     uint32 // of the SOA record (RFC 9077), or else of the NS records
	hasDS   bool
	proved  bool // there are NSEC records
	aliased bool
}

// deny adds the NSEC record that proves a negative answer or an unsigned delegation, and
// changes NXDOMAIN to NOERROR: the record states that the name exists, with the types
// that it states for every name that does not exist.
func (d *Dnssec) deny(q *dns.Query) {
	var names [3][wire.MaxName]byte
	n, ok := d.negation(q, &names)
	if !ok {
		return
	}

	var room [2 * wire.MaxName]byte
	var list [len(apexTypes)]wire.Type
	if n.soa == nil {
		if n.cut != nil && !n.hasDS && d.zoneOf(n.cut, wire.TypeDS) != nil {
			addNSEC(q, n.cut, n.ttl, signing.AppendNSEC(room[:0], next(n.cut, false), cutTypes[:]))
		}
		return
	}

	zone := d.zoneOf(n.soa, wire.TypeSOA)
	if zone == nil || !wire.Within(n.name, wire.Name(n.soa)) {
		return
	}

	types, leaf := nameTypes[:], true
	switch {
	case q.RCode == wire.NXDomain:
		types = missingTypes[:]
	case q.AtCut && !n.aliased && q.Type == wire.TypeDS:
		types, leaf = cutTypes[:], false
	case string(n.name) == string(zone.name):
		types = apexTypes[:]
	}

	rdata := signing.AppendNSEC(room[:0], next(n.name, leaf), without(list[:0], types, q.Type))
	q.RCode = wire.NoError
	if q.Type == wire.TypeNSEC && !n.aliased {
		q.Answer.Clear()
		q.Answer.Append(wire.Answers, nsecRecord(q, n.name, n.ttl, rdata), 1)
		return
	}
	addNSEC(q, n.name, n.ttl, rdata)
}

// negation returns the negation of an answer; ok is false if the answer is positive, or proved.
func (d *Dnssec) negation(q *dns.Query, names *[3][wire.MaxName]byte) (n negation, ok bool) {
	a := &q.Answer
	answered := false
	n.name = append(names[0][:0], q.Name()...)

	a.Walk(func(s wire.Section, r wire.Record) bool {
		switch {
		case s == wire.Answers && r.Type == wire.TypeCNAME && q.Type != wire.TypeCNAME && q.Type != wire.TypeANY:
			n.follow(a, r)
		case s == wire.Answers:
			answered = answered || r.Type != wire.TypeDNAME && r.Type != wire.TypeRRSIG || r.Type == q.Type
		case s == wire.Additional:
			return false
		case r.Type == wire.TypeSOA:
			n.soa = wire.ReadLower(names[1][:0], a.Buf, r.Owner)
			n.ttl = r.TTL(a.Buf)
		case r.Type == wire.TypeNS && n.cut == nil:
			n.cut = wire.ReadLower(names[2][:0], a.Buf, r.Owner)
			if n.soa == nil {
				n.ttl = r.TTL(a.Buf)
			}
			if _, length := d.zones.LongestOf(n.cut); length == len(n.cut) {
				n.cut = nil
			}
		case r.Type == wire.TypeDS:
			n.hasDS = true
		case r.Type == wire.TypeNSEC || r.Type == wire.TypeNSEC3:
			n.proved = true
		}
		return true
	})
	return n, !answered && !n.proved && (n.soa != nil || n.cut != nil)
}

// follow takes the target of a CNAME record as the name that the answer may deny.
func (n *negation) follow(a *wire.Answer, r wire.Record) {
	var room [wire.MaxName]byte
	if string(wire.ReadLower(room[:0], a.Buf, r.Owner)) != string(n.name) {
		return
	}
	if target := wire.ReadLower(room[:0], a.Buf, r.RData); target != nil {
		n.name, n.aliased = append(n.name[:0], target...), true
	}
}

// next returns the name that follows name, which has no other names below it, in
// canonical order (RFC 4034 §6.1). The next name of a delegation follows the names below
// it, too.
func next(name []byte, leaf bool) wire.Name {
	first := int(name[0])
	switch {
	case leaf && len(name)+2 <= wire.MaxName:
		return wire.Name("\x01\x00" + string(name))
	case !leaf && first < wire.MaxLabel && len(name) < wire.MaxName:
		longer := append([]byte{byte(first + 1)}, name[1:1+first]...)
		return wire.Name(append(append(longer, 0), name[1+first:]...))
	}

	// A longer name does not fit: the first label of the same length that follows.
	label, rest := slices.Clone(name[1:1+first]), name[1+first:]
	for len(label) > 0 {
		last := len(label) - 1
		if label[last] < 255 {
			if label[last]++; label[last] == 'A' {
				label[last] = 'Z' + 1 // letters are compared in lower case
			}
			return wire.Name(append(append([]byte{byte(len(label))}, label...), rest...))
		}
		label = label[:last]
	}
	return wire.Name(rest)
}

// nsecRecord returns an NSEC record in the form of q's answer.
func nsecRecord(q *dns.Query, owner []byte, ttl uint32, rdata []byte) []byte {
	record := q.Answer.AppendOwner(nil, owner)
	return append(wire.AppendRecordHeader(record, "", wire.TypeNSEC, ttl, len(rdata)), rdata...)
}

// addNSEC adds an NSEC record to the end of the authority section.
func addNSEC(q *dns.Query, owner []byte, ttl uint32, rdata []byte) {
	a := &q.Answer
	record := nsecRecord(q, owner, ttl, rdata)

	additional := len(a.Buf)
	first := true
	a.Walk(func(s wire.Section, r wire.Record) bool {
		if s == wire.Additional && first {
			additional, first = r.Owner, false
		}
		return first
	})

	a.Buf = slices.Insert(a.Buf, additional, record...)
	a.Count[wire.Authority]++
}
