package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
)

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

// TTL returns the TTL of the record, which is in msg.
func (r Record) TTL(msg []byte) uint32 { return binary.BigEndian.Uint32(msg[r.Head+4:]) }

// SetTTL sets the TTL of the record, which is in msg.
func (r Record) SetTTL(msg []byte, ttl uint32) { binary.BigEndian.PutUint32(msg[r.Head+4:], ttl) }

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

var errRecord = errors.New("malformed record")

// MalformedRecord returns an error with owner and type of the record at msg[off:], if they can be read.
func MalformedRecord(msg []byte, off int) error {
	r, ok := ReadRecord(msg, off)
	owner, _, err := expand(nil, msg, off)
	if !ok || err != nil {
		return errRecord
	}
	return fmt.Errorf("%s: malformed %s record", Lower(string(owner)), r.Type)
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

// A Rename returns the replacement of a name, which is in wire form and written out,
// or the name itself. rdata reports whether the name is in the RDATA of a record of
// type t; otherwise it is the owner. The result is copied at once.
type Rename func(name []byte, t Type, rdata bool) []byte

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
