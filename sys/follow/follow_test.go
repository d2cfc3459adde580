package follow

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestTaskStop(t *testing.T) {
	ended := false
	task := Go(func(ctx context.Context) {
		<-ctx.Done()
		ended = true
	})
	if task.Stop(); !ended {
		t.Error("Stop returned before the task had ended")
	}
}

func TestSignalManyChanges(t *testing.T) {
	s := NewSignal()
	s.Send()
	s.Send()
	<-s
	select {
	case <-s:
		t.Error("two changes without a receive between them: got two values, want one")
	default:
	}
	s.Send()
	<-s
}

func TestValueFirst(t *testing.T) {
	for _, c := range []struct {
		set  time.Duration // time of Set
		want []string      // results of two calls of First with a limit of 2 s
		took time.Duration
		late int
	}{
		{0, []string{"set", "set"}, 0, 0},
		{time.Second, []string{"set", "set"}, time.Second, 0},
		{time.Hour, []string{"initial", "initial"}, 2 * time.Second, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			v := NewValue("initial")
			task := Go(func(ctx context.Context) {
				select {
				case <-time.After(c.set):
					v.Set("set")
				case <-ctx.Done():
				}
			})
			defer task.Stop()

			start, late := time.Now(), 0
			for _, want := range c.want {
				if got := v.First(2*time.Second, func() { late++ }); got != want {
					t.Errorf("set after %v: got %q, want %q", c.set, got, want)
				}
			}
			if took := time.Since(start); took != c.took || late != c.late {
				t.Errorf("set after %v: waited %v and %d times in vain, want %v and %d", c.set, took, late, c.took, c.late)
			}
		})
	}
}

func TestEventHappened(t *testing.T) {
	e := NewEvent()
	if e.Happened() {
		t.Error("before the event: got that it has happened")
	}
	close(e)
	if !e.Happened() {
		t.Error("after the event: got that it has not happened")
	}
}
