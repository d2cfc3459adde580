package etcd

import (
	"encoding/binary"
	"math"

	"github.com/seamark/seamark/wire"
)

// weightSums are the sums of the weights of the messages of each priority. The zero
// value is empty.
type weightSums struct {
	few  [8]weightSum // the first n priorities
	n    int
	many map[uint16]uint64 // further ones: each key may have its own
}

type weightSum struct {
	priority uint16
	sum      uint64
}

func (w *weightSums) add(priority uint16, weight uint32) {
	for i := range w.few[:w.n] {
		if w.few[i].priority == priority {
			w.few[i].sum += uint64(weight)
			return
		}
	}
	if w.n < len(w.few) {
		w.few[w.n] = weightSum{priority, uint64(weight)}
		w.n++
		return
	}
	if w.many == nil {
		w.many = map[uint16]uint64{}
	}
	w.many[priority] += uint64(weight)
}

func (w *weightSums) sum(priority uint16) uint64 {
	for i := range w.few[:w.n] {
		if w.few[i].priority == priority {
			return w.few[i].sum
		}
	}
	return w.many[priority]
}

// services writes a SRV record for each message with a host. Weights are shares of a
// hundred, of the records of one priority.
func (l *lookup) services(r run) {
	l.group(&r, 0)
	var sums weightSums
	var m message
	for all := r; all.next(&m); {
		if m.hosted() {
			sums.add(l.preference(&m), m.heaviness())
		}
	}
	q, a := l.q, &l.q.Answer
	var name [wire.MaxName]byte
	for r.next(&m) {
		if len(a.Buf) > q.SizeLimit() {
			return // what is missing shows when the message is cut
		}
		if !m.hosted() {
			continue
		}
		target := appendTarget(name[:0], &m)
		at := l.head([]byte(wire.OwnerIsQuestion), wire.TypeSRV, 6+len(target))
		a.Buf = binary.BigEndian.AppendUint16(a.Buf, l.preference(&m))
		a.Buf = binary.BigEndian.AppendUint16(a.Buf, l.weight(sums.sum(l.preference(&m)), &m))
		a.Buf = binary.BigEndian.AppendUint16(a.Buf, m.port)
		a.Buf = append(a.Buf, target...)
		l.keep(at, len(wire.OwnerIsQuestion), l.ttlOf(&m, q.Now()))
	}
}

func (l *lookup) preference(m *message) uint16 {
	if m.priority == 0 {
		return l.priority
	}
	return m.priority
}

// weight returns m's share of a hundred, as SkyDNS calculates it; CoreDNS raises 0 to 1.
// sum is the sum of the weights of its priority.
func (l *lookup) weight(sum uint64, m *message) uint16 {
	share := 100 / float64(sum)
	share *= float64(m.heaviness())
	if w := uint16(math.Floor(share)); w > 0 || l.skydns {
		return w
	}
	return 1
}

// appendTarget writes the name that a message's record leads to: its host, or, if
// that is an address, the name of its key.
func appendTarget(buf []byte, m *message) []byte {
	if m.name != "" {
		return append(buf, m.name...)
	}
	return appendName(buf, m.path, int(m.strip))
}

// exchanges writes a MX record for each message that says so.
func (l *lookup) exchanges(r run) {
	l.group(&r, 0)
	a := &l.q.Answer
	var m message
	var name [wire.MaxName]byte
	for r.next(&m) {
		if l.q.ExceedsLimit() {
			return
		}
		if !m.mail || !m.hosted() {
			continue
		}
		target := appendTarget(name[:0], &m)
		at := l.head([]byte(wire.OwnerIsQuestion), wire.TypeMX, 2+len(target))
		a.Buf = append(binary.BigEndian.AppendUint16(a.Buf, l.preference(&m)), target...)
		l.keep(at, len(wire.OwnerIsQuestion), l.ttlOf(&m, l.q.Now()))
	}
}

// nameservers writes a NS record for each address below ns.dns, and the addresses.
// A host that is a name is no name server: there is nothing to glue.
func (l *lookup) nameservers(r run) {
	l.group(&r, 0)
	a := &l.q.Answer
	var m message
	var name [wire.MaxName]byte
	for all := r; all.next(&m); {
		if l.q.ExceedsLimit() {
			return
		}
		if !m.addr.IsValid() {
			continue
		}
		target := appendTarget(name[:0], &m)
		at := l.head([]byte(wire.OwnerIsQuestion), wire.TypeNS, len(target))
		a.Buf = append(a.Buf, target...)
		l.keep(at, len(wire.OwnerIsQuestion), l.ttlOf(&m, l.q.Now()))
	}
	l.section = wire.Additional
	for r.next(&m) {
		if m.addr.IsValid() {
			l.glue(&m)
		}
	}
}

// glue writes the address of a name that has been made of a key.
func (l *lookup) glue(m *message) {
	if l.q.ExceedsLimit() {
		return
	}
	a := &l.q.Answer
	var room [2 * wire.MaxName]byte
	owner := a.AppendOwner(room[wire.MaxName:wire.MaxName], appendTarget(room[:0], m))
	at := len(a.Buf)
	a.Buf = wire.AppendAddress(a.Buf, owner, 0, m.addr)
	l.keep(at, len(owner), l.ttlOf(m, l.q.Now()))
}

// targets writes the addresses of what SRV or MX records lead to.
func (l *lookup) targets(r run, mail bool) {
	l.group(&r, 0)
	l.section = wire.Additional
	a := &l.q.Answer
	if len(a.Buf) > l.q.SizeLimit() {
		return
	}
	var m message
	for r.next(&m) {
		switch {
		case l.q.ExceedsLimit():
			return
		case mail && !m.mail:
		case m.addr.IsValid():
			l.glue(&m)
		case m.name != "" && l.written.add(l.seed, []byte(m.name)):
			l.root = m.name
			if l.target(m.name, four|six, 0); l.waits {
				return
			}
		}
	}
}
