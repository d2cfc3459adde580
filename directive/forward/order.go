package forward

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"

	"github.com/seamark/seamark/wire"
)

// sortAnswers puts the records of the answer section in the order in which glibc follows them:
// each CNAME record before the one for its target, DNAME records before the CNAME records that
// they make, signatures behind the record that they cover, and all other records last.
func (p *parser) sortAnswers() {
	if len(p.aliases) == 0 {
		return
	}

	answers := p.records[:p.answerCount()]
	for i := range answers {
		answers[i].rank = p.rank(&answers[i])
	}
	slices.SortStableFunc(answers, func(a, b parsedRecord) int { return cmp.Compare(a.rank, b.rank) })
}

// rank returns the position of a kept record among the answers.
func (p *parser) rank(record *parsedRecord) int {
	const last = math.MaxInt
	t, signature := record.Type, 0
	if t == wire.TypeRRSIG && record.Next-record.RData >= 2 {
		t, signature = wire.Type(binary.BigEndian.Uint16(p.rdata(record))), 1
	}

	// names has the target of a CNAME record behind its owner.
	owner, at, cname := p.owner(record), -1, 0
	switch t {
	case wire.TypeCNAME:
		at = slices.IndexFunc(p.names, func(n []byte) bool { return wire.SameName(n, owner) })
		cname = 2
	case wire.TypeDNAME:
		at = slices.IndexFunc(p.names, func(n []byte) bool { return len(n) > len(owner) && inZone(n, owner) })
	}
	if at < 0 {
		return last
	}
	return 4*at + cname + signature
}
