package clock

import (
	"context"
	"iter"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A wait that ends with the context says so.
func TestSleepContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		start := time.Now()
		if ok := Sleep(ctx, 2*time.Second); !ok || time.Since(start) != 2*time.Second {
			t.Errorf("Sleep of 2s: got %v after %v, want true after 2s", ok, time.Since(start))
		}
		if ok := Sleep(ctx, 2*time.Second); ok || time.Since(start) != 3*time.Second {
			t.Errorf("Sleep while ctx ends after 1s: got %v after %v in all, want false after 3s", ok, time.Since(start))
		}
	})
}

// A tick that comes while the body runs is delivered after it, once, and does not move the others.
func TestTicksSlowBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			name  string
			ticks func(context.Context, time.Duration) iter.Seq[time.Time]
			want  []int // seconds
		}{{"Ticks", Ticks, []int{2, 7, 8, 10, 12}}, {"Every", Every, []int{0, 5, 6, 8, 10, 12}}} {
			ctx, cancel := context.WithTimeout(t.Context(), 13*time.Second)
			start := time.Now()
			var got []int
			for range c.ticks(ctx, 2*time.Second) {
				if got = append(got, int(time.Since(start)/time.Second)); len(got) == 1 {
					time.Sleep(5 * time.Second)
				}
			}
			if cancel(); !slices.Equal(got, c.want) {
				t.Errorf("%s: got ticks after seconds %v, want %v", c.name, got, c.want)
			}
		}
	})
}

// Loops that began at different times continue together, at multiples of the interval; a slow body misses times.
func TestTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const interval = 4 * time.Second
		var all [3][]time.Duration // seconds since the first multiple
		time.Sleep(UntilNext(interval))
		first := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 6*interval-time.Second)
		defer cancel()

		var running sync.WaitGroup
		for i := range all {
			running.Go(func() {
				time.Sleep(time.Duration(i) * time.Second)
				for now := range Together(ctx, interval) {
					if all[i] = append(all[i], now.Sub(first)/time.Second); i == 2 && len(all[i]) == 2 {
						time.Sleep(5 * time.Second)
					}
				}
			})
		}
		running.Wait()
		for i, want := range [][]time.Duration{{0, 4, 8, 12, 16, 20}, {1, 4, 8, 12, 16, 20}, {2, 4, 12, 16, 20}} {
			if !slices.Equal(all[i], want) {
				t.Errorf("loop %d: got the seconds %d, want %d", i, all[i], want)
			}
		}
	})
}
