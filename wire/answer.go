package wire

import (
	"encoding/binary"
	"errors"
	"math"
	"net/netip"
)

// A Section of a message, in the order in which they must be written.
type Section uint8

const (
	Answers Section = iota
	Authority
	Additional
)

// OwnerIsQuestion is the owner name "the question's name" as it stands in a
// record: a pointer to the question.
const OwnerIsQuestion = "\xC0\x0C"

// An Answer is a message under construction, in the answer's form (see the
// package's doc). Its memory is lent; it grows by append, so it may leave that
// memory if it is too small.
type Answer struct {
	Buf   []byte
	Count [3]uint16 // records by section
	body  int       // where the records begin
}

// Reset starts a message in buf[:0] with room for the header and the question.
func (a *Answer) Reset(buf, question []byte) {
	a.Buf = append(append(buf[:0], make([]byte, HeaderLen)...), question...)
	a.body = len(a.Buf)
	a.Count = [3]uint16{}
}

// MoveTo moves the message to the start of buf's memory, if it fits there. The two
// may overlap.
func (a *Answer) MoveTo(buf []byte) {
	if len(a.Buf) <= cap(buf) {
		a.Buf = buf[:copy(buf[:len(a.Buf)], a.Buf)]
	}
}

// Clear takes all records out again.
func (a *Answer) Clear() {
	a.Buf = a.Buf[:a.body]
	a.Count = [3]uint16{}
}

// Empty says that there is no record in it.
func (a *Answer) Empty() bool { return len(a.Buf) == a.body }

// Records are the bytes behind the question.
func (a *Answer) Records() []byte { return a.Buf[a.body:] }

// RecordsOffset is the offset of the first record.
func (a *Answer) RecordsOffset() int { return a.body }

// Append adds n records that are in the answer's form already.
func (a *Answer) Append(s Section, records []byte, n int) {
	a.Buf = append(a.Buf, records...)
	a.count(s, n)
}

// AppendString is Append for records kept as a string.
func (a *Answer) AppendString(s Section, records string, n int) {
	a.Buf = append(a.Buf, records...)
	a.count(s, n)
}

// count stops at the most that a header can say: a Service may have more
// endpoints than that. So many records never fit into a message, and Cut finds
// the true number of those that do.
func (a *Answer) count(s Section, n int) {
	a.Count[s] = uint16(min(int(a.Count[s])+n, math.MaxUint16))
}

// QuestionPointer makes an owner or target of a suffix of the question: the name that
// begins at offset off of it.
func QuestionPointer(off int) [2]byte {
	return [2]byte{0xC0 | byte((HeaderLen+off)>>8), byte(HeaderLen + off)}
}

// AppendRecordHeader writes a record's owner, type, class IN, TTL and RDLENGTH behind
// buf. The owner is in the answer's form.
func AppendRecordHeader[O string | []byte](buf []byte, owner O, t Type, ttl uint32, rdlen int) []byte {
	buf = append(buf, owner...)
	return append(buf,
		byte(t>>8), byte(t), 0, byte(ClassIN),
		byte(ttl>>24), byte(ttl>>16), byte(ttl>>8), byte(ttl),
		byte(rdlen>>8), byte(rdlen))
}

// AppendAddress writes an A or AAAA record behind buf.
func AppendAddress[O string | []byte](buf []byte, owner O, ttl uint32, addr netip.Addr) []byte {
	if addr.Is4() {
		b := addr.As4()
		return append(AppendRecordHeader(buf, owner, TypeA, ttl, 4), b[:]...)
	}
	b := addr.As16()
	return append(AppendRecordHeader(buf, owner, TypeAAAA, ttl, 16), b[:]...)
}

// A Record is where the parts of one record are in its message.
type Record struct {
	Owner int // offset of the owner name
	Head  int // offset of the type; class, TTL and RDLENGTH follow
	RData int
	Next  int // offset behind the record
	Type  Type
}

// ReadRecord finds the parts of the record at msg[off:].
func ReadRecord(msg []byte, off int) (Record, bool) {
	head, ok := skip(msg, off)
	if !ok || head+10 > len(msg) {
		return Record{}, false
	}
	next := head + 10 + int(binary.BigEndian.Uint16(msg[head+8:]))
	if next > len(msg) {
		return Record{}, false
	}
	return Record{off, head, head + 10, next, Type(binary.BigEndian.Uint16(msg[head:]))}, true
}

var errRecord = errors.New("malformed record")

// AppendRecord copies the record at msg[off:] of another message into section
// s. It writes the names in it out, those in the RDATA of the types of RFC
// 3597 §4 included, and checks them; other RDATA holds no compressed names and
// is copied as it is. It returns the offset behind the record; on an error
// nothing has been added. msg must not be a's own memory.
func (a *Answer) AppendRecord(s Section, msg []byte, off int) (next int, err error) {
	return a.AppendRenamed(s, msg, off, nil)
}

// AppendRenamed is AppendRecord with other names.
func (a *Answer) AppendRenamed(s Section, msg []byte, off int, rename Rename) (next int, err error) {
	rec, ok := ReadRecord(msg, off)
	if !ok {
		return 0, errRecord
	}
	start := len(a.Buf)
	defer func() {
		if err != nil {
			a.Buf = a.Buf[:start]
		}
	}()
	if a.Buf, _, err = rename.expand(a.Buf, msg, off, rec.Type, false); err != nil {
		return 0, err
	}
	a.Buf = append(a.Buf, msg[rec.Head:rec.RData]...)
	rdata := len(a.Buf)
	if a.Buf, err = appendRData(a.Buf, msg[:rec.Next], rec, rename); err != nil {
		return 0, err
	}
	if len(a.Buf)-rdata > MaxMessage {
		return 0, errRecord
	}
	binary.BigEndian.PutUint16(a.Buf[rdata-2:], uint16(len(a.Buf)-rdata))
	a.count(s, 1)
	return rec.Next, nil
}

// expand is expand, and then the renaming, if there is one.
func (rename Rename) expand(buf, msg []byte, off int, t Type, rdata bool) (out []byte, next int, err error) {
	start := len(buf)
	if out, next, err = expand(buf, msg, off); err != nil || rename == nil {
		return out, next, err
	}
	other := rename(out[start:], t, rdata)
	if len(other) == 0 || len(other) > MaxName {
		return buf, 0, errName
	}
	return append(out[:start], other...), next, nil
}

// A layout is how the RDATA of a type is built in which names may be
// compressed: bytes, character-strings, names, bytes.
type layout struct {
	before  int
	strings int
	names   int  // none: the RDATA is opaque
	after   int  // -1: any number
	shrinks bool // one of RFC 1035's own, whose names we may compress too
}

// layout knows the types of RFC 3597 §4: senders may have compressed the names
// in these, and must not in any other.
func (t Type) layout() layout {
	switch t {
	case TypeNS, TypeCNAME, TypePTR, typeMD, typeMF, typeMB, typeMG, typeMR:
		return layout{names: 1, shrinks: true}
	case TypeSOA:
		return layout{names: 2, after: 20, shrinks: true}
	case TypeMX:
		return layout{before: 2, names: 1, shrinks: true}
	case typeMINFO:
		return layout{names: 2, shrinks: true}
	case TypeDNAME:
		return layout{names: 1}
	case TypeRP:
		return layout{names: 2}
	case TypeAFSDB, TypeKX, typeRT:
		return layout{before: 2, names: 1}
	case typePX:
		return layout{before: 2, names: 2}
	case TypeSRV:
		return layout{before: 6, names: 1}
	case TypeNAPTR:
		return layout{before: 4, strings: 3, names: 1}
	case typeSIG:
		return layout{before: 18, names: 1, after: -1}
	case typeNXT:
		return layout{names: 1, after: -1}
	}
	return layout{}
}

// appendRData writes the RDATA of rec behind buf; msg ends where rec does.
func appendRData(buf, msg []byte, rec Record, rename Rename) ([]byte, error) {
	l := rec.Type.layout()
	if rename != nil && (rec.Type == TypeSVCB || rec.Type == TypeHTTPS) {
		// Their target is never compressed (RFC 9460 §2.2), but it is a name.
		l = layout{before: 2, names: 1, after: -1}
	}
	if l.names == 0 {
		return append(buf, msg[rec.RData:]...), nil
	}
	off := rec.RData + l.before
	for range l.strings {
		if off >= len(msg) {
			return buf, errRecord
		}
		off += 1 + int(msg[off])
	}
	if off > len(msg) {
		return buf, errRecord
	}
	buf = append(buf, msg[rec.RData:off]...)
	var err error
	for range l.names {
		if buf, off, err = rename.expand(buf, msg, off, rec.Type, true); err != nil {
			return buf, err
		}
	}
	if l.after >= 0 && len(msg)-off != l.after {
		return buf, errRecord
	}
	return append(buf, msg[off:]...), nil
}

// PutHeader writes the header: the first twelve bytes of the message.
func PutHeader(msg []byte, id, flags uint16, questions int, count [3]uint16, additional int) {
	binary.BigEndian.PutUint16(msg, id)
	binary.BigEndian.PutUint16(msg[2:], flags)
	binary.BigEndian.PutUint16(msg[4:], uint16(questions))
	binary.BigEndian.PutUint16(msg[6:], count[Answers])
	binary.BigEndian.PutUint16(msg[8:], count[Authority])
	binary.BigEndian.PutUint16(msg[10:], count[Additional]+uint16(additional))
}

// Truncate takes records from the end until the message has at most size bytes. It
// says whether a record of the answer section had to go. Of the other sections
// an RRset goes whole: nothing tells the client that a part of it is missing
// (RFC 2181 §9). The header and the question stay, whatever the size.
func (a *Answer) Truncate(size int) (answersLost bool) {
	if len(a.Buf) <= size {
		return false
	}
	before := a.Count[Answers]
	off, kept := a.body, [3]uint16{}
	for s := range a.Count {
		first, behind := Record{}, uint16(0) // of the RRset: its first record, how many follow that
		for i := range a.Count[s] {
			rec, ok := ReadRecord(a.Buf, off)
			if ok && Section(s) != Answers {
				if i > 0 && sameSet(a.Buf, first, rec) {
					behind++
				} else {
					first, behind = rec, 0
				}
			}
			if !ok || rec.Next > size {
				if ok && behind > 0 {
					off, kept[s] = first.Owner, kept[s]-behind
				}
				a.Buf, a.Count = a.Buf[:off], kept
				return kept[Answers] < before
			}
			off = rec.Next
			kept[s]++
		}
	}
	a.Buf = a.Buf[:off] // what nobody counted
	return false
}

// sameSet says whether two records have owner and type in common. Records of
// one RRset spell their owner alike: they were added by one hand.
func sameSet(msg []byte, a, b Record) bool {
	if a.Type != b.Type {
		return false
	}
	var room [2][MaxName]byte
	x, _, errX := expand(room[0][:0], msg, a.Owner)
	y, _, errY := expand(room[1][:0], msg, b.Owner)
	return errX == nil && errY == nil && string(x) == string(y)
}
