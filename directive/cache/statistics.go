package cache

import (
	"time"

	"github.com/seamark/seamark/dns"
)

// A turnover is how many entries came into a scope, and how many of them had to
// go before their time. It is under the store's lock.
type turnover struct{ inserted, evicted uint64 }

// Statistics is how many entries there may be, success and denial together, and
// how many have come and had to make room since the block's entries began to be
// kept: a reload that takes them over goes on counting. It takes the store's lock.
func (c *Cache) Statistics() (capacity int, inserted, evicted uint64) {
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	return c.bounds[0].entries + c.bounds[1].entries, c.scope.inserted, c.scope.evicted
}

// An origin is what the cache leaves in a query whose answer is not what the
// place of the handler that gave it says: the entry that took the place of a
// refusal, or what came of a question that somebody asked those who stand so many
// steps below.
type origin int

const ofMemory origin = 0

// Answered says whose the answer of a finished query is: that of a handler of
// its chain, by place, or one that was kept. An answer for which somebody had to
// ask is theirs who were asked, whoever waited for it.
func (c *Cache) Answered(q *dns.Query) (step int, kept bool) {
	from, known := q.State(c.word).(origin)
	switch step = q.AnsweredStep(); {
	case known && from == ofMemory:
		return step, true
	case known && step == c.step:
		return step + int(from), false
	}
	return step, step == c.step
}

// letGo counts e, which has to go; what has ended is not missed. The caller
// holds the lock.
func (e *entry) letGo(now time.Duration) {
	if e.fresh(now) {
		e.scope.evicted++
	}
}
