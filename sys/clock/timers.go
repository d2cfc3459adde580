package clock

import (
	"sync"
	"time"
)

// Timers calls functions at their times. One runtime timer, and the goroutine that it
// starts, serve all of them, so a waiting Timer costs little memory and many that expire
// at the same time do not start many goroutines. The zero value is ready to use.
type Timers struct {
	mu      sync.Mutex
	heap    []*Timer // by time: the parent of i is (i-1)/2
	runtime *time.Timer
	armed   time.Duration // when the runtime timer fires; zero if it does not
}

// A Timer is one function in a Timers.
type Timer struct {
	// Expired is called once at the time, unless the Timer has been stopped. It must not
	// block. It is set before the first Set.
	Expired func()

	at    time.Duration
	place int // in the heap, from 1; zero if it is not there
}

// Set makes t expire at a time of Now, in place of the time set before. It may be called
// again after t has expired.
func (ts *Timers) Set(t *Timer, at time.Duration) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if t.place == 0 {
		ts.heap = append(ts.heap, t)
		t.place = len(ts.heap)
	}
	t.at = at
	ts.move(t.place - 1)
	ts.arm()
}

// Stop removes t. Its function may be running.
func (ts *Timers) Stop(t *Timer) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.remove(t)
}

// ExpireAll makes all timers expire, and returns when their functions have returned.
func (ts *Timers) ExpireAll() {
	for t := ts.next(forever); t != nil; t = ts.next(forever) {
		t.Expired()
	}
}

const forever = 1<<63 - 1

// run calls the functions of the timers that have expired.
func (ts *Timers) run() {
	for t := ts.next(Now()); t != nil; t = ts.next(Now()) {
		t.Expired()
	}
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.armed = 0
	ts.arm()
}

// next removes and returns the first timer, if it expires at now or before.
func (ts *Timers) next(now time.Duration) *Timer {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if len(ts.heap) == 0 || ts.heap[0].at > now {
		return nil
	}
	t := ts.heap[0]
	ts.remove(t)
	return t
}

// arm sets the runtime timer to the first time, unless it fires before.
func (ts *Timers) arm() {
	if len(ts.heap) == 0 || ts.armed > 0 && ts.armed <= ts.heap[0].at {
		return
	}
	ts.armed = ts.heap[0].at
	wait := ts.armed - Now()
	if ts.runtime == nil {
		ts.runtime = time.AfterFunc(wait, ts.run)
	} else {
		ts.runtime.Reset(wait)
	}
}

// remove removes t, if it is in the heap.
func (ts *Timers) remove(t *Timer) {
	i, last := t.place-1, len(ts.heap)-1
	if i < 0 {
		return
	}
	ts.swap(i, last)
	ts.heap[last] = nil
	ts.heap = ts.heap[:last]
	t.place = 0
	if i < last {
		ts.move(i)
	}
}

// move moves the timer at i towards the first or the last ones, to where it belongs.
func (ts *Timers) move(i int) {
	for i > 0 && ts.heap[i].at < ts.heap[(i-1)/2].at {
		ts.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
	for {
		child := 2*i + 1
		if right := child + 1; right < len(ts.heap) && ts.heap[right].at < ts.heap[child].at {
			child = right
		}
		if child >= len(ts.heap) || ts.heap[i].at <= ts.heap[child].at {
			return
		}
		ts.swap(i, child)
		i = child
	}
}

func (ts *Timers) swap(i, j int) {
	ts.heap[i], ts.heap[j] = ts.heap[j], ts.heap[i]
	ts.heap[i].place, ts.heap[j].place = i+1, j+1
}
