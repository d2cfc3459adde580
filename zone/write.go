package zone

import (
	"math"

	"github.com/seamark/seamark/wire"
)

// finish writes the authority and additional sections.
func (l *lookup) finish() {
	if l.referral != nil {
		l.refer(l.referral)
	}
	if l.negative && l.Zone.negative != nil {
		l.putSigned(wire.Authority, l.apex, &l.Zone.soa)
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
	l.written = l.put(wire.Authority, nil, &l.answered)
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
func (l *lookup) putSigned(section wire.Section, owner []byte, s *set) writer {
	w := l.put(section, owner, s)
	if l.do && s.sigCount > 0 {
		l.putSigs(section, owner, s)
	}
	return w
}

// put writes the records of an RRset with another owner, or with its own if owner is nil. It
// stops when the answer is full.
func (l *lookup) put(section wire.Section, owner []byte, s *set) (w writer) {
	for rest := s.records; rest != "" && !l.full(); {
		var r stored
		r, rest = nextRecord(rest)
		w.append(l, section, owner, s.t, s.ttl, s.n, r)
	}
	return w
}

// putSigs writes the signatures of an RRset like put.
func (l *lookup) putSigs(section wire.Section, owner []byte, s *set) {
	var w writer
	for rest := s.sigs; rest != "" && !l.full(); {
		var r stored
		var ttl uint32
		r, ttl, rest = nextSig(rest)
		w.append(l, section, owner, wire.TypeRRSIG, ttl, s.n, r)
	}
}

// A writer writes the records of an RRset. The first one's owner is from start to end in the
// answer.
type writer struct{ start, end, count int }

// append writes a record of n.
func (w *writer) append(l *lookup, section wire.Section, owner []byte, t wire.Type, ttl uint32, n *node, r stored) {
	a := l.a
	buf := a.Buf
	if w.count++; w.count > 1 {
		buf = append(buf, buf[w.start:w.end]...)
	} else {
		w.start = len(buf)
		if owner == nil {
			buf = l.appendName(buf, n)
			owner = buf[w.start:]
		}
		buf = a.AppendOwner(buf[:w.start], owner)
		w.end = len(buf)
	}
	buf = wire.AppendRecordHeader(buf, "", t, ttl, r.len())
	if r.shared == 0 {
		a.Buf = append(buf, r.prefix...)
	} else {
		a.Buf = l.appendRData(buf, n, r)
	}
	if a.Count[section] < math.MaxUint16 {
		a.Count[section]++
	}
}

// headLen is the offset of the RDATA in a record whose owner is a pointer.
const headLen = len(wire.OwnerIsQuestion) + 10

// minLimit is a size that every reply may have (RFC 1035 §4.2.1).
const minLimit = 512

func (l *lookup) full() bool {
	return len(l.a.Buf) > minLimit && l.Server != nil && l.Server.ExceedsLimit()
}

// putTargets writes the addresses of the names in the RDATA of l.answered, which begin at an
// offset. Names that a delegation hides are glue, and only NS records have them as targets.
func (l *lookup) putTargets(before int) {
	isNS := l.answered.t == wire.TypeNS
	atEnd := l.answered.t != wire.TypeSVCB && l.answered.t != wire.TypeHTTPS
	head := l.written.end - l.written.start + headLen - len(wire.OwnerIsQuestion)
	rest, end := l.answered.records, l.written.start
	for range l.written.count {
		if l.full() {
			return
		}
		var r stored
		r, rest = nextRecord(rest)
		rdata := end + head
		if end = rdata + r.len(); r.flags&isRepeated != 0 || rdata+before >= end {
			continue
		}
		name := l.a.Buf[rdata+before : end]
		if !atEnd {
			name = targetOf(l.a.Buf[rdata:end], before)
		}
		n := l.target(name, r.flags)
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
