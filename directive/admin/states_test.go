package admin

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Clients that ask for the state at once, again and again, share what is made: one at a time, at
// most ten in a second and for half of the time. None gets one that was begun before it asked.
func TestStatesShared(t *testing.T) {
	for _, takes := range []time.Duration{0, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			s := newStates()
			begin, made, now := time.Now(), 0, 0
			newState := func() Status {
				if now++; now > 1 {
					t.Errorf("got %d states at the same time, want 1", now)
				}
				made++
				started := time.Now()
				time.Sleep(takes)
				now--
				return Status{Started: started}
			}
			const clients, rounds = 32, 20
			var running sync.WaitGroup
			for range clients {
				running.Go(func() {
					for range rounds {
						asked := time.Now()
						if st := s.get(newState); st.Started.Before(asked) {
							t.Errorf("got a state of %v before it was asked for", asked.Sub(st.Started))
						}
					}
				})
			}
			running.Wait()
			most := int(time.Since(begin)/max(statePause, 2*takes)) + 1
			if made > most || made > 2*rounds+1 {
				t.Errorf("got %d states in %v for %d clients with %d requests each, want at most %d and %d",
					made, time.Since(begin), clients, rounds, most, 2*rounds+1)
			}
		})
	}
}
