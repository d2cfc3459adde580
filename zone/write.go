package zone

import "github.com/seamark/seamark/wire"

// finish writes the authority and additional sections.
func (l *lookup) finish() {
	if l.referral != nil {
		l.refer(l.referral)
	}
	if n := l.Zone.negative; l.negative && n != nil {
		var soa set
		soa.get(n, wire.TypeSOA)
		l.putSigned(wire.Authority, l.apex, &soa)
	}
	for _, n := range l.proofs[:l.nProofs] {
		var s set
		if s.get(n, wire.TypeNSEC) || s.get(n, wire.TypeNSEC3) {
			l.putOf(wire.Authority, &s)
		}
	}
	if before := targetOffset(l.answered.t); before >= 0 {
		l.putTargets(before)
	}
}

// refer writes the authority section of a referral.
func (l *lookup) refer(n *node) {
	l.answered.get(n, wire.TypeNS)
	l.writtenAt = len(l.a.Buf)
	l.put(wire.Authority, nil, &l.answered)
	if !l.do {
		return
	}
	var ds set
	if ds.get(n, wire.TypeDS) {
		l.putOf(wire.Authority, &ds)
	} else {
		l.proveUnsigned(n)
	}
}

// putOf writes an RRset with its own owner name, and its signatures if the client set DO.
func (l *lookup) putOf(section wire.Section, s *set) { l.putSigned(section, nil, s) }

// putSigned is like put, and writes the signatures, too, if the client set DO.
func (l *lookup) putSigned(section wire.Section, owner []byte, s *set) {
	l.put(section, owner, s)
	if l.do && s.sigCount > 0 {
		l.putSigs(section, owner, s)
	}
}

// put writes the records of an RRset with another owner, or with its own if owner is nil. It
// stops when the answer is full.
func (l *lookup) put(section wire.Section, owner []byte, s *set) {
	start, end := 0, 0 // of the owner, in the first record
	for rest := s.records; rest != "" && !l.full(); {
		var r stored
		r, rest = nextRecord(rest)
		start, end = l.append(section, owner, start, end, s.t, s.ttl, s.n, r)
	}
}

// putSigs writes the signatures of an RRset like put.
func (l *lookup) putSigs(section wire.Section, owner []byte, s *set) {
	start, end := 0, 0
	for rest := s.sigs; rest != "" && !l.full(); {
		var r stored
		var ttl uint32
		r, ttl, rest = nextSig(rest)
		start, end = l.append(section, owner, start, end, wire.TypeRRSIG, ttl, s.n, r)
	}
}

// append writes a record of n, whose owner is written from start to end unless it is the first
// one. It returns where the owner is.
func (l *lookup) append(section wire.Section, owner []byte, start, end int, t wire.Type, ttl uint32, n *node, r stored) (int, int) {
	a := l.a
	buf := a.Buf
	if end > 0 {
		buf = append(buf, buf[start:end]...)
	} else {
		start = len(buf)
		if owner == nil {
			buf = l.appendName(buf, n)
			owner = buf[start:]
		}
		buf = a.AppendOwner(buf[:start], owner)
		end = len(buf)
	}
	buf = wire.AppendRecordHeader(buf, "", t, ttl, r.len())
	a.Buf = l.appendRData(buf, n, r)
	a.Append(section, nil, 1)
	return start, end
}

// headLen is the offset of the RDATA in a record whose owner is a pointer.
const headLen = len(wire.OwnerIsQuestion) + 10

func (l *lookup) full() bool { return l.Server != nil && l.Server.ExceedsLimit() }

// putTargets writes the addresses of the names in the RDATA of l.answered, which begin at an
// offset. Names that a delegation hides are glue, and only NS records have them as targets.
func (l *lookup) putTargets(before int) {
	isNS := l.answered.t == wire.TypeNS
	end := len(l.a.Buf)
	for rest, at := l.answered.records, l.writtenAt; rest != "" && at < end && !l.full(); {
		var r stored
		r, rest = nextRecord(rest)
		rec, ok := wire.ReadRecord(l.a.Buf, at)
		if !ok {
			return
		}
		at = rec.Next
		if r.flags&isRepeated != 0 {
			continue
		}
		n := l.target(targetOf(l.a.Buf[rec.RData:rec.Next], before), r.flags)
		if n == nil || !isNS && (n.meta&isHidden != 0 || n.is(isDelegation)) {
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

// target returns the node of a name in the RDATA of a record, or nil.
func (l *lookup) target(name []byte, flags byte) *node {
	own := len(name) - len(l.origin)
	if own < 0 {
		return nil
	}
	if flags&hasUpper != 0 {
		var low [wire.MaxName]byte
		name = wire.AppendLower(low[:0], name)
	}
	if string(name[own:]) != string(l.origin) {
		return nil
	}
	return l.names.get(name[:own])
}
