package cluster

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/sys/follow"
)

const (
	// settleTime is the time after a list without another one: all kinds are listed
	// at about the same time, at the start and after an outage.
	settleTime = 300 * time.Millisecond
	// manyListed is the number of listed objects whose garbage is worth a collection.
	manyListed = 1000
	// collectEvery is the number of objects, in lists that replace others, after which
	// garbage is collected: otherwise the garbage of decoding would add to the memory
	// of the objects being served. A collection takes some milliseconds, because the
	// heap has few pointers, and delays two lists of 10,000 objects by 0.1 s. The
	// first lists are not delayed.
	collectEvery = 800
)

// A Sweeper returns memory to the system after lists. Decoding a list needs much more
// memory than the sink's data, and the runtime would keep it for a long time: 10,000
// Services must fit into 64 MB while their lists are received again. Only the source
// knows when the memory of a list is garbage: a limit for the whole process would cost
// CPU time at all times. It collects once after several large lists, and never for small
// lists or events.
type Sweeper struct {
	listed        atomic.Int64  // objects listed since the last collection
	again         atomic.Int64  // objects in lists that replace others
	delivered     follow.Signal // another list
	collect, free func()
}

// NewSweeper returns a Sweeper that calls collect and free to collect garbage and to
// return memory.
func NewSweeper(collect, free func()) *Sweeper {
	return &Sweeper{delivered: follow.NewSignal(), collect: collect, free: free}
}

// Decoded counts an object of a list that replaces another.
func (s *Sweeper) Decoded() {
	if s.again.Add(1)%collectEvery == 0 {
		s.collect()
	}
}

// Listed counts a list that has been delivered.
func (s *Sweeper) Listed(objects int) {
	s.listed.Add(int64(objects))
	s.delivered.Send()
}

// run returns when ctx is done.
func (s *Sweeper) run(ctx context.Context) {
	var settled <-chan time.Time
	for {
		select {
		case <-s.delivered:
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
