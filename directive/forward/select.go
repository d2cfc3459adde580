package forward

import (
	"encoding/binary"
	"slices"

	"github.com/seamark/seamark/wire"
)

// Types of DNSSEC (RFC 4034, RFC 5155), and the range of types that match no
// record type: TKEY to ANY (RFC 6895 §3.1).
const (
	typeRRSIG wire.Type = 46
	typeNSEC  wire.Type = 47
	typeNSEC3 wire.Type = 50
	firstMeta wire.Type = 249
	lastMeta  wire.Type = 255
)

// selectRecords marks the records that belong to the query. It reports false if
// the CNAME records form a loop or a chain that is too long.
func (p *parser) selectRecords(asked []byte, do bool) bool {
	name := asked[:len(asked)-4]
	t := wire.Type(binary.BigEndian.Uint16(asked[len(asked)-4:]))
	class := wire.Class(binary.BigEndian.Uint16(asked[len(asked)-2:]))
	p.names, p.targets, p.dnames = append(p.names[:0], name), p.targets[:0], p.dnames[:0]
	if !p.followAliases(t, class) {
		return false
	}
	p.selectAnswers(t, class, do)
	p.selectAuthority(class, do)
	for i := range p.records {
		if p.records[i].keep {
			p.addTarget(&p.records[i])
		}
	}
	for i := range p.records {
		f := &p.records[i]
		address := f.Type == wire.TypeA || f.Type == wire.TypeAAAA || do && f.Type == typeRRSIG
		f.keep = f.keep || f.section == wire.Additional && address && p.hasClass(f, class) && containsName(p.targets, p.owner(f))
	}
	return true
}

func (p *parser) hasClass(f *parsedRecord, class wire.Class) bool {
	return class == wire.ClassANY || wire.Class(binary.BigEndian.Uint16(p.answer.Buf[f.Head+2:])) == class
}

func containsName(names [][]byte, name []byte) bool {
	for _, n := range names {
		if equalNames(n, name) {
			return true
		}
	}
	return false
}

// followAliases marks the CNAME records of the chain from the queried name, in
// any order, and the DNAME records above its names. It reports false if the chain
// is a loop or too long.
func (p *parser) followAliases(t wire.Type, class wire.Class) bool {
	p.aliases = p.aliases[:0]
	for i := range p.records {
		f := &p.records[i]
		if f.section == wire.Answers && (f.Type == wire.TypeCNAME || f.Type == wire.TypeDNAME) &&
			p.hasClass(f, class) && !matchesType(f, t) {
			p.aliases = append(p.aliases, i)
		}
	}
	if len(p.aliases) >= 2*maxNames {
		return false
	}
	for more := true; more; {
		more = false
		for _, i := range p.aliases {
			f := &p.records[i]
			owner := p.owner(f)
			switch {
			case f.keep:
			case f.Type == wire.TypeDNAME:
				if f.keep = p.anyNameBelow(owner); f.keep {
					p.dnames = append(p.dnames, owner)
				}
			case containsName(p.names, owner):
				f.keep = true
				if target := p.rdata(f); !containsName(p.names, target) {
					p.names = append(p.names, target)
					more = true
				}
			}
		}
	}
	return len(p.names) <= maxNames && !p.isLoop()
}

// isLoop reports whether the CNAME records lead from the queried name in a
// circle.
func (p *parser) isLoop() bool {
	name := p.names[0]
	for range p.names {
		i := slices.IndexFunc(p.aliases, func(i int) bool {
			f := &p.records[i]
			return f.Type == wire.TypeCNAME && equalNames(p.owner(f), name)
		})
		if i < 0 {
			return false
		}
		name = p.rdata(&p.records[p.aliases[i]])
	}
	return true
}

// selectAnswers marks the records of the queried type for the names of the chain.
func (p *parser) selectAnswers(t wire.Type, class wire.Class, do bool) {
	for i := range p.records {
		f := &p.records[i]
		if f.section != wire.Answers || f.keep || !p.hasClass(f, class) {
			continue
		}
		switch owner := p.owner(f); {
		case matchesType(f, t):
			f.keep = containsName(p.names, owner)
		case f.Type == typeRRSIG:
			f.keep = do && (containsName(p.names, owner) || containsName(p.dnames, owner))
		}
	}
}

// matchesType reports whether f is an answer to a query for t. ANY and the other meta
// types match all records.
func matchesType(f *parsedRecord, t wire.Type) bool {
	return f.Type == t || firstMeta <= t && t <= lastMeta
}

// selectAuthority keeps the SOA, NS and DS records of a zone that contains one of
// the names, and with DO the DNSSEC proofs of that zone.
func (p *parser) selectAuthority(class wire.Class, do bool) {
	var zone []byte
	for i := range p.records {
		f := &p.records[i]
		if f.section == wire.Answers && f.keep && f.Type == typeRRSIG && zone == nil {
			// The proof of a wildcard comes without SOA and NS records.
			if signer, ok := nameAt(p.rdata(f), 18); ok && p.anyNameIn(signer) {
				zone = signer
			}
		}
		if f.section != wire.Authority || !p.hasClass(f, class) {
			continue
		}
		switch f.Type {
		case wire.TypeSOA, wire.TypeNS, wire.TypeDS:
			if owner := p.owner(f); p.anyNameIn(owner) {
				f.keep = true
				if f.Type != wire.TypeDS && len(owner) > len(zone) {
					zone = owner
				}
			}
		}
	}
	if !do {
		return
	}
	for i := range p.records {
		f := &p.records[i]
		if f.section != wire.Authority || !p.hasClass(f, class) {
			continue
		}
		switch f.Type {
		case typeNSEC, typeNSEC3, typeRRSIG:
			owner := p.owner(f)
			f.keep = p.anyNameIn(owner) || zone != nil && inZone(owner, zone)
		}
	}
}

// anyNameBelow reports whether one of the names is below the zone's apex.
func (p *parser) anyNameBelow(apex []byte) bool {
	for _, n := range p.names {
		if len(n) > len(apex) && inZone(n, apex) {
			return true
		}
	}
	return false
}

// anyNameIn reports whether one of the names is in the zone.
func (p *parser) anyNameIn(zone []byte) bool {
	for _, n := range p.names {
		if inZone(n, zone) {
			return true
		}
	}
	return false
}

// addTarget adds the name in a record's RDATA to p.targets.
func (p *parser) addTarget(f *parsedRecord) {
	before := 0
	switch f.Type {
	case wire.TypeNS:
	case wire.TypeMX, wire.TypeAFSDB, wire.TypeKX, wire.TypeSVCB, wire.TypeHTTPS:
		before = 2
	case wire.TypeSRV:
		before = 6
	default:
		return
	}
	target, ok := nameAt(p.rdata(f), before)
	if !ok || len(p.targets) >= maxNames {
		return
	}
	if len(target) == 1 { // the owner itself (RFC 9460 §2.5)
		target = p.owner(f)
	}
	if !containsName(p.targets, target) {
		p.targets = append(p.targets, target)
	}
}
