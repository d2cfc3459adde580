package etcd

import (
	"encoding/binary"
	"math"

	"github.com/seamark/seamark/wire"
)

// weightSums are the sums of the weights by priority. The zero value is empty.
type weightSums struct {
	few  [8]prioritySum // the first n priorities
	n    int
	many map[uint16]uint64 // the sums of further priorities
}

// A prioritySum is the sum of the weights of the records of one priority.
type prioritySum struct {
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
		w.few[w.n] = prioritySum{priority, uint64(weight)}
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

// writeSRV writes an SRV record for each message with a host. A weight is the
// record's percentage of the weights of its priority. Equal records count once.
func (l *lookup) writeSRV(r keyRange) {
	l.selectGroup(&r, 0)

	var sums weightSums
	var m message
	var counted set
	var name [8 + wire.MaxName]byte

	for all := r; all.next(&m); {
		if !m.hasHost() {
			continue
		}
		record := binary.BigEndian.AppendUint32(name[:0], m.effectiveWeight())
		record = binary.BigEndian.AppendUint16(record, l.priorityOf(&m))
		record = appendTarget(binary.BigEndian.AppendUint16(record, m.port), &m)
		if counted.add(l.seed, record) {
			sums.add(l.priorityOf(&m), m.effectiveWeight())
		}
	}

	for r.next(&m) {
		if len(l.q.Answer.Buf) > l.q.SizeLimit() {
			return // the answer will be truncated
		}
		if !m.hasHost() {
			continue
		}

		priority := l.priorityOf(&m)
		l.writeRecord(wire.TypeSRV, &m, priority, l.weight(sums.sum(priority), &m), m.port)
	}
}

func (l *lookup) priorityOf(m *message) uint16 {
	if m.priority == 0 {
		return l.priority
	}
	return m.priority
}

// weight returns the SRV weight of m, calculated as SkyDNS does, from the sum of the
// weights of its priority. CoreDNS raises 0 to 1.
func (l *lookup) weight(sum uint64, m *message) uint16 {
	part := 100 / float64(sum)
	part *= float64(m.effectiveWeight())
	if w := uint16(math.Floor(part)); w > 0 || l.skydns {
		return w
	}
	return 1
}

// appendTarget appends the target name of an SRV, MX or NS record: the host, or,
// for an address, the name of the key.
func appendTarget(buf []byte, m *message) []byte {
	if m.name != "" {
		return append(buf, m.name...)
	}
	return appendName(buf, m.path, int(m.strip))
}

// writeRecord writes a record of the query's name whose data are numbers and the target of m.
func (l *lookup) writeRecord(t wire.Type, m *message, numbers ...uint16) {
	a := &l.q.Answer
	var name [wire.MaxName]byte
	target := appendTarget(name[:0], m)
	at := l.beginRecord([]byte(wire.OwnerIsQuestion), t, 2*len(numbers)+len(target))
	for _, n := range numbers {
		a.Buf = binary.BigEndian.AppendUint16(a.Buf, n)
	}
	a.Buf = append(a.Buf, target...)
	l.endRecord(at, len(wire.OwnerIsQuestion), l.ttlOf(m, l.q.Now()))
}

// writeMX writes an MX record for each message with mail.
func (l *lookup) writeMX(r keyRange) {
	l.selectGroup(&r, 0)
	var m message
	for r.next(&m) {
		if l.q.ExceedsLimit() {
			return
		}
		if !m.mail || !m.hasHost() {
			continue
		}
		l.writeRecord(wire.TypeMX, &m, l.priorityOf(&m))
	}
}

// writeNS writes an NS record for each address below ns.dns, and the addresses.
// Hosts that are names are skipped: they have no glue.
func (l *lookup) writeNS(r keyRange) {
	l.selectGroup(&r, 0)
	var m message
	for all := r; all.next(&m); {
		if l.q.ExceedsLimit() {
			return
		}
		if !m.addr.IsValid() {
			continue
		}
		l.writeRecord(wire.TypeNS, &m)
	}
	l.section = wire.Additional
	for r.next(&m) {
		if m.addr.IsValid() {
			l.writeGlue(&m)
		}
	}
}

// writeGlue writes the address of a target that is the name of a key.
func (l *lookup) writeGlue(m *message) {
	if l.q.ExceedsLimit() {
		return
	}
	a := &l.q.Answer
	var buf [2 * wire.MaxName]byte
	owner := a.AppendOwner(buf[wire.MaxName:wire.MaxName], appendTarget(buf[:0], m))
	at := len(a.Buf)
	a.Buf = wire.AppendAddress(a.Buf, owner, 0, m.addr)
	l.endRecord(at, len(owner), l.ttlOf(m, l.q.Now()))
}

// writeTargets writes the addresses of SRV or MX targets.
func (l *lookup) writeTargets(r keyRange, mail bool) {
	l.selectGroup(&r, 0)
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
			l.writeGlue(&m)
		case m.name != "" && l.written.add(l.seed, []byte(m.name)):
			l.root = m.name
			if l.writeTarget(m.name, setA|setAAAA, 0); l.mustWait {
				return
			}
		}
	}
}
