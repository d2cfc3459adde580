package zone

import (
	"slices"

	"github.com/seamark/seamark/wire"
)

// finish writes the authority and additional sections.
func (l *lookup) finish() {
	if l.referral != nil {
		l.refer(l.referral)
	}
	if n := l.Zone.negative; l.negative && n != nil {
		soa := n.get(wire.TypeSOA)
		l.putSigned(wire.Authority, l.apex, &soa)
	}
	for _, n := range l.proofs[:l.nProofs] {
		s := n.get(wire.TypeNSEC)
		if s.count == 0 {
			s = n.get(wire.TypeNSEC3)
		}
		l.putOf(wire.Authority, &s)
	}
	if before := targetOffset(l.answered.t); before >= 0 {
		l.putTargets(&l.answered, before)
	}
}

// refer writes the authority section of a referral.
func (l *lookup) refer(n *node) {
	var room [wire.MaxName]byte
	l.answered = n.get(wire.TypeNS)
	l.put(wire.Authority, l.appendName(room[:0], n), &l.answered)
	if ds := n.get(wire.TypeDS); ds.count > 0 && l.do {
		l.putOf(wire.Authority, &ds)
	} else if l.do {
		l.proveUnsigned(n)
	}
}

// putOf writes an RRset with its own owner name.
func (l *lookup) putOf(section wire.Section, s *set) {
	var room [wire.MaxName]byte
	l.putSigned(section, l.appendName(room[:0], s.n), s)
}

// putTargets writes the addresses of the names in the RDATA of s, which begin at an offset.
// Names that a delegation hides are glue, and only NS records have them as targets.
func (l *lookup) putTargets(s *set, before int) {
	var room [wire.MaxName + 6]byte
	for rest := s.records; rest != "" && !l.full(); {
		var r stored
		if r, rest = nextRecord(rest); r.flags&isRepeated != 0 {
			continue
		}
		name := targetOf(l.appendRData(room[:0], s.n, r), before)
		if r.flags&hasUpper != 0 {
			name = wire.AppendLower(name[:0], name)
		}
		own := len(name) - len(l.origin)
		if own < 0 || string(name[own:]) != string(l.origin) {
			continue
		}
		n := l.names.get(name[:own])
		if n == nil || s.t != wire.TypeNS && (n.meta&isHidden != 0 || n.is(isDelegation)) {
			continue
		}
		for rest := n.sets(); rest != ""; {
			var found set
			if rest = found.read(n, rest); found.t == wire.TypeA || found.t == wire.TypeAAAA {
				l.putOf(wire.Additional, &found)
			} else if found.t > wire.TypeAAAA {
				break
			}
		}
	}
}

// putSigned writes an RRset with the owner name owner, and its signatures if the
// client set DO.
func (l *lookup) putSigned(section wire.Section, owner []byte, s *set) {
	l.put(section, owner, s)
	if l.do && s.sigCount > 0 {
		l.putSigs(section, owner, s)
	}
}

// put writes the records of an RRset with another owner. It stops when the answer is full.
func (l *lookup) put(section wire.Section, owner []byte, s *set) {
	var room [wire.MaxName]byte
	at := l.a.AppendOwner(room[:0], owner)
	for rest := s.records; rest != "" && !l.full(); {
		var r stored
		r, rest = nextRecord(rest)
		l.append(section, at, s.t, s.ttl, s.n, r)
	}
}

// putSigs writes the signatures of an RRset like put.
func (l *lookup) putSigs(section wire.Section, owner []byte, s *set) {
	var room [wire.MaxName]byte
	at := l.a.AppendOwner(room[:0], owner)
	for rest := s.sigs; rest != "" && !l.full(); {
		var r stored
		var ttl uint32
		r, ttl, rest = nextSig(rest)
		l.append(section, at, wire.TypeRRSIG, ttl, s.n, r)
	}
}

// append writes a record.
func (l *lookup) append(section wire.Section, owner []byte, t wire.Type, ttl uint32, n *node, r stored) {
	a := l.a
	size := r.len()
	buf := slices.Grow(a.Buf, len(owner)+headLen+size)
	buf = wire.AppendRecordHeader(buf, owner, t, ttl, size)
	a.Buf = l.appendRData(buf, n, r)
	a.Append(section, nil, 1)
}

// headLen is the offset of the RDATA in a record whose owner is a pointer.
const headLen = len(wire.OwnerIsQuestion) + 10

func (l *lookup) full() bool { return l.Server != nil && l.Server.ExceedsLimit() }
