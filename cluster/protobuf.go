package cluster

import "errors"

// errProtobuf is the error for bytes that are not a protobuf message of the expected
// type.
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

// A message iterates over the fields of a protobuf message without copying. The
// caller decodes the fields that it knows by number; next skips all others:
//
//	for m := (message{rest: raw}); m.next(); {
//		switch m.number {
//		case 1:
//			name = m.bytes()
//		}
//	}
//	return m.err
type message struct {
	rest   []byte // after the field
	number int32  // of the field
	wire   uint8
	value  uint64 // of a varint
	text   []byte // of a field with a length; it is part of the message
	err    error  // ends the iteration
}

// next advances to the next field. It returns false at the end and after an error.
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

// group skips a group and the groups in it.
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

// short is uvarint with a fast path for numbers of one byte.
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

// bytes returns a field with a length: a string or an embedded message. It shares
// memory with the message.
func (m *message) bytes() []byte {
	if m.wire != wireBytes {
		m.err = errProtobuf
		return nil
	}
	return m.text
}

// string returns a copy of the field's text.
func (m *message) string() string { return string(m.bytes()) }

// varint returns a numeric or boolean field.
func (m *message) varint() uint64 {
	if m.wire != wireVarint {
		m.err = errProtobuf
		return 0
	}
	return m.value
}

func (m *message) bool() bool { return m.varint() != 0 }

// fail ends the iteration if err is not nil.
func (m *message) fail(err error) {
	if m.err == nil {
		m.err = err
	}
}

// pair returns an entry of a map.
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
