package target

import (
	"reflect"
	"testing"
)

func TestEncodingIsReversible(t *testing.T) {
	for _, values := range [][]any{
		{"text"}, {[]byte{1, 2}}, {""},
		{"a", "", "bc"}, {uint16(513), []byte("x")}, {true, "x"}, {"x", true, false},
		{int(-1), uint(7), int8(-3), uint32(9), int64(-5), float64(1.5), 'r', byte(200)},
	} {
		var types []reflect.Type
		for _, v := range values {
			types = append(types, reflect.TypeOf(v))
		}
		if got := decode(encode(values), types); !reflect.DeepEqual(got, values) {
			t.Errorf("%#v: got %#v", values, got)
		}
	}
}

// Any bytes are an input: what is missing is zero or empty.
func TestDecodeShortInput(t *testing.T) {
	types := []reflect.Type{reflect.TypeFor[uint16](), reflect.TypeFor[string](), reflect.TypeFor[[]byte]()}
	for data, want := range map[string][]any{
		"":                     {uint16(0), "", []byte{}},
		"\x01":                 {uint16(1), "", []byte{}},
		"\x01\x02\xff\xffabc":  {uint16(513), "abc", []byte{}},
		"\x01\x02\x01\x00abcd": {uint16(513), "a", []byte("bcd")},
	} {
		if got := decode([]byte(data), types); !reflect.DeepEqual(got, want) {
			t.Errorf("%q: got %#v, want %#v", data, got, want)
		}
	}
}
