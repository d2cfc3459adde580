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

// OwnerIsQuestion is an owner name in a record that equals the question's name: a
// pointer to the question.
const OwnerIsQuestion = "\xC0\x0C"

// An Answer is a message under construction, in the form that the package comment
// describes. Its memory belongs to the caller. It grows by append, and so leaves
// that memory if it is too small.
type Answer struct {
	Buf   []byte
	Count [3]uint16 // of records, by section
	body  int       // offset of the first record
}

// Reset starts a message in buf[:0] with space for the header, and the question.
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

// Clear removes all records.
func (a *Answer) Clear() {
	a.Buf = a.Buf[:a.body]
	a.Count = [3]uint16{}
}

// Empty reports whether the message has no records.
func (a *Answer) Empty() bool { return len(a.Buf) == a.body }

// Records returns the bytes behind the question.
func (a *Answer) Records() []byte { return a.Buf[a.body:] }

// RecordsOffset returns the offset of the first record.
func (a *Answer) RecordsOffset() int { return a.body }

// Append adds n records that are in the form of an Answer.
func (a *Answer) Append(s Section, records []byte, n int) {
	a.Buf = append(a.Buf, records...)
	a.count(s, n)
}

// AppendString is like Append for records in a string.
func (a *Answer) AppendString(s Section, records string, n int) {
	a.Buf = append(a.Buf, records...)
	a.count(s, n)
}

// count adds to the number of records, up to the largest number that a header can
// hold: a Service may have more endpoints. So many records never fit into a message,
// and Truncate counts those that do.
func (a *Answer) count(s Section, n int) {
	a.Count[s] = uint16(min(int(a.Count[s])+n, math.MaxUint16))
}

// QuestionPointer returns a pointer to the suffix of the question name that begins
// at offset off.
func QuestionPointer(off int) [2]byte {
	return [2]byte{0xC0 | byte((HeaderLen+off)>>8), byte(HeaderLen + off)}
}

// AppendRecordHeader appends a record's owner, type, class IN, TTL and RDLENGTH to
// buf. The owner is in the form of an Answer.
func AppendRecordHeader[O string | []byte](buf []byte, owner O, t Type, ttl uint32, rdlen int) []byte {
	buf = append(buf, owner...)
	return append(buf,
		byte(t>>8), byte(t), 0, byte(ClassIN),
		byte(ttl>>24), byte(ttl>>16), byte(ttl>>8), byte(ttl),
		byte(rdlen>>8), byte(rdlen))
}

// AppendAddress appends an A or AAAA record to buf.
func AppendAddress[O string | []byte](buf []byte, owner O, ttl uint32, addr netip.Addr) []byte {
	if addr.Is4() {
		b := addr.As4()
		return append(AppendRecordHeader(buf, owner, TypeA, ttl, 4), b[:]...)
	}
	b := addr.As16()
	return append(AppendRecordHeader(buf, owner, TypeAAAA, ttl, 16), b[:]...)
}

// A Record holds the offsets of the parts of one record in its message.
type Record struct {
	Owner int // of the owner name
	Head  int // of the type, which precedes class, TTL and RDLENGTH
	RData int
	Next  int // of the end of the record
	Type  Type
}

// ReadRecord returns the offsets of the record at msg[off:].
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

// AppendRecord copies the record at msg[off:] of another message into section s. It
// writes out and checks the names in it, also those in the RDATA of the types of RFC
// 3597 §4; other RDATA has no compressed names and is copied. It returns the offset
// of the end of the record. On an error nothing is added. msg must not share memory
// with a.
func (a *Answer) AppendRecord(s Section, msg []byte, off int) (next int, err error) {
	return a.AppendRenamed(s, msg, off, nil)
}

// AppendRenamed is like AppendRecord, and replaces each name by the result of
// rename.
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

// expand appends the name at msg[off:] to buf, written out and renamed.
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

// A layout describes the RDATA of a type in which names may be compressed: bytes,
// character-strings, names, bytes.
type layout struct {
	before  int
	strings int
	names   int  // zero: the RDATA is opaque
	after   int  // -1: any number
	shrinks bool // defined by RFC 1035, so the names may be compressed in replies
}

// layout returns the layout of the types of RFC 3597 §4, in which senders may have
// compressed names.
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

// appendRData appends the RDATA of rec to buf. msg ends where rec does.
func appendRData(buf, msg []byte, rec Record, rename Rename) ([]byte, error) {
	l := rec.Type.layout()
	if rename != nil && (rec.Type == TypeSVCB || rec.Type == TypeHTTPS) {
		// The target is not compressed (RFC 9460 §2.2), but it can be renamed.
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

// Truncate removes records from the end until the message has at most size bytes. It
// reports whether a record of the answer section was removed. An RRset of another
// section is removed completely, since nothing shows the client that a part is
// missing (RFC 2181 §9). The header and the question always stay.
func (a *Answer) Truncate(size int) (answersLost bool) {
	if len(a.Buf) <= size {
		return false
	}
	before := a.Count[Answers]
	off, kept := a.body, [3]uint16{}
	for s := range a.Count {
		first, behind := Record{}, uint16(0) // of the current RRset: the first record, and the number of others
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
	a.Buf = a.Buf[:off] // bytes behind the counted records
	return false
}

// sameSet reports whether two records have the same owner and type. Owners are
// compared byte by byte, since one handler adds all records of an RRset.
func sameSet(msg []byte, a, b Record) bool {
	if a.Type != b.Type {
		return false
	}
	var room [2][MaxName]byte
	x, _, errX := expand(room[0][:0], msg, a.Owner)
	y, _, errY := expand(room[1][:0], msg, b.Owner)
	return errX == nil && errY == nil && string(x) == string(y)
}
