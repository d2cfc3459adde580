package dns

import (
	"slices"
	"time"
)

// An Interceptor may answer a query in place of a handler below it that would wait. The
// chain calls InterceptDNS when a handler returns Wait that is below positions further
// down in the chain, after the Interceptor's own ServeDNS returned Next. The answer is
// empty. Next leaves the query to the other handler. Any other verdict has the meaning
// that it has from ServeDNS: the Interceptor's FinishDNS is not called then, and the
// finishers between the two handlers see an empty answer. If there is no place for a query
// that it makes wait, FinishDNS is called with the failure. An Interceptor sees only the
// question that it passed on: the chain does not call it if a handler below it has
// changed the question. InterceptDNS must not block.
type Interceptor interface {
	InterceptDNS(q *Query, below int) Verdict
}

// intercept asks the Interceptors above the handler at q.at, which waits, from the nearest
// one as far as floor. The first that does not return Next answers in place of the
// handler: q.at is its step then. If it waits, too, an Interceptor above it may answer in
// its place.
func (q *Query) intercept(floor int) Verdict {
	for i := q.at - 1; i >= floor; i-- {
		if !q.mayIntercept(i) {
			continue
		}

		waiting := q.setAside() // of the handler that waits: perhaps a CNAME record
		verdict := q.chain.steps[i].interceptor.InterceptDNS(q, q.at-i)
		if verdict == Next {
			q.Result = waiting
			continue
		}

		q.skipTo(i)
		if !waiting.Answer.Empty() {
			q.Answer.MoveTo(waiting.Answer.Buf)
		}
		if verdict != Wait {
			return verdict
		}
	}
	return Wait
}

// mayIntercept reports whether the handler at step i is an Interceptor that knows the
// question.
func (q *Query) mayIntercept(i int) bool {
	s := &q.chain.steps[i]
	return s.interceptor != nil && s.serves(q) && (q.changed == nil || q.changed.step <= i)
}

// skipTo makes i the current step, whose Interceptor has answered, in place of a step below
// it that waits. The finishers between the two see an empty answer.
func (q *Query) skipTo(i int) {
	q.abandonSubQuery()
	if q.hasFinisher(i+1, q.at) {
		answer := q.setAside()
		q.finishAll(i + 1)
		q.Result = answer
	}
	q.at = i
}

// setAside returns q's result and makes it empty, in the spare capacity of the same buffer
// unless there are no records.
func (q *Query) setAside() Result {
	old := q.Result
	q.Status = Status{}
	if !old.Answer.Empty() {
		q.Answer.Reset(old.Answer.Buf[len(old.Answer.Buf):], q.Question())
	}
	return old
}

// hasFinisher reports whether one of the steps in [first, end) is a Finisher.
func (q *Query) hasFinisher(first, end int) bool {
	for i := first; i < end; i++ {
		if q.chain.steps[i].finisher != nil {
			return true
		}
	}
	return false
}

// Shared is a Query as an Interceptor sees it that lets queries wait for the answer to an
// equal one, as a cache does.
type Shared Query

// Shared returns q as such a query.
func (q *Query) Shared() *Shared { return (*Shared)(q) }

// SetAwaited sets whether other queries wait for the answer.
func (s *Shared) SetAwaited(is bool) { s.awaited = is }

// MayWait reports whether s may wait for the answer to another query. A query that
// other queries wait for, and its sub-queries, may not: it might be one that waits for s.
func (s *Shared) MayWait() bool {
	for q := (*Query)(s); q != nil; q = q.parent {
		if q.awaited {
			return false
		}
	}
	return true
}

// IsRefresh reports whether Refresh made s, or the query that s is a sub-query of.
func (s *Shared) IsRefresh() bool {
	for s.parent != nil {
		s = s.parent.Shared()
	}
	return s.floor > 0
}

// Refresh asks the handlers below a step, which is the caller's, again in the background: a
// cache refreshes an entry in this way before the entry expires. finished is called
// with a copy of s that has the answer, on any goroutine, perhaps before Refresh
// returns. Handlers above do not see the copy. Refresh returns false and does not call
// finished if too many queries are waiting.
func (s *Shared) Refresh(step int, finished func(c *Query)) bool {
	c := &Query{Request: s.Request}
	c.Request.Compact()
	c.Reset(slices.Clone(s.packet), s.Proto, time.Now())
	c.Options = slices.Clone(s.Options)
	c.Peer, c.Local, c.Interface, c.mux, c.Timeout = s.Peer, s.Local, s.Interface, s.mux, s.Timeout

	c.enter(s.chain)
	c.changed, c.detached, c.awaited = s.changed, true, true
	c.at, c.floor = step+1, step+1
	c.Answer.Reset(nil, c.Question())

	waits := false
	c.recovered(func() { waits = c.walk(c.floor) == Wait })
	if !waits {
		finished(c)
		return true
	}

	p, err := s.mux.lot.reserve(c, false, finished)
	if err != nil {
		c.failUnparked(err, c.floor)
		return false
	}
	p.start()
	return true
}
