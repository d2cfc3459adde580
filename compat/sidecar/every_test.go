package sidecar

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// The first turn comes after the delay, the others one interval apart, however long
// each takes; none outlives its interval, and the end does not wait for a turn.
func TestEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const first, interval = 3 * time.Second, 5 * time.Second
		ctx, cancel := context.WithCancel(t.Context())
		start := time.Now()
		var begun []time.Duration
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			every(ctx, first, interval, func(turn context.Context) {
				begun = append(begun, time.Since(start))
				at := time.Now()
				switch len(begun) {
				case 1:
					time.Sleep(time.Second)
				default: // as long as it may
					<-turn.Done()
					if took := time.Since(at); took > interval {
						t.Errorf("turn %d may take %v", len(begun), took)
					}
				}
			})
		}()
		time.Sleep(14 * time.Second)
		cancel()
		<-ended
		if took := time.Since(start); took != 14*time.Second {
			t.Errorf("it ended after %v", took)
		}
		want := []time.Duration{3 * time.Second, 8 * time.Second, 13 * time.Second}
		if len(begun) != len(want) {
			t.Fatalf("turns at %v, want %v", begun, want)
		}
		for i := range want {
			if begun[i] != want[i] {
				t.Errorf("turns at %v, want %v", begun, want)
			}
		}
	})
}

func TestEveryEndsInTheDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			every(ctx, time.Hour, time.Hour, func(context.Context) { t.Error("a turn") })
		}()
		synctest.Wait()
		cancel()
		synctest.Wait()
		select {
		case <-ended:
		default:
			t.Error("it did not end")
		}
	})
}

// First delays are of the whole interval, and never longer.
func TestSpread(t *testing.T) {
	var early, late bool
	for range 1000 {
		d := spread(time.Minute)
		if d < 0 || d >= time.Minute {
			t.Fatal(d)
		}
		early = early || d < 10*time.Second
		late = late || d > 50*time.Second
	}
	if !early || !late {
		t.Error("not spread over the interval")
	}
}
