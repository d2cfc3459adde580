package config

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"
)

// A resource appends its name to log when it is stopped.
type resource struct {
	name string
	log  *[]string
}

func (r *resource) Stop() { *r.log = append(*r.log, r.name) }

func keep(t *testing.T, s *Start, key any, name string, log *[]string) *resource {
	t.Helper()
	got, err := Keep(s, key, func() (*resource, error) { return &resource{name, log}, nil })
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestKeepAcrossReload(t *testing.T) {
	var log []string
	first := NewStart(context.Background(), nil)
	if first.Reload {
		t.Error("first start: Reload = true, want false")
	}
	a := keep(t, first, "a", "a1", &log)
	keep(t, first, "b", "b1", &log)
	keep(t, first, "d", "d1", &log)
	if keep(t, first, "a", "a1 again", &log) != a {
		t.Error("Keep of the same key: got another resource, want the same")
	}
	first.Commit()
	if log != nil {
		t.Errorf("first Commit: stopped %v, want none", log)
	}

	second := NewStart(context.Background(), first)
	if !second.Reload || keep(t, second, "a", "a2", &log) != a {
		t.Error("second start: got a new resource or no reload, want the resource of the old plan")
	}
	keep(t, second, "c", "c2", &log)
	if log != nil {
		t.Errorf("before the second Commit: stopped %v, want none", log)
	}
	second.Commit()
	if !slices.Equal(log, []string{"d1", "b1"}) {
		t.Errorf("second Commit: stopped %v, want d1 and b1, which only the old plan used, the last one first", log)
	}
	log = nil
	second.Stop()
	if !slices.Equal(log, []string{"c2", "a1"}) {
		t.Errorf("Stop: stopped %v, want c2 and a1, the last one first", log)
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
	if _, err := Keep(second, "d", func() (*resource, error) { return nil, errors.New("no") }); err == nil {
		t.Error("Keep: got no error, want that of create")
	}
	second.Abort()
	if !slices.Equal(log, []string{"c2", "b2"}) {
		t.Errorf("Abort: stopped %v, want c2 and b2, the resources that it created in reverse order", log)
	}

	third := NewStart(context.Background(), first)
	if got := keep(t, third, "a", "a3", &log); got.name != "a1" {
		t.Errorf("after Abort: got %s, want a1 of the old plan", got.name)
	}
}

// Keep returns a new resource if the key is used for another type.
func TestKeepOtherType(t *testing.T) {
	var log []string
	s := NewStart(context.Background(), nil)
	keep(t, s, "a", "a1", &log)
	type other struct{ *resource }
	for range 2 {
		got, err := Keep(s, "a", func() (other, error) { return other{&resource{"other", &log}}, nil })
		if err != nil || got.name != "other" {
			t.Errorf("Keep: got %v, %v; want the resource of the other type", got, err)
		}
	}

	s.Stop()
	if !slices.Equal(log, []string{"other", "a1"}) {
		t.Errorf("Stop: stopped %v, want both resources, once each", log)
	}
}

func TestShutdownConcurrent(t *testing.T) {
	var a, b Block
	met := make(chan struct{})
	a.OnShutdown(func(context.Context) { met <- struct{}{} })
	b.OnShutdown(func(context.Context) { <-met }) // blocks unless both run concurrently
	Shutdown(context.Background(), &a, &b)
}

// Await waits during a reload only, and stops the resource after an error.
func TestAwait(t *testing.T) {
	open, closed := make(chan struct{}), make(chan struct{})
	close(closed)
	late := errors.New("late")
	stopped, cancel := context.WithCancel(context.Background())
	cancel()
	for _, c := range []struct {
		name    string
		ctx     context.Context
		reload  bool
		ready   chan struct{}
		timeout time.Duration
		late    error
		want    error
	}{
		{"first start", context.Background(), false, open, 0, late, nil},
		{"ready", context.Background(), true, closed, time.Hour, late, nil},
		{"late", context.Background(), true, open, 0, late, late},
		{"late, and no error", context.Background(), true, open, 0, nil, nil},
		{"cancelled", stopped, true, open, time.Hour, late, context.Canceled},
	} {
		var log []string
		s := &Start{Context: c.ctx, Reload: c.reload}
		err := s.Await(&resource{"a", &log}, c.ready, c.timeout, func() error { return c.late })
		if err != c.want || (len(log) == 1) != (c.want != nil) {
			t.Errorf("%s: got %v and stopped %v; want %v, and the resource stopped after an error", c.name, err, log, c.want)
		}
	}
}

// Find reads each value once for a type, however many directives ask, and those offered later too.
func TestFindReadsValuesOnce(t *testing.T) {
	b := new(Block)
	for i := range 100 {
		b.Offer(i)
		b.Offer(fmt.Sprint(i))
		if got := Find[int](b); len(got) != i+1 || got[i] != i {
			t.Fatalf("after %d numbers: got %v", i+1, got)
		}
	}
	first := Find[int](b)
	_ = append(first, 1000)
	if n := testing.AllocsPerRun(100, func() { Find[int](b) }); n > 0 {
		t.Errorf("again: got %v allocations, want none", n)
	}
	b.Offer(100)
	if got := Find[int](b); len(got) != 101 || got[100] != 100 || len(first) != 100 {
		t.Errorf("after another number: got %v", got)
	}
}
