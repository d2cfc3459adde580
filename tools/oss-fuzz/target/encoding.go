package target

import (
	"bytes"
	"encoding/binary"
	"reflect"
)

// An input is the concatenation of the target's arguments: numbers and booleans in the order of
// little-endian bytes; strings and byte slices with their length in two bytes before them, except
// for the last argument, which takes the rest. What is missing is zero or empty. So any bytes are an
// input, and a target with one string has it unchanged.

// decode returns the arguments of the types.
func decode(data []byte, types []reflect.Type) []any {
	take := func(n int) []byte {
		b := make([]byte, n)
		data = data[copy(b, data):]
		return b
	}

	values := make([]any, 0, len(types))
	for i, typ := range types {
		v := reflect.New(typ).Elem()
		switch kind := typ.Kind(); {
		case kind == reflect.String || kind == reflect.Slice:
			n := len(data)
			if i < len(types)-1 {
				n = min(int(binary.LittleEndian.Uint16(take(2))), len(data))
			}
			v.Set(reflect.ValueOf(take(n)).Convert(typ))
		case kind == reflect.Bool:
			v.SetBool(take(1)[0]&1 == 1)
		case v.CanInt() && kind == reflect.Int:
			v.SetInt(int64(binary.LittleEndian.Uint64(take(8))))
		case kind == reflect.Uint:
			v.SetUint(binary.LittleEndian.Uint64(take(8)))
		default:
			_, _ = binary.Decode(take(int(typ.Size())), binary.LittleEndian, v.Addr().Interface())
		}
		values = append(values, v.Interface())
	}
	return values
}

// encode is the reverse of decode. It cuts strings that are not the last argument after 65535 bytes.
func encode(values []any) []byte {
	var buf bytes.Buffer
	write := func(v any) { _ = binary.Write(&buf, binary.LittleEndian, v) }
	for i, value := range values {
		v := reflect.ValueOf(value)
		switch kind := v.Kind(); {
		case kind == reflect.String || kind == reflect.Slice:
			b := v.Convert(reflect.TypeFor[[]byte]()).Bytes()
			if i < len(values)-1 {
				b = b[:min(len(b), 0xffff)]
				write(uint16(len(b)))
			}
			write(b)
		case kind == reflect.Int:
			write(v.Int())
		case kind == reflect.Uint:
			write(v.Uint())
		default:
			write(value)
		}
	}
	return buf.Bytes()
}
