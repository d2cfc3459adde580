package cluster

import "errors"

// errProtobuf is the error of bytes that are no protobuf message, or not the
// one that they should be.
var errProtobuf = errors.New("malformed protobuf")

// Wire types of protobuf.
const (
	wireVarint  = 0
	wireFixed64 = 1
	wireBytes   = 2
	wireGroup   = 3
	wireEnd     = 4
	wireFixed32 = 5
)

// A message walks over the fields of a protobuf message where they lie; nothing
// is copied. A caller looks at the fields that it knows by number and lets next
// pass over all others:
//
//	for m := (message{rest: raw}); m.next(); {
//		switch m.number {
//		case 1:
//			name = m.bytes()
//		}
//	}
//	return m.err
type message struct {
	rest   []byte // behind the field
	number int32  // of the field
	wire   uint8
	value  uint64 // of a varint
	text   []byte // of a field with a length; it is part of the message
	err    error  // what is wrong with the message; it ends the walk
}

// next goes on to the next field. It is false at the end, and where the message
// is malformed.
func (m *message) next() bool {
	if m.err != nil || len(m.rest) == 0 {
		return false
	}
	tag := m.short()
	m.number, m.wire = int32(tag>>3), uint8(tag&7)
	if m.number <= 0 {
		m.err = errProtobuf
	}
	switch m.wire {
	case wireVarint:
		m.value = m.short()
	case wireBytes:
		m.text = m.take(m.short())
	case wireFixed64:
		m.take(8)
	case wireFixed32:
		m.take(4)
	case wireGroup:
		m.group()
	default:
		m.err = errProtobuf
	}
	return m.err == nil
}

// group passes over a group with all the groups in it.
func (m *message) group() {
	for depth := 1; depth > 0 && m.err == nil; {
		if len(m.rest) == 0 {
			m.err = errProtobuf
			return
		}
		tag := m.uvarint()
		switch tag & 7 {
		case wireVarint:
			m.uvarint()
		case wireBytes:
			m.take(m.uvarint())
		case wireFixed64:
			m.take(8)
		case wireFixed32:
			m.take(4)
		case wireGroup:
			depth++
		case wireEnd:
			depth--
		default:
			m.err = errProtobuf
		}
	}
}

// short is uvarint, fast where the number has one byte, as most have.
func (m *message) short() uint64 {
	if len(m.rest) > 0 && m.rest[0] < 0x80 {
		b := m.rest[0]
		m.rest = m.rest[1:]
		return uint64(b)
	}
	return m.uvarint()
}

// uvarint reads a number of up to ten bytes; bits above the 64th are dropped.
func (m *message) uvarint() (value uint64) {
	for i := range min(len(m.rest), 10) {
		b := m.rest[i]
		value |= uint64(b&0x7f) << (7 * i)
		if b < 0x80 {
			m.rest = m.rest[i+1:]
			return value
		}
	}
	m.err = errProtobuf
	return 0
}

func (m *message) take(n uint64) []byte {
	if n > uint64(len(m.rest)) {
		m.err = errProtobuf
		return nil
	}
	taken := m.rest[:n]
	m.rest = m.rest[n:]
	return taken
}

// bytes is a field that has a length: a string, or a message in this one. It
// shares memory with the message.
func (m *message) bytes() []byte {
	if m.wire != wireBytes {
		m.err = errProtobuf
		return nil
	}
	return m.text
}

// string is the field's text in memory of its own.
func (m *message) string() string { return string(m.bytes()) }

// varint is a field that is a number or a truth value.
func (m *message) varint() uint64 {
	if m.wire != wireVarint {
		m.err = errProtobuf
		return 0
	}
	return m.value
}

func (m *message) bool() bool { return m.varint() != 0 }

// fail ends the walk if err is not nil.
func (m *message) fail(err error) {
	if m.err == nil {
		m.err = err
	}
}

// pair is an entry of a map.
func (m *message) pair() (key, value []byte) {
	entry := message{rest: m.bytes()}
	for entry.next() {
		switch entry.number {
		case 1:
			key = entry.bytes()
		case 2:
			value = entry.bytes()
		}
	}
	m.fail(entry.err)
	return key, value
}
