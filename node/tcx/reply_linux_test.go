package tcx

import "testing"

// The name of a query is in lower case, and empty if the query has none that is whole.
func TestReplyName(t *testing.T) {
	whole := "\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x03WwW\x07eXample\x00\x00\x01\x00\x01"
	for _, c := range []struct{ query, want string }{
		{whole, "\x03www\x07example\x00"},
		{whole[:10] + "\x00\x00\x01\x00\x01", "\x00"},
		{whole[:10] + "\x3f", ""},
		{whole[:10] + "\x3f" + string(make([]byte, 63)) + "\x3f", ""},
	} {
		var r reply
		r.querySize = uint16(copy(r.query[:], c.query))
		if got := string(r.appendName(nil)); got != c.want {
			t.Errorf("%q: got %q, want %q", c.query, got, c.want)
		}
	}
}
