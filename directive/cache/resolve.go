package cache

import (
	"context"
	"time"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/wire"
)

// AwaitDNS waits for a pending query, or for the refresh of an expired entry.
func (c *Cache) AwaitDNS(q *dns.Query, wake func()) bool {
	if state, ok := q.State(c.stateKey).(verifying); ok {
		state.pending = c.refresh(q, state.entry, nil)
		if c.verifyTimeout > 0 {
			time.AfterFunc(c.verifyTimeout, wake)
		}
		return state.pending != nil && state.pending.await(wake)
	}
	return c.join(q, q.State(c.stateKey).(waiting).lookup, wake)
}

// join makes q wait for the pending query, and has wake called at its end. It returns false if
// q leads a new one, or if the pending query has ended.
func (c *Cache) join(q *dns.Query, l *lookup, wake func()) bool {
	l.pending, l.leads = c.store.startPending(c.scope, &l.key, q.Proto)
	l.key, l.buf = l.pending.key, nil // a query that waits needs little memory
	return !l.leads && l.pending.await(wake)
}

// Resolve answers q after AwaitDNS.
func (c *Cache) Resolve(ctx context.Context, q *dns.Query) error {
	if state, ok := q.State(c.stateKey).(verifying); ok {
		origin := fromStore
		if c.verifyEntry(q, state.lookup) {
			origin = answered(state.step)
		}
		q.SetState(c.stateKey, origin)
		c.endLookup(state.lookup)
		return nil
	}

	l := q.State(c.stateKey).(waiting).lookup
	err := c.wait(ctx, q, l)
	q.SetState(c.stateKey, answered(l.step))
	c.endLookup(l)
	return err
}

// wait answers q with the result of the pending query. If its leader failed, the
// waiting queries lead one after the other.
func (c *Cache) wait(ctx context.Context, q *dns.Query, l *lookup) error {
	for {
		switch p := l.pending; {
		case l.leads:
			if c.answerFresh(q, l) { // stored since the last pending query ended
				c.store.finishPending(p, nil, false)
				return nil
			}
			c.lead(q, p, l.optionsFrom)
			c.passOn(ctx, q, l, p)
			return nil
		case !p.hasEnded():
			return ctx.Err()
		case p.answers(q.Proto):
			if p.result.write(q); p.result.err == nil {
				c.allowRepeatOfNew(q, p.result.entry, l.optionsFrom)
			}
			return nil
		case p.local:
			q.SetState(c.stateKey, alone{l})
			c.passOn(ctx, q, l, nil)
			return nil
		}

		// The leader has failed in a way that equal queries need not.
		ended := make(chan struct{})
		if c.join(q, l, func() { close(ended) }) {
			if err := q.Block(); err != nil {
				return err
			}
			select {
			case <-ended:
			case <-ctx.Done():
			}
		}
	}
}

// passOn passes q down, as the leader of led unless that is nil. If a handler panics, FinishDNS
// calls finish.
func (c *Cache) passOn(ctx context.Context, q *dns.Query, l *lookup, led *pending) {
	q.Next(ctx)
	c.finish(q, &l.key, l.optionsFrom, led)
}

// answerFresh answers q if there is a fresh entry by now.
func (c *Cache) answerFresh(q *dns.Query, l *lookup) bool {
	now := c.store.clock(time.Now())
	found := c.store.find(c.scope, &l.key)
	e, stale := c.choose(&found, now)
	if e == nil || stale {
		return false
	}
	c.writeFresh(q, e, now)
	return true
}

// verifyEntry answers q with the result of refreshing an expired entry; with the entry
// if there is no result that replaces it, or none within the timeout. It reports
// whether q has the result. A result that arrives later is stored.
func (c *Cache) verifyEntry(q *dns.Query, l *lookup) (refreshed bool) {
	p := l.pending
	if p != nil && p.hasEnded() && p.answers(q.Proto) && c.replaces(p.result.rcode, p.result.tc, p.result.kind(), l.entry.kind()) {
		c.seriesOf(q).misses.Add(1)
		p.result.write(q)
		return true
	}
	c.writeStale(q, l.entry)
	return false
}

// replaces reports whether a newer answer of a kind is used instead of an expired entry of another
// kind (RFC 8767 §4).
func (c *Cache) replaces(code wire.RCode, truncated bool, kind, expired answerKind) bool {
	if c.preferPositive && expired == success && kind != success {
		return false
	}
	return (code == wire.NoError || code == wire.NXDomain) && !truncated
}

// prefetchDue reports whether a fresh entry must be refreshed: it was queried
// often enough without a gap and expires soon.
func (c *Cache) prefetchDue(e *entry, now time.Duration) bool {
	if c.prefetch == 0 || e.kind() == failure {
		return false
	}

	streak := uint32(1)
	if last := time.Duration(e.lastHit.Swap(int64(now))); e.streak.Load() > 0 && now-last < c.prefetchGap {
		streak = e.streak.Add(1)
	} else {
		e.streak.Store(1)
	}
	return streak >= c.prefetch && e.expires-now <= c.prefetchWindow(e) && now >= time.Duration(e.retryAfter.Load())
}

// prefetchWindow returns how long before it expires a popular entry may be refreshed.
func (c *Cache) prefetchWindow(e *entry) time.Duration {
	return max((e.expires-e.stored())*time.Duration(c.prefetchPercent)/100, time.Second)
}

// minRecheck is the minimum time between two refreshes of an entry. Without it
// every query for a name whose upstream fails would send one.
const minRecheck = time.Second

// refresh sends the query of e down again, in the background, unless there is a
// pending query for it. It returns the pending query; nil if too many queries
// are waiting. It counts the query in counter, unless that is nil.
func (c *Cache) refresh(q *dns.Query, e *entry, counter *metrics.Counter) *pending {
	p, leads := c.store.startPending(c.scope, e.key(), q.Proto)
	if !leads {
		return p
	}

	started := q.Shared().Refresh(c.step, func(again *dns.Query) {
		e.retryAfter.Store(int64(c.store.clock(time.Now()) + max(c.recheck, minRecheck)))
		c.finish(again, e.key(), 0, p)
	})
	if !started {
		c.store.finishPending(p, nil, false)
		return nil
	}

	if counter != nil {
		counter.Add(1)
	}
	return p
}
