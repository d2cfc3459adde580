package tcx

import (
	"net/netip"
	"testing"
)

// A query that is answered after Close is not stored in memory that is gone.
func TestRepeatClosed(t *testing.T) {
	b := newRepeatBench(t)
	file, err := fileOf(b.program.replies, "replies")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	before := b.replies
	if b.replies, err = OpenReplies(file, []netip.Addr{alias4}, 53); err != nil {
		t.Fatal(err)
	}
	b.install()
	b.replies.Close()
	b.serve(query, pod4, alias4)
	b.replies = before
}
