package dynupdate

import (
	"encoding/binary"
	"fmt"

	"github.com/seamark/seamark/wire"
)

// A codeError is an error that is not SERVFAIL: the response code of an update that is rejected.
type codeError struct {
	code wire.RCode
	text string
}

func (e *codeError) Error() string { return e.text }

func reject(code wire.RCode, format string, args ...any) error {
	return &codeError{code, fmt.Sprintf(format, args...)}
}

// A record is one of the prerequisites or changes of an update.
type record struct {
	owner    string    // in wire form, as the client has spelled it
	name     wire.Name // owner in lower case
	t        wire.Type
	class    wire.Class
	ttl      uint32
	hasRData bool
	rdata    string // written out; only of classes in which it is a record's
	key      string // rdata in the form in which records are compared
}

// classNONE is the class of records that must not exist, or are deleted (RFC 2136 §1.2).
const classNONE wire.Class = 254

// A message is an update. Its first records are the prerequisites.
type message struct {
	prerequisites, changes []record
	size                   int64 // its memory, about
}

var errForm = reject(wire.FormErr, "malformed message")

// parseMessage reads the sections of an update, which have most records at most in common. An error is
// a *codeError.
func parseMessage(packet []byte, most int) (m message, err error) {
	if len(packet) < wire.HeaderLen {
		return m, errForm
	}
	counts := [...]int{int(binary.BigEndian.Uint16(packet[6:])), int(binary.BigEndian.Uint16(packet[8:]))}
	if counts[0]+counts[1] > most {
		return m, reject(wire.Refused, "%d records in the update, more than max_update_records", counts[0]+counts[1])
	}

	_, off, ok := wire.ReadName(nil, packet, wire.HeaderLen)
	if !ok || off+4 > len(packet) {
		return m, errForm
	}
	off += 4

	for i, list := range [...]*[]record{&m.prerequisites, &m.changes} {
		for range counts[i] {
			var r record
			if r, off, err = parseRecord(packet, off, i == 1); err != nil {
				return m, err
			}
			*list = append(*list, r)
			m.size += editSize + int64(len(r.owner)+len(r.name)+len(r.rdata)+len(r.key))
		}
	}
	return m, nil
}

// parseRecord reads the record at msg[off:], and returns the offset of its end.
func parseRecord(msg []byte, off int, isChange bool) (r record, next int, err error) {
	owner, _, okName := wire.ReadName(nil, msg, off)
	at, ok := wire.ReadRecord(msg, off)
	if !ok || !okName {
		return r, 0, errForm
	}

	r = record{
		owner: string(owner), name: wire.Lower(string(owner)), t: at.Type, ttl: at.TTL(msg),
		class: wire.Class(binary.BigEndian.Uint16(msg[at.Head+2:])), hasRData: at.Next > at.RData,
	}
	if r.class != wire.ClassIN && (r.class != classNONE || !isChange) {
		return r, at.Next, nil
	}

	// A deletion has the class NONE, and data as in class IN (RFC 2136 §2.5.4).
	var a wire.Answer
	if _, err := a.AppendRecord(wire.Answers, msg, off); err != nil {
		return r, 0, reject(wire.FormErr, "%v", wire.MalformedRecord(msg, off))
	}
	copied, _ := wire.ReadRecord(a.Buf, 0)
	if !r.t.ValidRData(a.Buf[copied.RData:]) {
		return r, 0, reject(wire.FormErr, "%v", wire.MalformedRecord(msg, off))
	}
	r.rdata = string(a.Buf[copied.RData:])
	r.key = comparable(a.Buf, copied)
	return r, at.Next, nil
}

// comparable returns the RDATA of a record in the form in which updates compare it: names are equal
// in any spelling (RFC 2136 §1.1.1).
func comparable(msg []byte, at wire.Record) string {
	if canonical, err := at.AppendCanonical(nil, msg); err == nil {
		return string(canonical)
	}
	return string(msg[at.RData:at.Next])
}
