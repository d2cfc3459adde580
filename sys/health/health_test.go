package health

import (
	"math/rand/v2"
	"slices"
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

// The first condition is the one that costs most answers at present, not the oldest: critical ones before
// others, those of more lost queries before those of fewer, and of the same share the one about an object.
func TestWorstConditionIsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := func(ago time.Duration) time.Time { return time.Now().Add(-ago) }
		want := []Condition{
			{Severity: Critical, Lost: 1, Since: at(0), Object: "kubernetes"},
			{Severity: Critical, Lost: 0.401, Since: at(0), Object: "192.0.2.1:53"},
			{Severity: Critical, Lost: 0.404, Since: at(time.Minute)},
			{Severity: Critical, Lost: 0.05, Since: at(time.Hour), Object: "192.0.2.2:53"},
			{Severity: Critical, Since: at(9 * time.Hour), Object: "certificate"},
			{Severity: Critical, Since: at(time.Hour), Object: "zone"},
			{Severity: Warning, Lost: 0.02, Since: at(0)},
			{Severity: Warning, Since: at(99 * time.Hour)},
			{Severity: Note, Since: at(999 * time.Hour), Object: "version"},
		}
		for range 20 {
			got := slices.Clone(want)
			rand.Shuffle(len(got), func(i, j int) { got[i], got[j] = got[j], got[i] })
			Sort(got)
			if !slices.Equal(got, want) {
				t.Fatalf("got\n%+v\nwant\n%+v", got, want)
			}
		}
	})
}

// The failures of several owners are one list, with the last one of an object that two owners have, until
// their owners are forgotten.
func TestFailuresAreListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b Board
		start := time.Now()
		b.SetFailures("first", func() []Failure {
			return []Failure{{"b:53", "refused", start}, {"a:53", "old", start}}
		})
		time.Sleep(10 * time.Second)
		b.SetFailures("second", func() []Failure { return []Failure{{"a:53", "timeout", start.Add(9 * time.Second)}} })

		all := b.Failures()
		if len(all) != 2 || all[0].Error != "timeout" || all[1].Error != "refused" {
			t.Errorf("got %+v, want timeout of a:53 and refused of b:53", all)
		}
		if got := all[0].Ago(time.Now()); got != "timeout" {
			t.Errorf("got %q, want no age of a second", got)
		}
		if got := FailureOf(all, "b:53").Ago(time.Now()); got != "refused, 10s ago" {
			t.Errorf("got %q, want an age of 10s", got)
		}
		if FailureOf(all, "c:53") != nil {
			t.Error("got a failure of c:53, want none")
		}

		b.Forget("second")
		b.Forget("first")
		if all := b.Failures(); len(all) != 0 {
			t.Errorf("got %+v of owners that have ended, want none", all)
		}
	})
}

// The next step of a condition without one is the page of its alert.
func TestRemedyIsURL(t *testing.T) {
	c := Condition{Alert: "SeamarkDataOld"}
	if got := c.Remedy(); got != "read https://github.com/seamark/seamark/blob/main/docs/how-to/alerts.md#seamarkdataold" {
		t.Errorf("got %q", got)
	}
	c.Next = "seamark doctor"
	if got := c.Remedy(); got != c.Next {
		t.Errorf("got %q, want its own", got)
	}
}

// A server without a board reports nothing.
func TestNilBoardHasNoConditions(t *testing.T) {
	var b *Board
	b.Set(1, 2, Condition{})
	b.Clear(1, 2)
	b.Forget(1)
	b.SetFailures(1, nil)
	if b.Conditions() != nil || b.Of(1) != nil || b.Failures() != nil {
		t.Error("got conditions, want none")
	}
}

// A sentence that ends with a name has one dot at its end.
func TestSummaryOfName(t *testing.T) {
	for severity, want := range map[Severity]string{Critical: "Most are for a.test.", Note: "Healthy, but most are for a.test."} {
		if s := Summary([]Condition{{Severity: severity, Text: "most are for a.test."}}); s != want {
			t.Errorf("%s: got %q, want %q", severity, s, want)
		}
	}
}
