package protobuf

import (
	"fmt"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// fields returns the fields of a message as text, with the error in the end.
func fields(m Message) (text string) {
	for m.Next() {
		switch m.Number {
		case 1:
			text += fmt.Sprintf("1=%s ", m.String())
		case 2:
			text += fmt.Sprintf("2=%d ", m.Varint())
		case 3:
			text += fmt.Sprintf("3=%v ", m.Bool())
		case 4:
			key, value := m.Pair()
			text += fmt.Sprintf("4=%s:%s ", key, value)
		}
	}
	return text + fmt.Sprint(m.Err)
}

func TestMessage(t *testing.T) {
	for _, c := range []struct{ name, raw, want string }{
		{"empty", "", "<nil>"},
		{"text, numbers and a switch", "\x0a\x02ab\x10\xac\x02\x18\x01", "1=ab 2=300 3=true <nil>"},
		{"number of 64 bits", "\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "2=18446744073709551615 <nil>"},
		{"map entry", "\x22\x06\x0a\x01k\x12\x01v", "4=k:v <nil>"},
		{"map entry without value", "\x22\x03\x0a\x01k", "4=k: <nil>"},
		{"unknown fields of every type", "\x28\x07\x32\x01x\x3d1234\x4112345678\x4b\x08\x01\x4c\x10\x05", "2=5 <nil>"},
		{"nested groups", "\x4b\x53\x0a\x01x\x54\x4c\x10\x05", "2=5 <nil>"},

		{"text that is too long", "\x0a\x03ab", "malformed protobuf"},
		{"number without end", "\x10\xff", "malformed protobuf"},
		{"number of more than 64 bits", "\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", "malformed protobuf"},
		{"field number 0", "\x02\x01a", "malformed protobuf"},
		{"field number of more than 32 bits", "\x8a\x80\x80\x80\x80\x01\x01a", "malformed protobuf"},
		{"unknown wire type", "\x0f", "malformed protobuf"},
		{"short fixed field", "\x3d123", "malformed protobuf"},
		{"group without end", "\x4b\x08\x01", "malformed protobuf"},
		{"end without group", "\x4c", "malformed protobuf"},
		{"number in place of text", "\x08\x01", "1= malformed protobuf"},
		{"text in place of a number", "\x12\x01a", "2=0 malformed protobuf"},
		{"malformed map entry", "\x22\x02\x0a\x05", "4=: malformed protobuf"},
	} {
		if got := fields(Message{Rest: []byte(c.raw)}); got != c.want {
			t.Errorf("%s, %q: got %s, want %s", c.name, c.raw, got, c.want)
		}
	}
}

// FuzzMessage compares the fields of any bytes, up to the first malformed one, with those that protowire
// finds.
func FuzzMessage(f *testing.F) {
	f.Add([]byte("\x0a\x02ab\x10\xac\x02\x18\x01"))
	f.Add([]byte("\x28\x07\x32\x01x\x3d1234\x4112345678\x4b\x08\x01\x4c\x10\x05"))
	f.Add([]byte("\x8a\x80\x80\x80\x80\x01\x01a"))
	f.Add([]byte("\x4b\x53\x0a\x01x\x54\x4c\x10\xff"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		m, rest := Message{Rest: raw}, raw
		for {
			number, typ, n := protowire.ConsumeField(rest)
			if ok := m.Next(); ok != (n > 0) {
				t.Fatalf("%x: field at %d: got %v (%v), want one of %d bytes", raw, len(raw)-len(rest), ok, m.Err, n)
			}
			if n <= 0 {
				break
			}
			rest = rest[n:]
			if m.Number != number || m.Type != typ || len(m.Rest) != len(rest) {
				t.Fatalf("%x: got field %d of type %d with %d bytes after it, want %d, %d, %d",
					raw, m.Number, m.Type, len(m.Rest), number, typ, len(rest))
			}
		}
		if (m.Err != nil) != (len(rest) > 0) {
			t.Errorf("%x: got error %v with %d bytes left", raw, m.Err, len(rest))
		}
	})
}

func TestMessageAllocations(t *testing.T) {
	raw := []byte("\x0a\x02ab\x10\xac\x02\x22\x06\x0a\x01k\x12\x01v")
	if allocs := testing.AllocsPerRun(100, func() {
		for m := (Message{Rest: raw}); m.Next(); {
			if m.Number == 4 {
				m.Pair()
			}
		}
	}); allocs > 0 {
		t.Errorf("reading %q: got %v allocations, want none", raw, allocs)
	}
}
