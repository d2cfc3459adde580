package cluster

import (
	"context"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"
)

const (
	// settleTime without another list is the end of a wave of lists: the kinds
	// are listed at the same time, at the start and when an API server returns.
	settleTime = 300 * time.Millisecond
	// manyListed objects in a wave leave enough garbage to do something about it.
	manyListed = 1000
	// collectEvery so many objects of lists that replace others, there is a
	// collection: else the garbage of decoding would lie on top of what is served.
	// A collection of a heap that has few pointers takes some milliseconds, and the
	// stream waits for it, so that two lists of 10,000 take a tenth of a second
	// longer. The first lists do not: all wait for those.
	collectEvery = 800
)

// A sweeper gives memory back to the system after lists. What is received is much
// more than what the sink makes of it, and the collector would keep the pages of
// the rest for a long time. It is one collection for a wave of large lists, none
// for small ones or for events, and it is made when the lists have been
// delivered: readers go on meanwhile.
type sweeper struct {
	listed atomic.Int64  // objects of the lists of this wave
	again  atomic.Int64  // objects of lists that replace others, of all kinds
	wake   chan struct{} // another list has been delivered
	// runtime.GC and debug.FreeOSMemory
	collect, free func()
}

func newSweeper() *sweeper {
	return &sweeper{wake: make(chan struct{}, 1), collect: runtime.GC, free: debug.FreeOSMemory}
}

// decoded is called for each object of a list that replaces one.
func (s *sweeper) decoded() {
	if s.again.Add(1)%collectEvery == 0 {
		s.collect()
	}
}

// add takes note of a list that has been delivered.
func (s *sweeper) add(objects int) {
	s.listed.Add(int64(objects))
	select {
	case s.wake <- struct{}{}:
	default: // it is awake already
	}
}

// run returns when ctx is done.
func (s *sweeper) run(ctx context.Context) {
	var settled <-chan time.Time
	for {
		select {
		case <-s.wake:
			settled = time.After(settleTime)
		case <-settled:
			if s.listed.Swap(0) >= manyListed {
				s.free()
			}
			settled = nil
		case <-ctx.Done():
			return
		}
	}
}
