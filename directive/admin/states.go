package admin

import "time"

// statePause is the least time between the beginnings of two states. They take at most half of a
// processor, so that clients that ask without a break do not delay queries.
const statePause = 100 * time.Millisecond

// states makes one state at a time, for all clients that wait for it.
type states struct {
	one chan struct{} // holds an element while its owner uses the fields below

	last  Status
	begun time.Time // of last
	after time.Time // of the next state
}

func newStates() states { return states{one: make(chan struct{}, 1)} }

// get returns a state that was begun after the call.
func (s *states) get(newState func() Status) Status {
	asked := time.Now()
	s.one <- struct{}{}
	defer func() { <-s.one }()
	if s.begun.After(asked) {
		return s.last
	}

	time.Sleep(time.Until(s.after))
	s.begun = time.Now()
	s.last = newState()
	s.after = s.begun.Add(max(statePause, 2*time.Since(s.begun)))
	return s.last
}
