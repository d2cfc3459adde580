package clock

import (
	"context"
	"iter"
	"time"
)

// Sleep blocks for d, or until ctx ends. It reports whether d has passed.
func Sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Ticks yields the present time at each interval until ctx ends. Ticks that fall into one call
// of yield are one.
func Ticks(ctx context.Context, interval time.Duration) iter.Seq[time.Time] {
	return func(yield func(time.Time) bool) {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case now := <-ticker.C:
				if !yield(now) {
					return
				}
			}
		}
	}
}

// Every is like Ticks, with a first time at once.
func Every(ctx context.Context, interval time.Duration) iter.Seq[time.Time] {
	return func(yield func(time.Time) bool) {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for now := time.Now(); ctx.Err() == nil && yield(now); {
			select {
			case <-ctx.Done():
			case now = <-ticker.C:
			}
		}
	}
}

// UntilNext returns the time until the next multiple of an interval since the start of the process. Timers for
// such times expire together, and wake the process once.
func UntilNext(interval time.Duration) time.Duration {
	passed := Now() % interval
	if passed < 0 { // a test has a clock of its own
		passed += interval
	}
	return interval - passed
}

// Together is like Every, but the times after the first one are those of UntilNext.
func Together(ctx context.Context, interval time.Duration) iter.Seq[time.Time] {
	return func(yield func(time.Time) bool) {
		timer := time.NewTimer(interval)
		defer timer.Stop()
		for now := time.Now(); ctx.Err() == nil && yield(now); {
			timer.Reset(UntilNext(interval))
			select {
			case <-ctx.Done():
			case now = <-timer.C:
			}
		}
	}
}
