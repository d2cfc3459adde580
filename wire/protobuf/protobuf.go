// Package protobuf reads protobuf messages field by field, without copying and without
// generated code: the objects of an API server and of snapshots, dnstap and OTLP.
package protobuf

import (
	"encoding/binary"
	"errors"

	"google.golang.org/protobuf/encoding/protowire"
)

// errMalformed is the error for bytes that are not a protobuf message of the expected
// type.
var errMalformed = errors.New("malformed protobuf")

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
	Number protowire.Number
	Type   protowire.Type // of the field
	value  uint64         // of a number
	text   []byte         // of a field with a length; it is part of the message
	Err    error          // ends the iteration
}

// Next advances to the next field. It returns false at the end and after an error.
func (m *Message) Next() bool {
	if m.Err != nil || len(m.Rest) == 0 {
		return false
	}
	m.Number, m.Type = protowire.DecodeTag(m.varint())
	switch m.Type {
	case protowire.VarintType:
		m.value = m.varint()
	case protowire.BytesType:
		m.text = m.take(m.varint())
	case protowire.Fixed32Type:
		if b := m.take(4); b != nil {
			m.value = uint64(binary.LittleEndian.Uint32(b))
		}
	default:
		m.take(uint64(protowire.ConsumeFieldValue(m.Number, m.Type, m.Rest)))
	}
	if m.Number < protowire.MinValidNumber {
		m.Fail(errMalformed)
	}
	return m.Err == nil
}

// NextOf advances to the next field with a number.
func (m *Message) NextOf(number protowire.Number) bool {
	for m.Next() {
		if m.Number == number {
			return true
		}
	}
	return false
}

func (m *Message) varint() uint64 {
	if len(m.Rest) > 0 && m.Rest[0] < 0x80 { // the usual size
		return uint64(m.take(1)[0])
	}
	value, n := protowire.ConsumeVarint(m.Rest)
	m.take(uint64(n))
	return value
}

// take removes n bytes from Rest. A negative number of protowire, an error, is too
// large.
func (m *Message) take(n uint64) []byte {
	if n > uint64(len(m.Rest)) {
		m.Fail(errMalformed)
		return nil
	}
	taken := m.Rest[:n]
	m.Rest = m.Rest[n:]
	return taken
}

// Bytes returns a field with a length: a string or an embedded message. It shares
// memory with the message.
func (m *Message) Bytes() []byte {
	if m.Type != protowire.BytesType {
		m.Fail(errMalformed)
		return nil
	}
	return m.text
}

// Embedded returns a field that is a message. NextIn iterates over its fields.
func (m *Message) Embedded() Message { return Message{Rest: m.Bytes()} }

// NextIn advances an embedded message of m to its next field. An error in it ends the
// iteration of m, too.
func (m *Message) NextIn(embedded *Message) bool {
	if embedded.Next() {
		return true
	}
	m.Fail(embedded.Err)
	return false
}

// String returns a copy of the field's text.
func (m *Message) String() string { return string(m.Bytes()) }

// StringOf returns the field's text, without an allocation if it is one of the known ones.
func (m *Message) StringOf(known ...string) string {
	text := m.Bytes()
	for _, word := range known {
		if string(text) == word {
			return word
		}
	}
	return string(text)
}

// Varint returns a numeric field.
func (m *Message) Varint() uint64 {
	if m.Type != protowire.VarintType {
		m.Fail(errMalformed)
		return 0
	}
	return m.value
}

// Value returns a field of any type: the value of a varint or of four bytes, or the bytes of a
// field with a length.
func (m *Message) Value() (number uint64, text []byte) {
	switch m.Type {
	case protowire.VarintType, protowire.Fixed32Type:
		return m.value, nil
	case protowire.BytesType:
		return 0, m.text
	}
	return 0, nil
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
	for entry := m.Embedded(); m.NextIn(&entry); {
		switch entry.Number {
		case 1:
			key = entry.Bytes()
		case 2:
			value = entry.Bytes()
		}
	}
	return key, value
}
