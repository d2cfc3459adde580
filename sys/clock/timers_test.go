package clock

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
)

// Timers that are set, set again and stopped in random order expire exactly at their
// times.
func TestTimersRandom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 500
		random := rand.New(rand.NewPCG(1, 2))
		var ts Timers
		var timers [n]Timer
		var want, got [n]time.Duration
		for i := range timers {
			timers[i].Expired = func() { got[i] = Now() }
		}
		for range 4 * n {
			i := random.IntN(n)
			if random.IntN(3) == 0 {
				ts.Stop(&timers[i])
				want[i] = 0
			} else {
				want[i] = Now() + time.Duration(1+random.IntN(1000))*time.Millisecond + time.Hour
				ts.Set(&timers[i], want[i])
			}
			if random.IntN(20) == 0 {
				time.Sleep(time.Millisecond)
			}
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if got != want {
			t.Errorf("got times %v, want %v", got, want)
		}
		if len(ts.heap) != 0 || ts.armed != 0 {
			t.Errorf("after all have expired: %d timers, armed for %v; want none", len(ts.heap), ts.armed)
		}
	})
}

// A function may set its own Timer again.
func TestTimersSetByExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ts Timers
		var timer Timer
		n := 0
		timer.Expired = func() {
			if n++; n < 5 {
				ts.Set(&timer, Now()+time.Second)
			}
		}
		ts.Set(&timer, Now()+time.Second)
		time.Sleep(4500 * time.Millisecond)
		synctest.Wait()
		if n != 4 {
			t.Errorf("after 4.5 s: expired %d times, want 4", n)
		}
		ts.ExpireAll()
		if n != 5 {
			t.Errorf("after ExpireAll: expired %d times, want 5", n)
		}
	})
}
