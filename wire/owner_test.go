package wire

import "testing"

func TestAppendOwner(t *testing.T) {
	var a Answer
	a.Reset(nil, []byte("\x03WwW\x02co\x03oRg\x00\x00\x01\x00\x01"))
	for _, c := range []struct{ name, want string }{
		{"\x03www\x02co\x03org\x00", "\xC0\x0C"},
		{"\x02CO\x03ORG\x00", "\xC0\x10"},
		{"\x03org\x00", "\xC0\x13"},
		{"\x03net\x00", "\x03net\x00"},
		{"\x00", "\x00"},
		{"\x06wco\x03org\x00", "\x06wco\x03org\x00"}, // a suffix of the bytes, but not of the labels
		{"\x01a\x03www\x02co\x03org\x00", "\x01a\x03www\x02co\x03org\x00"},
	} {
		if got := a.AppendOwner([]byte("x"), []byte(c.name)); string(got) != "x"+c.want {
			t.Errorf("AppendOwner(%q) = %q, want %q", c.name, got, c.want)
		}
	}
	a.Reset(nil, nil)
	if got := a.AppendOwner(nil, []byte("\x03org\x00")); string(got) != "\x03org\x00" {
		t.Errorf("without a question: got %q, want the name written out", got)
	}
}

func TestLower(t *testing.T) {
	if got := Lower("\x03WwZ\x04\xC3\x89[@\x00"); got != "\x03wwz\x04\xC3\x89[@\x00" {
		t.Errorf("got %q, want only ASCII letters in lower case", got)
	}
}
