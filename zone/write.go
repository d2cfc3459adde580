package zone

import (
	"encoding/binary"

	"github.com/seamark/seamark/wire"
)

// finish writes the authority and additional sections.
func (l *lookup) finish() {
	if r := l.referral; r != nil {
		l.answered = r.get(wire.TypeNS)
		l.put(wire.Authority, r.name, l.answered)
		if ds := r.get(wire.TypeDS); ds != nil && l.do {
			l.putSigned(wire.Authority, r.name, ds)
		} else if l.do {
			l.proveUnsigned(r)
		}
	}
	if soa := l.Zone.negative; l.negative && soa != nil {
		l.putSigned(wire.Authority, l.apex, soa)
	}
	for _, n := range l.proofs[:l.nProofs] {
		s := n.get(wire.TypeNSEC)
		if s == nil {
			s = n.get(wire.TypeNSEC3)
		}
		l.putSigned(wire.Authority, n.name, s)
	}
	if l.answered == nil {
		return
	}
	for _, n := range l.answered.targets {
		if l.full() {
			return
		}
		for _, t := range [2]wire.Type{wire.TypeA, wire.TypeAAAA} {
			if s := n.get(t); s != nil {
				l.putSigned(wire.Additional, n.name, s)
			}
		}
	}
}

// putSigned writes an RRset with the owner name owner, and its signatures if the
// client set DO.
func (l *lookup) putSigned(section wire.Section, owner []byte, s *rrset) {
	l.put(section, owner, s)
	if l.do && s.nSigs > 0 {
		l.copy(section, owner, s.sigs, s.nSigs)
	}
}

// put writes an RRset without signatures.
func (l *lookup) put(section wire.Section, owner []byte, s *rrset) {
	l.copy(section, owner, s.records, s.n)
}

// headLen is the offset of the RDATA in a record whose owner is a pointer.
const headLen = len(wire.OwnerIsQuestion) + 10

// copy writes n records, which have the query name as owner, with another owner.
// It stops when the answer is full.
func (l *lookup) copy(section wire.Section, owner, records []byte, n int) {
	var room [wire.MaxName]byte
	a := l.a
	at := a.AppendOwner(room[:0], owner)
	if l.Server == nil && string(at) == wire.OwnerIsQuestion {
		a.Append(section, records, n)
		return
	}
	for i := 0; i < len(records) && !l.full(); {
		next := i + headLen + int(binary.BigEndian.Uint16(records[i+headLen-2:]))
		a.Buf = append(a.Buf, at...)
		a.Append(section, records[i+len(wire.OwnerIsQuestion):next], 1)
		i = next
	}
}

func (l *lookup) full() bool { return l.Server != nil && l.Server.ExceedsLimit() }

// rdata returns the RDATA of the first record.
func (s *rrset) rdata() []byte {
	return s.records[headLen : headLen+int(binary.BigEndian.Uint16(s.records[headLen-2:]))]
}

// ttl returns the TTL that all records have.
func (s *rrset) ttl() uint32 { return binary.BigEndian.Uint32(s.records[headLen-6:]) }
