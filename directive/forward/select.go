package forward

import (
	"encoding/binary"
	"slices"

	"github.com/seamark/seamark/wire"
)

// The range of types that match no record type: TKEY to ANY (RFC 6895 §3.1).
const (
	firstMeta wire.Type = 249
	lastMeta  wire.Type = 255
)

// selectRecords marks the records that belong to the query. It returns false if
// the CNAME records form a loop or a chain that is too long.
func (p *parser) selectRecords(question []byte, do bool) bool {
	name := question[:len(question)-4]
	t := wire.Type(binary.BigEndian.Uint16(question[len(question)-4:]))
	class := wire.Class(binary.BigEndian.Uint16(question[len(question)-2:]))
	p.names, p.targets, p.dnames = append(p.names[:0], name), p.targets[:0], p.dnames[:0]
	p.ownTarget, p.redirected, p.tooLong = nil, false, false

	if !p.followAliases(t, class) {
		return false
	}
	p.selectAnswers(t, class, do)
	switch {
	case p.ownTarget == nil:
		p.selectAuthority(class, do)
	case do: // the other records of the section belong to ownTarget
		p.selectWildcardProofs(class)
	}
	p.selectAdditional(class, do)
	return true
}

// selectAdditional marks the addresses, and with DO their signatures, of the names in the
// records that are kept.
func (p *parser) selectAdditional(class wire.Class, do bool) {
	for i := range p.records {
		if p.records[i].keep {
			p.addTarget(&p.records[i])
		}
	}
	for i := range p.records {
		record := &p.records[i]
		switch record.Type {
		case wire.TypeA, wire.TypeAAAA, wire.TypeRRSIG:
			record.keep = record.keep || record.section == wire.Additional && (do || record.Type != wire.TypeRRSIG) &&
				p.hasClass(record, class) && containsName(p.targets, p.owner(record))
		}
	}
}

func (p *parser) hasClass(record *parsedRecord, class wire.Class) bool {
	return class == wire.ClassANY || wire.Class(binary.BigEndian.Uint16(p.answer.Buf[record.Head+2:])) == class
}

func containsName(names [][]byte, name []byte) bool {
	return slices.ContainsFunc(names, func(n []byte) bool { return wire.SameName(n, name) })
}

// selectAnswers marks the records of the queried type for the names of the chain.
func (p *parser) selectAnswers(t wire.Type, class wire.Class, do bool) {
	for i := range p.records {
		record := &p.records[i]
		if record.section != wire.Answers || record.keep || !p.hasClass(record, class) {
			continue
		}
		switch owner := p.owner(record); {
		case record.Type == t || isMeta(t):
			record.keep = containsName(p.names, owner)
		case record.Type == wire.TypeRRSIG:
			record.keep = do && (containsName(p.names, owner) || containsName(p.dnames, owner))
		}
	}
}

// isMeta reports whether records of all types are answers to a query for t, as for ANY.
func isMeta(t wire.Type) bool { return firstMeta <= t && t <= lastMeta }

// selectAuthority marks the SOA, NS and DS records of a zone that contains one of the
// names, and with DO the DNSSEC proofs of that zone.
func (p *parser) selectAuthority(class wire.Class, do bool) {
	var zone []byte
	for i := range p.records {
		record := &p.records[i]
		if record.section == wire.Answers && record.keep && record.Type == wire.TypeRRSIG && zone == nil {
			// A reply with a wildcard proof may have no SOA or NS records.
			if signer := wire.NameAt(p.rdata(record), 18); len(signer) > 0 && p.anyNameIn(signer) {
				zone = signer
			}
		}

		if record.section != wire.Authority || !p.hasClass(record, class) {
			continue
		}
		switch record.Type {
		case wire.TypeSOA, wire.TypeNS, wire.TypeDS:
			if owner := p.owner(record); p.anyNameIn(owner) {
				record.keep = true
				if record.Type != wire.TypeDS && len(owner) > len(zone) {
					zone = owner
				}
			}
		}
	}
	if !do {
		return
	}

	for i := range p.records {
		record := &p.records[i]
		if record.section != wire.Authority || !p.hasClass(record, class) {
			continue
		}
		switch record.Type {
		case wire.TypeNSEC, wire.TypeNSEC3, wire.TypeRRSIG:
			owner := p.owner(record)
			record.keep = p.anyNameIn(owner) || zone != nil && inZone(owner, zone)
		}
	}
}

// selectWildcardProofs marks the NSEC and NSEC3 records, and their signatures, of the
// zones with wildcards that CNAME records of the chain came from (RFC 4035 §3.1.3.3).
func (p *parser) selectWildcardProofs(class wire.Class) {
	var zones, owners [][]byte
	for i := range p.records {
		record := &p.records[i]
		if record.Type != wire.TypeRRSIG || !p.hasClass(record, class) {
			continue
		}
		owner, rdata := p.owner(record), p.rdata(record)
		zone := wire.NameAt(rdata, 18)
		if len(zone) == 0 {
			continue
		}

		switch covered := wire.Type(binary.BigEndian.Uint16(rdata)); {
		case record.section == wire.Answers:
			// The signature has fewer labels than the owner: a wildcard (RFC 4034 §3.1.3).
			if record.keep && covered == wire.TypeCNAME && int(rdata[3]) < wire.Name(owner).Labels() {
				zones = append(zones, zone)
			}
		case record.section == wire.Authority && (covered == wire.TypeNSEC || covered == wire.TypeNSEC3):
			if record.keep = containsName(zones, zone) && !p.ownZones.Entered(p.names[0], owner); record.keep {
				owners = append(owners, owner)
			}
		}
	}

	for i := range p.records {
		record := &p.records[i]
		proof := record.Type == wire.TypeNSEC || record.Type == wire.TypeNSEC3
		if proof && record.section == wire.Authority && p.hasClass(record, class) {
			record.keep = containsName(owners, p.owner(record))
		}
	}
}

// anyNameIn reports whether one of the names is in the zone.
func (p *parser) anyNameIn(zone []byte) bool {
	return slices.ContainsFunc(p.names, func(n []byte) bool { return inZone(n, zone) })
}

// addTarget adds the name in the RDATA of a record to p.targets.
func (p *parser) addTarget(record *parsedRecord) {
	offset := 0
	switch record.Type {
	case wire.TypeNS:
	case wire.TypeMX, wire.TypeAFSDB, wire.TypeKX, wire.TypeSVCB, wire.TypeHTTPS:
		offset = 2
	case wire.TypeSRV:
		offset = 6
	default:
		return
	}

	target := wire.NameAt(p.rdata(record), offset)
	if len(target) == 0 || len(p.targets) >= maxNames {
		return
	}
	if len(target) == 1 { // the owner itself (RFC 9460 §2.5)
		target = p.owner(record)
	}
	if !containsName(p.targets, target) && !p.ownZones.Entered(p.names[0], target) {
		p.targets = append(p.targets, target)
	}
}
