package dns

import (
	"context"
	"errors"
	"sync"

	"github.com/seamark/seamark/wire"
)

// A walk goes down the steps of the chain, calling handlers, and up again, calling
// the finishers of the handlers that were passed. It may be nested: a Resolver calls
// the handlers below it with Next, and that walk ends at the step below the
// Resolver, its floor.

var errUnanswered = errors.New("no directive answers this name here")

// walk calls the handlers from q.at downwards. If none waits, it then calls the
// finishers upwards as far as floor, and the answer is complete. Otherwise it
// returns Wait, and q.at is the step of the handler that waits.
func (q *Query) walk(floor int) Verdict {
	steps := q.chain.steps
	for ; q.at < len(steps); q.at++ {
		if !steps[q.at].serves(q) {
			continue
		}

		verdict := Wait
		if h := steps[q.at].handler; h != nil {
			verdict = h.ServeDNS(q)
		}
		if verdict == Wait && q.chain.interceptors {
			verdict = q.intercept(floor)
		}

		switch verdict {
		case Next:
		case Wait:
			return Wait
		default:
			return q.complete(floor, q.at, verdict)
		}
	}

	q.failUnanswered()
	return q.complete(floor, -1, Done)
}

// failUnanswered makes the answer that of a query that every handler has passed on.
func (q *Query) failUnanswered() {
	switch {
	case q.Opcode() != 0:
		q.Fail(wire.NotAuth) // RFC 1996 §3.10, RFC 2136 §3.1.2
	case q.Class != wire.ClassIN && !q.chain.anyClass:
		q.Fail(wire.Refused) // as for a chain that does not change classes
		return
	default:
		q.Fail(wire.ServFail) // as CoreDNS does
	}
	q.Err = errUnanswered
}

// complete notes that the handler at step answered, -1 if none did, and calls the
// finishers.
func (q *Query) complete(floor, step int, verdict Verdict) Verdict {
	q.answeredBy = step
	q.dropped = verdict == Drop
	if q.finishUp(floor) {
		return Wait
	}
	return verdict
}

// finishUp calls the finishers above q.at, as far as floor. waits reports whether it
// has stopped at a Completer, now at q.at, that must wait.
func (q *Query) finishUp(floor int) (waits bool) {
	for q.at--; q.at >= floor; q.at-- {
		s := &q.chain.steps[q.at]
		switch {
		case s.finisher == nil && s.completer == nil || !s.serves(q):
		case s.completer == nil:
			s.finisher.FinishDNS(q)
		case !q.dropped && s.completer.CompleteDNS(q) == Wait:
			q.completing = true
			return true
		}
	}
	return false
}

// finishAll is finishUp for an answer that no Completer needs to complete.
func (q *Query) finishAll(floor int) {
	for q.finishUp(floor) {
		q.completing = false
	}
}

// resume blocks until the handler at q.at, which waits, has answered, and calls the
// finishers upwards as far as floor.
func (q *Query) resume(ctx context.Context, floor int) {
	if h := q.chain.steps[q.at].awaiter; h != nil {
		woken := make(chan struct{})
		if h.AwaitDNS(q, sync.OnceFunc(func() { close(woken) })) {
			select {
			case <-woken:
			case <-ctx.Done():
			}
		}
	}
	q.resolve(ctx, floor)
}

// resolve calls Resolve of the handler at q.at, and then the finishers upwards as
// far as floor.
func (q *Query) resolve(ctx context.Context, floor int) {
	for {
		at := q.at
		if !q.completing {
			q.answeredBy, q.dropped = at, false
		}
		q.completing = false

		if err := q.chain.steps[at].resolver.Resolve(ctx, q); err != nil {
			q.fail(wire.ServFail) // Resolve may have added an extended error
			q.Err = err
		}

		q.abandonSubQuery()
		q.at = at
		if !q.finishUp(floor) {
			return
		}
		if err := q.place.addStack(); err != nil {
			q.failUnparked(err, floor)
			return
		}
	}
}

// Next calls the handlers below the one whose Resolve is running, and blocks until
// the answer is complete.
func (q *Query) Next(ctx context.Context) {
	at := q.at
	q.at++
	if q.walk(at+1) == Wait {
		q.waitBelow(ctx, at+1)
	}
	q.at = at
}

// waitBelow blocks for Next until the handler at q.at has answered.
func (q *Query) waitBelow(ctx context.Context, floor int) {
	if err := q.place.addStack(); err != nil {
		q.failUnparked(err, floor)
		return
	}
	if q.Timeout > 0 { // a handler below may have set it
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, q.Timeout)
		defer cancel()
	}
	q.resume(ctx, floor)
}

// unwind calls the finishers that a panic has skipped, or the finishers above a
// handler that cannot be waited for: first the finishers of an unfinished sub-query,
// then those above q.at. If a finisher panics, the others are still called.
func (q *Query) unwind() {
	q.abandonSubQuery()
	for q.chain != nil && q.at >= q.floor {
		func() {
			defer func() { _ = recover() }()
			q.finishUp(q.floor)
		}()
	}
}

// abandonSubQuery ends a sub-query that is not finished. Its finishers see SERVFAIL
// in place of a partial answer.
func (q *Query) abandonSubQuery() {
	s := q.sub
	if s == nil {
		return
	}
	if s.chain != nil && s.at >= s.floor {
		s.Fail(wire.ServFail)
		s.answeredBy = -1
	}
	s.unwind()
}

// Unanswered reports whether no server block has the name, or all handlers of its
// chain passed it on.
func (q *Query) Unanswered() bool {
	return q.answeredBy < 0 && (q.Err == errUnanswered || q.Err == nil && q.RCode == wire.Refused)
}
