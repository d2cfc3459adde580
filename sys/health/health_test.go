package health

import (
	"testing"
	"testing/synctest"
	"time"
)

// A condition that is reported again keeps its beginning; the worst is the first, and of those that
// are equally bad the oldest.
func TestBoardSortsAndKeepsBeginnings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b Board
		b.Set("zone", "a", Condition{Severity: Warning, Text: "first"})
		time.Sleep(time.Minute)
		b.Set("zone", "b", Condition{Severity: Note, Text: "a note"})
		b.Set("source", "a", Condition{Severity: Warning, Text: "second"})
		b.Set("source", "b", Condition{Severity: Critical, Text: "the worst"})
		time.Sleep(time.Minute)
		b.Set("zone", "a", Condition{Severity: Warning, Text: "first, again"})

		var got []string
		for _, c := range b.Conditions() {
			got = append(got, c.Text)
		}
		if len(got) != 4 || got[0] != "the worst" || got[1] != "first, again" || got[2] != "second" || got[3] != "a note" {
			t.Errorf("got %q", got)
		}
		if since := time.Since(b.Of("zone")[0].Since); since != 2*time.Minute {
			t.Errorf("got a condition of %v, want 2m", since)
		}
		if s := Summary(b.Conditions()); s != "The worst." || !Real(b.Conditions()) {
			t.Errorf("got the summary %q", s)
		}

		b.Forget("source")
		b.Clear("zone", "a")
		if all := b.Conditions(); len(all) != 1 || Real(all) || Summary(all) != "Healthy, but a note." {
			t.Errorf("got %+v, want the note alone", all)
		}
		b.Clear("zone", "b")
		if s := Summary(b.Conditions()); s != "Healthy." {
			t.Errorf("got the summary %q, want Healthy.", s)
		}
	})
}

// A server without a board reports nothing.
func TestNilBoardHasNoConditions(t *testing.T) {
	var b *Board
	b.Set(1, 2, Condition{})
	b.Clear(1, 2)
	b.Forget(1)
	if b.Conditions() != nil || b.Of(1) != nil {
		t.Error("got conditions, want none")
	}
}
