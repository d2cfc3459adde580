package config

import (
	"context"
	"errors"
	"slices"
	"testing"
)

// A thing says in log when it is stopped.
type thing struct {
	name string
	log  *[]string
}

func (t *thing) Stop() { *t.log = append(*t.log, t.name) }

func keep(t *testing.T, s *Start, key any, name string, log *[]string) *thing {
	t.Helper()
	got, err := Keep(s, key, func() (*thing, error) { return &thing{name, log}, nil })
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestKeepAcrossReload(t *testing.T) {
	var log []string
	first := NewStart(context.Background(), nil)
	if first.Reload {
		t.Error("the first start is a reload")
	}
	a := keep(t, first, "a", "a1", &log)
	keep(t, first, "b", "b1", &log)
	if keep(t, first, "a", "again", &log) != a {
		t.Error("the same key twice in one plan gives two things")
	}
	first.Commit()
	if log != nil {
		t.Errorf("stopped %v at the first commit", log)
	}

	second := NewStart(context.Background(), first)
	if !second.Reload || keep(t, second, "a", "a2", &log) != a {
		t.Error("what the old plan keeps is not taken over")
	}
	keep(t, second, "c", "c2", &log)
	if log != nil {
		t.Errorf("stopped %v before the commit", log)
	}
	second.Commit()
	if !slices.Equal(log, []string{"b1"}) {
		t.Errorf("stopped %v, want b1: only the old plan had it", log)
	}
	log = nil
	second.Stop()
	slices.Sort(log)
	if !slices.Equal(log, []string{"a1", "c2"}) {
		t.Errorf("stopped %v at the end, want a1 and c2", log)
	}
}

func TestAbort(t *testing.T) {
	var log []string
	first := NewStart(context.Background(), nil)
	keep(t, first, "a", "a1", &log)
	first.Commit()

	second := NewStart(context.Background(), first)
	keep(t, second, "a", "a2", &log)
	keep(t, second, "b", "b2", &log)
	keep(t, second, "c", "c2", &log)
	if _, err := Keep(second, "d", func() (*thing, error) { return nil, errors.New("no") }); err == nil {
		t.Error("an error of make is lost")
	}
	second.Abort()
	if !slices.Equal(log, []string{"c2", "b2"}) {
		t.Errorf("stopped %v, want c2 and b2: what was made, last first, and nothing of the old plan", log)
	}

	third := NewStart(context.Background(), first)
	if got := keep(t, third, "a", "a3", &log); got.name != "a1" {
		t.Errorf("got %s: the old plan has lost what it keeps", got.name)
	}
}

// A key that another type has is not confused with it.
func TestKeepOfAnotherType(t *testing.T) {
	var log []string
	s := NewStart(context.Background(), nil)
	keep(t, s, "a", "a1", &log)
	type other struct{ *thing }
	got, err := Keep(s, "b", func() (other, error) { return other{&thing{"b1", &log}}, nil })
	if err != nil || got.name != "b1" {
		t.Error(got, err)
	}
}

func TestShutdownWaitsForAll(t *testing.T) {
	var a, b Block
	meet := make(chan struct{})
	a.OnShutdown(func(context.Context) { meet <- struct{}{} })
	b.OnShutdown(func(context.Context) { <-meet }) // they run at once, or never end
	Shutdown(context.Background(), &a, &b)
}
