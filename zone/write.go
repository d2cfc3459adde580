package zone

import (
	"encoding/binary"

	"github.com/seamark/seamark/wire"
)

// finish writes what comes behind the answers.
func (l *lookup) finish() {
	if r := l.referral; r != nil {
		l.put(wire.Authority, r.name, r.get(wire.TypeNS))
		l.extra = r.get(wire.TypeNS)
		if ds := r.get(wire.TypeDS); ds != nil && l.do {
			l.putSet(wire.Authority, r.name, ds)
		} else if l.do {
			l.prove(r)
		}
	}
	if soa := l.Zone.negative; l.negative && soa != nil {
		l.putSet(wire.Authority, l.apex, soa)
	}
	for _, n := range l.proofs[:l.nProofs] {
		l.putSet(wire.Authority, n.name, n.get(wire.TypeNSEC))
	}
	if l.extra == nil {
		return
	}
	for _, n := range l.extra.targets {
		for _, t := range [2]wire.Type{wire.TypeA, wire.TypeAAAA} {
			if s := n.get(t); s != nil {
				l.putSet(wire.Additional, n.name, s)
			}
		}
	}
}

// putSet writes an RRset of the name owner, and its signatures if the client
// takes them.
func (l *lookup) putSet(section wire.Section, owner []byte, s *set) {
	l.put(section, owner, s)
	if l.do && s.nSigs > 0 {
		l.copy(section, owner, s.sigs, s.nSigs)
	}
}

// put writes an RRset without signatures.
func (l *lookup) put(section wire.Section, owner []byte, s *set) {
	l.copy(section, owner, s.records, s.n)
}

// head is where a record's RDATA begins if its owner is a pointer.
const head = len(wire.OwnerIsQuestion) + 10

// copy writes n records, which are those of the question's name as they stand,
// for another owner.
func (l *lookup) copy(section wire.Section, owner, records []byte, n int) {
	var room [wire.MaxName]byte
	a := l.a
	at := a.AppendOwner(room[:0], owner)
	if string(at) == wire.OwnerIsQuestion {
		a.Append(section, records, n)
		return
	}
	for i := 0; i < len(records); {
		next := i + head + int(binary.BigEndian.Uint16(records[i+head-2:]))
		a.Buf = append(a.Buf, at...)
		a.Append(section, records[i+len(wire.OwnerIsQuestion):next], 1)
		i = next
	}
}

// rdata is that of the set's first record.
func (s *set) rdata() []byte {
	return s.records[head : head+int(binary.BigEndian.Uint16(s.records[head-2:]))]
}

// ttl is that of all its records.
func (s *set) ttl() uint32 { return binary.BigEndian.Uint32(s.records[head-6:]) }

// labels counts those of a name in wire form.
func labels(name []byte) (n int) {
	for i := 0; name[i] != 0; i += int(name[i]) + 1 {
		n++
	}
	return n
}

// wildcard says whether a name's first label is "*".
func wildcard(name []byte) bool { return name[0] == 1 && name[1] == '*' }
