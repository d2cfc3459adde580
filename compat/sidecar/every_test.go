package sidecar

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// The first call comes after the delay, the others one interval apart whatever their
// duration. No call outlives its interval, and canceling ends a running call.
func TestEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const first, interval = 3 * time.Second, 5 * time.Second
		ctx, cancel := context.WithCancel(t.Context())
		start := time.Now()
		var starts []time.Duration
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			every(ctx, first, interval, func(callCtx context.Context) {
				starts = append(starts, time.Since(start))
				at := time.Now()
				switch len(starts) {
				case 1:
					time.Sleep(time.Second)
				default: // as long as possible
					<-callCtx.Done()
					if took := time.Since(at); took > interval {
						t.Errorf("call %d: context ends after %v, want at most %v", len(starts), took, interval)
					}
				}
			})
		}()
		time.Sleep(14 * time.Second)
		cancel()
		<-ended
		if took := time.Since(start); took != 14*time.Second {
			t.Errorf("every returned after %v, want 14s", took)
		}
		want := []time.Duration{3 * time.Second, 8 * time.Second, 13 * time.Second}
		if len(starts) != len(want) {
			t.Fatalf("calls at %v, want %v", starts, want)
		}
		for i := range want {
			if starts[i] != want[i] {
				t.Errorf("calls at %v, want %v", starts, want)
			}
		}
	})
}

func TestEveryCanceledInDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			every(ctx, time.Hour, time.Hour, func(context.Context) { t.Error("every called the function, want no call") })
		}()
		synctest.Wait()
		cancel()
		synctest.Wait()
		select {
		case <-ended:
		default:
			t.Error("every did not return")
		}
	})
}

func TestRandomDelay(t *testing.T) {
	var early, late bool
	for range 1000 {
		d := randomDelay(time.Minute)
		if d < 0 || d >= time.Minute {
			t.Fatalf("randomDelay(1m): got %v, want 0s..1m", d)
		}
		early = early || d < 10*time.Second
		late = late || d > 50*time.Second
	}
	if !early || !late {
		t.Error("randomDelay(1m): 1000 delays do not cover the interval")
	}
}
