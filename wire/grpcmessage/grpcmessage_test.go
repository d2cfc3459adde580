package grpcmessage

import (
	"bytes"
	"strings"
	"testing"

	"github.com/seamark/seamark/wire"
)

func TestParse(t *testing.T) {
	for _, c := range []struct{ name, body, message, err string }{
		{"a message", "\x00\x00\x00\x00\x05\x0a\x03abc", "abc", ""},
		{"no fields", "\x00\x00\x00\x00\x00", "", ""},
		{"unknown fields", "\x00\x00\x00\x00\x0b\x12\x01x\x0a\x03abc\x18\x81\x01", "abc", ""},
		{"msg twice", "\x00\x00\x00\x00\x06\x0a\x01a\x0a\x01b", "b", ""},
		{"msg of another type", "\x00\x00\x00\x00\x02\x08\x01", "", ""},
		{"empty body", "", "", "not one gRPC message"},
		{"short header", "\x00\x00\x00\x00", "", "not one gRPC message"},
		{"short message", "\x00\x00\x00\x00\x06\x0a\x03abc", "", "not one gRPC message"},
		{"two messages", "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00", "", "not one gRPC message"},
		{"invalid flag", "\x02\x00\x00\x00\x00", "", "not one gRPC message"},
		{"compressed", "\x01\x00\x00\x00\x00", "", "compressed"},
		{"huge length", "\x00\xff\xff\xff\xff\x0a", "", "not one gRPC message"},
		{"length beyond the end", "\x00\x00\x00\x00\x05\x0a\x04abc", "", "not a DnsPacket"},
		{"invalid tag", "\x00\x00\x00\x00\x01\x80", "", "not a DnsPacket"},
	} {
		message, err := Parse([]byte(c.body))
		if string(message) != c.message || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: Parse(%q) = %q, %v; want %q, %q", c.name, c.body, message, err, c.message, c.err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x00\x05\x0a\x03abc"))
	f.Add([]byte("\x00\x00\x00\x00\x0b\x12\x01x\x0a\x03abc\x18\x81\x01"))
	f.Fuzz(func(t *testing.T, data []byte) {
		_, _ = Parse(data)
		if message, err := Parse(Append(nil, data)); err != nil || !bytes.Equal(message, data) {
			t.Fatalf("Parse(Append(%q)) = %q, %v", data, message, err)
		}
	})
}

func TestAppendLargestMessage(t *testing.T) {
	if n := len(Append(nil, make([]byte, wire.MaxMessage))); n != MaxSize {
		t.Errorf("got a body of %d bytes, want %d", n, MaxSize)
	}
}
