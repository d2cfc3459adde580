package forward

import (
	"encoding/binary"
	"slices"

	"github.com/seamark/seamark/wire"
)

// followAliases marks the CNAME records of the chain from the queried name, in any order, and the DNAME
// records above its names. It adds the CNAME records that these make and the reply lacks. It returns
// false if the chain is a loop or too long.
func (p *parser) followAliases(t wire.Type, class wire.Class) bool {
	p.aliases = p.aliases[:0]
	for i := range p.answerCount() {
		record := &p.records[i]
		if (record.Type == wire.TypeCNAME || record.Type == wire.TypeDNAME) && p.hasClass(record, class) {
			p.aliases = append(p.aliases, i)
		}
	}
	if len(p.aliases) >= 2*maxNames {
		return false
	}

	p.end = p.names[0]
	if t == wire.TypeCNAME || isMeta(t) { // the CNAME record is the answer
		p.alias(p.end)
		return true
	}

	for at := 0; at < len(p.names); at++ {
		if at == maxNames {
			return false
		}
		for _, i := range p.alias(p.names[at]) {
			p.addName(p.rdata(&p.records[i]))
		}
	}
	return p.findEnd()
}

// addName adds the target of a CNAME record to the chain.
func (p *parser) addName(target []byte) {
	switch {
	case len(target) == 0: // of a broken record
	case p.ownZones.Entered(p.names[0], target):
		p.ownTarget = target
	case !containsName(p.names, target):
		p.names = append(p.names, target)
	}
}

// alias marks the CNAME records of name, and returns their indexes, until its next call. A DNAME record
// above name has precedence: names below it have no records of their own (RFC 6672 §2.4).
func (p *parser) alias(name []byte) []int {
	cnames := p.cnames[:0]
	for _, i := range p.aliases {
		if record := &p.records[i]; record.Type == wire.TypeCNAME && wire.SameName(p.owner(record), name) {
			cnames = append(cnames, i)
		}
	}

	if i := p.dnameAbove(name); i >= 0 {
		cnames = p.redirect(name, i, cnames)
	}
	for _, i := range cnames {
		p.records[i].keep = true
	}
	p.cnames = cnames
	return cnames
}

// dnameAbove returns the index of the DNAME record above name; -1 if there is none.
func (p *parser) dnameAbove(name []byte) int {
	for _, i := range p.aliases {
		record := &p.records[i]
		owner := p.owner(record)
		if record.Type == wire.TypeDNAME && len(name) > len(owner) && inZone(name, owner) {
			return i
		}
	}
	return -1
}

// redirect marks the DNAME record at index i, and returns the index of the CNAME record that it makes
// of name: one of cnames, or one that is added, since the sender may expect that of a resolver
// (RFC 6672 §3.4). If the target is too long for a name, there is none.
func (p *parser) redirect(name []byte, i int, cnames []int) []int {
	dname := p.records[i]
	owner := p.owner(&dname)
	p.records[i].keep = true
	p.dnames = append(p.dnames, owner)
	if dname.broken {
		return nil
	}

	target := slices.Concat(name[:len(name)-len(owner)], p.rdata(&dname))
	if len(target) > wire.MaxName {
		p.tooLong = true
		return nil
	}
	for _, i := range cnames {
		if wire.SameName(p.rdata(&p.records[i]), target) {
			return append(cnames[:0], i)
		}
	}

	p.redirected = true
	record := p.newCNAME(name, target, &dname)
	if len(cnames) > 0 {
		p.records[cnames[0]] = record // whose target is wrong
		return cnames[:1]
	}
	n := p.answerCount()
	p.records = slices.Insert(p.records, n, record)
	p.aliases = append(p.aliases, n)
	return append(cnames, n)
}

// newCNAME returns an answer with the class and the TTL of dname.
func (p *parser) newCNAME(owner, target []byte, dname *parsedRecord) parsedRecord {
	start := len(p.answer.Buf)
	buf := append(p.answer.Buf, owner...)
	buf = binary.BigEndian.AppendUint16(buf, uint16(wire.TypeCNAME))
	buf = append(buf, p.answer.Buf[dname.Head+2:dname.Head+8]...)
	buf = binary.BigEndian.AppendUint16(buf, uint16(len(target)))
	p.answer.Buf = append(buf, target...)

	record := parsedRecord{section: wire.Answers}
	record.Record, _ = wire.ReadRecord(p.answer.Buf, start)
	return record
}

// findEnd finds the end of the chain. It returns false if the chain is a loop.
func (p *parser) findEnd() bool {
	for range len(p.names) + 1 {
		i := slices.IndexFunc(p.aliases, func(i int) bool {
			record := &p.records[i]
			return record.Type == wire.TypeCNAME && record.keep && wire.SameName(p.owner(record), p.end)
		})
		if i < 0 {
			return true
		}
		p.end = p.rdata(&p.records[p.aliases[i]])
	}
	return false
}

// isUnfinished reports whether the reply has neither records nor an error for the name at the end of its
// chain, as that of a server without recursion whose zones the chain leaves, or of one that does not know
// DNAME. Another resolver's reply without records is NODATA, also without a SOA record.
func (p *parser) isUnfinished(r *reply) bool {
	if r.code != wire.NoError || r.truncated || p.ownTarget != nil || wire.SameName(p.end, p.names[0]) {
		return false
	}

	refers := r.flags&wire.FlagRA == 0 || p.redirected
	for i := range p.records {
		record := &p.records[i]
		switch owner := p.owner(record); record.section {
		case wire.Answers:
			if record.Type != wire.TypeCNAME && wire.SameName(owner, p.end) {
				return false
			}
		case wire.Authority:
			if record.Type == wire.TypeSOA && inZone(p.end, owner) {
				return false
			}
			refers = refers || record.Type == wire.TypeNS
		}
	}
	return refers
}

// answerCount returns the number of records of the answer section, which are the first ones.
func (p *parser) answerCount() int {
	n := slices.IndexFunc(p.records, func(r parsedRecord) bool { return r.section != wire.Answers })
	if n < 0 {
		return len(p.records)
	}
	return n
}
