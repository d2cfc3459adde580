package wire

import (
	"encoding/binary"
	"math"
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

// Records returns the records as bytes: the part of a.Buf after the question.
func (a *Answer) Records() []byte { return a.Buf[a.body:] }

// RecordsOffset returns the offset in a.Buf of the first record, after the header
// and the question.
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
// and Truncate counts the records that do.
func (a *Answer) count(s Section, n int) {
	a.Count[s] = uint16(min(int(a.Count[s])+n, math.MaxUint16))
}

// QuestionPointer returns a pointer to the suffix of the question name that begins
// at offset off.
func QuestionPointer(off int) [2]byte {
	return [2]byte{0xC0 | byte((HeaderLen+off)>>8), byte(HeaderLen + off)}
}

// AppendRecord copies the record at msg[off:] of another message into section s. It
// writes out and checks the names in it, also names in the RDATA of the types of RFC
// 3597 §4; other RDATA has no compressed names and is copied. It returns the offset
// of the end of the record. On an error nothing is added. msg must not share memory
// with a.
func (a *Answer) AppendRecord(s Section, msg []byte, off int) (next int, err error) {
	return a.AppendRenamed(s, msg, off, nil)
}

// AppendValid is like AppendRecord, and checks the RDATA with ValidRData, too. MalformedRecord
// describes the record of an error.
func (a *Answer) AppendValid(s Section, msg []byte, off int) (next int, err error) {
	start, count := len(a.Buf), a.Count[s]
	if next, err = a.AppendRecord(s, msg, off); err == nil {
		r, _ := ReadRecord(a.Buf, start)

		// Addresses have another form in class CH (RFC 1035 §3.4.1 is for class IN alone).
		otherForm := r.Type == TypeA && Class(binary.BigEndian.Uint16(a.Buf[r.Head+2:])) != ClassIN
		if otherForm || r.Type.ValidRData(a.Buf[r.RData:]) {
			return next, nil
		}
		a.Buf, a.Count[s] = a.Buf[:start], count
	}
	return 0, errRecord
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
// section is removed completely, since the client cannot see that a part is missing
// (RFC 2181 §9). The header and the question always stay.
func (a *Answer) Truncate(size int) (answersLost bool) {
	if len(a.Buf) <= size {
		return false
	}

	before := a.Count[Answers]
	off, kept := a.body, [3]uint16{}
	for s := range a.Count {
		first, others := Record{}, uint16(0) // of the current RRset: the first record, and the number of others

		for i := range a.Count[s] {
			rec, ok := ReadRecord(a.Buf, off)
			if ok && Section(s) != Answers {
				if i > 0 && sameSet(a.Buf, first, rec) {
					others++
				} else {
					first, others = rec, 0
				}
			}

			if !ok || rec.Next > size {
				if ok && others > 0 {
					off, kept[s] = first.Owner, kept[s]-others
				}
				a.Buf, a.Count = a.Buf[:off], kept
				return kept[Answers] < before
			}

			off = rec.Next
			kept[s]++
		}
	}
	a.Buf = a.Buf[:off] // drop bytes after the counted records
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
