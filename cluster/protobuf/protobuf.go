// Package protobuf reads protobuf messages field by field, without copying and without
// generated code, for package api and the codec of package apiserver.
package protobuf

import "errors"

// errMalformed is the error for bytes that are not a protobuf message of the expected
// type.
var errMalformed = errors.New("malformed protobuf")

// Wire types of protobuf.
const (
	wireVarint  = 0
	wireFixed64 = 1
	wireBytes   = 2
	wireGroup   = 3
	wireEnd     = 4
	wireFixed32 = 5
)

// A Message iterates over the fields of a protobuf message without copying. The
// caller decodes the fields that it knows by number; Next skips all others:
//
//	m := protobuf.Message{Rest: raw}
//	for m.Next() {
//		switch m.Number {
//		case 1:
//			name = m.Bytes()
//		}
//	}
//	return m.Err
type Message struct {
	Rest   []byte // after the field
	Number int32  // of the field
	wire   uint8
	value  uint64 // of a varint
	text   []byte // of a field with a length; it is part of the message
	Err    error  // ends the iteration
}

// Next advances to the next field. It returns false at the end and after an error.
func (m *Message) Next() bool {
	if m.Err != nil || len(m.Rest) == 0 {
		return false
	}
	tag := m.short()
	m.Number, m.wire = int32(tag>>3), uint8(tag&7)
	if m.Number <= 0 {
		m.Err = errMalformed
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
		m.Err = errMalformed
	}
	return m.Err == nil
}

// group skips a group and the groups in it.
func (m *Message) group() {
	for depth := 1; depth > 0 && m.Err == nil; {
		if len(m.Rest) == 0 {
			m.Err = errMalformed
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
			m.Err = errMalformed
		}
	}
}

// short is uvarint with a fast path for numbers of one byte.
func (m *Message) short() uint64 {
	if len(m.Rest) > 0 && m.Rest[0] < 0x80 {
		b := m.Rest[0]
		m.Rest = m.Rest[1:]
		return uint64(b)
	}
	return m.uvarint()
}

// uvarint reads a number of up to ten bytes; bits above the 64th are dropped.
func (m *Message) uvarint() (value uint64) {
	for i := range min(len(m.Rest), 10) {
		b := m.Rest[i]
		value |= uint64(b&0x7f) << (7 * i)
		if b < 0x80 {
			m.Rest = m.Rest[i+1:]
			return value
		}
	}
	m.Err = errMalformed
	return 0
}

func (m *Message) take(n uint64) []byte {
	if n > uint64(len(m.Rest)) {
		m.Err = errMalformed
		return nil
	}
	taken := m.Rest[:n]
	m.Rest = m.Rest[n:]
	return taken
}

// Bytes returns a field with a length: a string or an embedded message. It shares
// memory with the message.
func (m *Message) Bytes() []byte {
	if m.wire != wireBytes {
		m.Err = errMalformed
		return nil
	}
	return m.text
}

// String returns a copy of the field's text.
func (m *Message) String() string { return string(m.Bytes()) }

// Varint returns a numeric field.
func (m *Message) Varint() uint64 {
	if m.wire != wireVarint {
		m.Err = errMalformed
		return 0
	}
	return m.value
}

// Bool returns a boolean field.
func (m *Message) Bool() bool { return m.Varint() != 0 }

// Fail ends the iteration if err is not nil.
func (m *Message) Fail(err error) {
	if m.Err == nil {
		m.Err = err
	}
}

// Pair returns an entry of a map.
func (m *Message) Pair() (key, value []byte) {
	entry := Message{Rest: m.Bytes()}
	for entry.Next() {
		switch entry.Number {
		case 1:
			key = entry.Bytes()
		case 2:
			value = entry.Bytes()
		}
	}
	m.Fail(entry.Err)
	return key, value
}
