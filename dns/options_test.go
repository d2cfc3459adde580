package dns

import "testing"

func TestDropReplyOption(t *testing.T) {
	q := NewQuery(nil)
	q.AddReplyOption(3, []byte("a"))
	q.AddReplyOption(15, nil)
	q.AddReplyOption(3, []byte("bc"))
	q.RemoveReplyOption(7)
	if got := string(q.ReplyOptions()); got != "\x00\x03\x00\x01a\x00\x0f\x00\x00\x00\x03\x00\x02bc" {
		t.Errorf("got %q, want all of them", got)
	}
	q.RemoveReplyOption(3)
	if got := string(q.ReplyOptions()); got != "\x00\x0f\x00\x00" {
		t.Errorf("got %q, want option 15 alone", got)
	}
}
