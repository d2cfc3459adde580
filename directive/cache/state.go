package cache

import (
	"time"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/sys/generation"
)

// The state of a query is one of the types below, or nil if the directive does not apply to the
// query. SetState does not allocate for any of them: they have the size of a pointer or of a byte.
//
//	ServeDNS      InterceptDNS             Resolve or FinishDNS
//
//	passed --+---------------------------> passed: a handler below answered at once
//	         +---------------------------> answered: a handler below refused, an entry answers
//	         +-- (an entry answers) -----> passed
//	         +-- leading ----------------> nil
//	         +-- alone ------------------> nil
//	         +-- waiting ----------------> answered; in between it may be leading or alone
//	         +-- verifying --------------> answered
type (
	// A passed query has gone down the chain with these flags, and no handler below has had
	// to wait. Handlers below, such as header, may change the query's own flags.
	passed queryFlags

	// A leading query is passed on to the handler that waits. Equal queries wait for its answer.
	leading struct{ *pending }

	// An alone query is passed on, too, but no query waits for its answer.
	alone struct{ *lookup }

	// A waiting query waits for the answer to an equal one.
	waiting struct{ *lookup }

	// A verifying query waits until its expired entry has been refreshed.
	verifying struct{ *lookup }

	// An answered query was not answered by the handler at Query.AnsweredStep, but from the
	// store, or by the handler that is that many steps below the Cache.
	answered int
)

const fromStore answered = 0

// A lookup is the memory of a query that the handlers below cannot answer at once.
type lookup struct {
	key
	buf         *keyBuffer // memory of the key; nil if pending has it
	optionsFrom int        // where the reply options of the handlers below begin
	now         time.Duration
	entry       *entry   // the entry that answers the query, if any
	stale       bool     // entry has expired
	pending     *pending // the pending query that a waiting or verifying query waits for
	leads       bool     // a waiting query has become the leader of pending

	stamp      generation.Stamp // of the entries, if the answer is repeatable
	repeatable bool
}

// newLookup returns a lookup of q for the handler that many steps below; nil if the answer
// cannot be in the store.
func (c *Cache) newLookup(q *dns.Query, flags queryFlags, below int) *lookup {
	if c.uncacheable(q) {
		return nil
	}

	l, ok := c.lookups.Get().(*lookup)
	if !ok {
		l = new(lookup)
	}
	l.optionsFrom = len(q.ReplyOptions())
	l.entry, l.stale, l.pending, l.leads, l.repeatable = nil, false, nil, false, false
	if l.buf == nil {
		l.buf = new(keyBuffer)
	}

	if !l.set(c.store, c.scope, q, flags, below, l.buf) {
		c.lookups.Put(l)
		return nil
	}
	l.now = c.store.clock(q.Now())
	return l
}

// endLookup frees l. No query's state refers to it any more.
func (c *Cache) endLookup(l *lookup) {
	l.entry, l.pending = nil, nil
	c.lookups.Put(l)
}

// Answered returns the position in the chain of the handler that answered a
// finished query, and whether the answer was stored before. If the query waited for
// a pending query, it is the handler that answered the pending one.
func (c *Cache) Answered(q *dns.Query) (step int, stored bool) {
	below, known := q.State(c.stateKey).(answered)
	switch step = q.AnsweredStep(); {
	case known && below == fromStore:
		return step, true
	case known && step == c.step:
		return step + int(below), false
	}
	return step, step == c.step
}
