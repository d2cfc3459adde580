package zone

import (
	"encoding/binary"

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
			l.putSigned(wire.Authority, nil, &s)
		}
	}

	if before := l.answered.t.TargetOffset(); before >= 0 && l.written.count == l.answered.count {
		l.putAdditional(before)
	}
}

// putAdditional writes the additional section, as it was written for an earlier query if
// possible.
func (l *lookup) putAdditional(before int) {
	k, off := additionalKey{l.answered.n, l.answered.t, l.do}, len(l.a.Buf)
	if kept := l.additionals.get(k); kept != nil && kept.put(l.a) {
		if !l.full() {
			return
		}
		l.a.Buf, l.a.Count[wire.Additional] = l.a.Buf[:off], 0
	}
	if l.putTargets(before); !l.full() {
		l.additionals.add(k, l.a, off)
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
		l.putSigned(wire.Authority, nil, &ds)
	} else { // RFC 4035 §3.1.4, RFC 5155 §7.2.7
		var low [wire.MaxName]byte
		l.proveNoType(n, l.appendLower(low[:0], n), true)
	}
}

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
		w.append(l, owner, s.t, s.ttl, s.n, r)
	}
	l.a.Append(section, nil, w.count)
	return w
}

// putSigs writes the signatures of an RRset like put.
func (l *lookup) putSigs(section wire.Section, owner []byte, s *set) {
	var w writer
	for rest := s.sigs; rest != "" && !l.full(); {
		var r stored
		var ttl uint32
		r, ttl, rest = nextSig(rest)
		w.append(l, owner, wire.TypeRRSIG, ttl, s.n, r)
	}
	l.a.Append(section, nil, w.count)
}

// A writer writes the records of an RRset, one behind the other.
type writer struct {
	count       int
	first, head int // the offset of the first record, and the length of each one before its RDATA
	shared      int // the number of bytes of the node's name that the last record ends in
}

// append writes a record of n.
func (w *writer) append(l *lookup, owner []byte, t wire.Type, ttl uint32, n *node, r stored) {
	buf, last := l.a.Buf, len(l.a.Buf)
	size := r.len()
	if w.count > 0 {
		// All records of an RRset have the same owner, type and class.
		buf = append(buf, buf[w.first:w.first+w.head]...)
		numbers := buf[len(buf)-6:]
		binary.BigEndian.PutUint32(numbers, ttl)
		binary.BigEndian.PutUint16(numbers[4:], uint16(size))
	} else {
		if owner == nil {
			buf = l.appendName(buf, n)
			owner = buf[last:]
		}
		buf = wire.AppendRecordHeader(l.a.AppendOwner(buf[:last], owner), "", t, ttl, size)
		w.first, w.head = last, len(buf)-last
	}

	w.count++
	buf = append(buf, r.prefix...)
	if r.shared > 0 && r.shared == w.shared {
		buf = append(buf, buf[last-r.shared:last]...)
	} else if r.shared > 0 {
		buf = l.appendShared(buf, n, r.shared)
	}
	l.a.Buf, w.shared = buf, r.shared
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
	// The RDATA of SVCB and HTTPS records goes on after the name (RFC 9460 §2.2).
	atEnd := l.answered.t != wire.TypeSVCB && l.answered.t != wire.TypeHTTPS

	rest, end := l.answered.records, l.written.first
	for range l.written.count {
		var r stored
		r, rest = nextRecord(rest)

		rdata := end + l.written.head
		if end = rdata + r.len(); r.flags&isRepeated != 0 || rdata+before >= end {
			continue
		}

		name := l.a.Buf[rdata+before : end]
		if !atEnd {
			name = wire.NameAt(l.a.Buf[rdata:end], before)
		}

		n := l.target(name, r.flags)
		if n == nil || !isNS && (n.meta&isHidden != 0 || n.is(isDelegation)) {
			continue
		}
		if n.is(isComplete|hasUpperName) || r.flags&hasUpper != 0 {
			name = nil // they may be spelled in two ways
		}

		for rest := n.sets(); rest != ""; {
			var found set
			if rest = found.read(n, rest); found.t == wire.TypeA || found.t == wire.TypeAAAA {
				if w := l.putSigned(wire.Additional, name, &found); w.count == 0 && found.count > 0 {
					return // the answer is full
				}
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
