package cache

import (
	"context"
	"errors"
	"time"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/sys/generation"
	"github.com/seamark/seamark/wire"
)

// AnyClass reports that the Cache has no answers of other classes than IN by
// itself. It is called for their queries all the same: a handler below may
// answer them.
func (*Cache) AnyClass() dns.ClassUse { return dns.ClassPassed }

// ServeDNS passes q to the handlers below: the server's own data is as cheap to look
// up as an entry, and always current.
func (c *Cache) ServeDNS(q *dns.Query) dns.Verdict {
	if c.applies(q) {
		q.SetState(c.stateKey, passed(flagsOf(q)))
	}
	return dns.Next
}

// InterceptDNS is called when a handler, below positions further down, would wait. It
// answers from an entry or waits for a pending query; otherwise q is passed down, and
// leads a new pending query if there was none.
func (c *Cache) InterceptDNS(q *dns.Query, below int) dns.Verdict {
	flags, ok := q.State(c.stateKey).(passed)
	if !ok {
		return dns.Next // not in our zones, or intercepted before
	}
	if q.IsLoop() {
		return dns.Next // the query that it is part of may lead the pending query
	}
	l := c.newLookup(q, queryFlags(flags), below)
	if l == nil {
		return dns.Next
	}

	if q.MayRepeat() {
		l.stamp, l.repeatable = c.store.stamp(&l.key) // before the entries are read
	}
	found := c.store.find(c.scope, &l.key)
	l.entry, l.stale = c.choose(&found, l.now)
	if l.stale && q.Shared().IsRefresh() && l.now >= time.Duration(l.entry.retryAfter.Load()) {
		l.entry = nil // the refresh of another entry needs current records, and starts no further refresh
	}
	if l.entry == nil {
		return c.miss(q, l)
	}
	return c.serve(q, l)
}

// miss passes q on if it is the first of its kind. Otherwise q waits for the answer to the
// first one, unless the first one may wait for q.
func (c *Cache) miss(q *dns.Query, l *lookup) dns.Verdict {
	c.seriesOf(q).misses.Add(1)
	c.store.endRepetition(&l.key)

	p, leads := c.store.startPending(c.scope, &l.key, q.Proto)
	switch {
	case leads:
		c.lead(q, p, l.optionsFrom)
		c.endLookup(l)
		return dns.Next
	case !q.Shared().MayWait():
		q.SetState(c.stateKey, alone{l})
		return dns.Next
	}
	q.SetState(c.stateKey, waiting{l})
	return dns.Wait
}

// lead makes q the leader of p.
func (c *Cache) lead(q *dns.Query, p *pending, optionsFrom int) {
	p.optionsFrom = optionsFrom
	q.Shared().SetAwaited(true)
	q.SetState(c.stateKey, leading{p})
}

// choose returns the entry that answers now, and whether it is stale. Any
// answer, even a stale one, comes before a failure.
func (c *Cache) choose(f *found, now time.Duration) (e *entry, stale bool) {
	positive, negative, failed := f.byKind[success], f.byKind[denial], f.byKind[failure]
	switch {
	case positive.fresh(now):
		return positive, false
	case c.preferPositive && positive.stale(now, c.staleFor):
		return positive, true
	case negative.fresh(now):
		return negative, false
	case positive.stale(now, c.staleFor):
		return positive, true
	case negative.stale(now, c.staleFor):
		return negative, true
	case failed.fresh(now):
		return failed, false
	}
	return nil, false
}

// serve answers q from l's entry. It returns Wait if the entry must be verified first.
func (c *Cache) serve(q *dns.Query, l *lookup) dns.Verdict {
	e, now := l.entry, l.now
	switch {
	case !l.stale:
		c.writeHit(q, e, now)
		if c.prefetchDue(e, now) {
			c.refresh(q, e, c.seriesOf(q).prefetch)
		}
		if l.repeatable {
			c.allowRepeat(q, e, l.stamp, now)
		}
	case now < time.Duration(e.retryAfter.Load()):
		c.writeStale(q, e)
	case c.verify && q.Shared().MayWait():
		q.SetState(c.stateKey, verifying{l})
		return dns.Wait
	default:
		c.writeStale(q, e)
		c.refresh(q, e, c.seriesOf(q).prefetch)
	}
	c.endLookup(l)
	return dns.Done
}

// writeHit answers q with a fresh entry, and counts the hit.
func (c *Cache) writeHit(q *dns.Query, e *entry, now time.Duration) {
	c.seriesOf(q).hits[e.kind().queue()].Add(1)
	c.writeFresh(q, e, now)
}

// countsHits is why an answer may not be repeated.
const countsHits = "prefetch counts the hits of the cached answer"

// allowRepeat allows to repeat q's answer, which was written from a fresh entry at a time.
func (c *Cache) allowRepeat(q *dns.Query, e *entry, stamp generation.Stamp, written time.Duration) {
	start := c.store.clock(q.Start)
	r := dns.Repeat{
		For: c.repeatFor(e, start), While: stamp, Hits: c.seriesOf(q).hits[e.kind().queue()], Step: c.step,
	}
	if r.For <= 0 {
		r.Refused = countsHits
	}
	if !c.keepTTL {
		r.Tick = e.stored() + time.Duration(seconds(written-e.stored())+1)*time.Second - start
	}
	q.AllowRepeat(r)
}

// allowRepeatOfNew allows to repeat q's answer, of which e is a copy, if the next hits will have the
// same. With prefetch these are counted first.
func (c *Cache) allowRepeatOfNew(q *dns.Query, e *entry, optionsFrom int) {
	switch {
	case e == nil || !q.MayRepeat() || len(q.ReplyOptions()) != optionsFrom+len(e.extended()):
		return
	case c.prefetch > 0:
		q.AllowRepeat(dns.Repeat{Refused: countsHits})
		return
	}
	k := e.key()
	stamp, ok := c.store.stamp(k) // before the entries are read
	found := c.store.find(c.scope, k)
	if now, stale := c.choose(&found, e.stored()); ok && now == e && !stale {
		c.allowRepeat(q, e, stamp, e.stored())
	}
}

// repeatFor returns how long c does not need to see hits of a fresh entry: until the entry
// expires, or until the entry may be refreshed. Hits that prefetch counts are not repeated.
func (c *Cache) repeatFor(e *entry, now time.Duration) time.Duration {
	left := e.expires - now
	if c.prefetch == 0 || e.kind() == failure {
		return left
	}
	if e.streak.Load() < c.prefetch {
		return 0
	}
	if due := e.expires - c.prefetchWindow(e) - now; due > 0 {
		left = min(left, due)
	}
	return min(left, c.prefetchGap/2)
}

// Repetition reports that equal queries get the same entry.
func (*Cache) Repetition() dns.Repetition { return dns.Repetition{} }

func (c *Cache) writeFresh(q *dns.Query, e *entry, now time.Duration) {
	e.markUsed()
	if c.keepTTL {
		e.write(q, 0)
	} else {
		e.write(q, seconds(now-e.stored()))
	}
}

// writeStale answers q with an expired entry and the extended error for that
// (RFC 8914 §4.4, §4.20).
func (c *Cache) writeStale(q *dns.Query, e *entry) {
	e.markUsed()
	series := c.seriesOf(q)
	series.hits[e.kind().queue()].Add(1)
	series.stale.Add(1)

	e.write(q, 0)
	q.Answer.ClampTTL(q.Answer.RecordsOffset(), c.staleTTL, c.staleTTL)
	code := wire.EDEStale
	if e.rcode == wire.NXDomain {
		code = wire.EDEStaleNX
	}
	q.AddExtendedError(code, "")
}

func seconds(d time.Duration) uint32 { return uint32(max(d, 0) / time.Second) }

// FinishDNS is called on the way up. It clamps the answer's TTLs, stores the
// answer if it came from another server, and releases the queries that wait for
// it.
func (c *Cache) FinishDNS(q *dns.Query) {
	switch state := q.State(c.stateKey).(type) {
	case passed:
		if q.Err != nil && !q.Cacheable && c.answerRefused(q, queryFlags(state)) {
			q.SetState(c.stateKey, fromStore)
			return
		}
		if q.Cacheable || q.Err != nil { // the cache does not keep this server's own answers
			c.seriesOf(q).misses.Add(1)
		}
		c.clampTTLs(q)
	case verifying: // there was no place to wait for the refresh
		c.writeStale(q, state.entry)
		q.SetState(c.stateKey, fromStore)
		c.endLookup(state.lookup)
	case leading:
		e := c.finish(q, &state.key, state.optionsFrom, state.pending)
		c.allowRepeatOfNew(q, e, state.optionsFrom)
		q.SetState(c.stateKey, nil)
	case alone:
		e := c.finish(q, &state.key, state.optionsFrom, nil)
		c.allowRepeatOfNew(q, e, state.lookup.optionsFrom)
		q.SetState(c.stateKey, nil)
		c.endLookup(state.lookup)
	}
}

// answerRefused answers from the store a query that a handler below refused at
// once instead of waiting: forward's max_concurrent does not limit cache hits.
func (c *Cache) answerRefused(q *dns.Query, flags queryFlags) bool {
	if q.AnsweredStep() <= c.step {
		return false
	}
	l := c.newLookup(q, flags, q.AnsweredStep()-c.step)
	if l == nil {
		return false
	}
	defer c.endLookup(l)

	found := c.store.find(c.scope, &l.key)
	e, stale := c.choose(&found, l.now)
	switch {
	case e == nil:
		return false
	case stale:
		c.writeStale(q, e)
	default:
		c.writeHit(q, e, l.now)
	}
	return true
}

// finish handles the answer to a query with key k that was passed down. It stores the
// answer if possible and ends the pending query that q leads, if any. It returns the entry with
// the answer, which may not have found room.
func (c *Cache) finish(q *dns.Query, k *key, optionsFrom int, led *pending) *entry {
	e, kind := c.add(q, k, optionsFrom)
	if led == nil {
		return e
	}

	switch {
	case e != nil:
	case q.Cacheable: // the waiting queries get an answer that is not stored, too
		e = newEntry(c.scope, k, q, optionsFrom, kind)
		e.setTimes(c.store.clock(time.Now()), 0, 0)
	case failsAlike(q):
		e = newEntry(c.scope, k, q, optionsFrom, failure)
	}

	q.Shared().SetAwaited(false)
	var r *result
	if e != nil {
		r = &result{e, q.TC, q.Err}
	}
	local := !q.Cacheable && q.RCode != wire.ServFail && q.AnsweredStep() >= 0
	c.store.finishPending(led, r, local)
	return e
}

// failsAlike reports whether equal queries would fail as q has.
func failsAlike(q *dns.Query) bool {
	_, unparked := errors.AsType[dns.ParkingError](q.Err)
	return q.RCode == wire.ServFail && q.Err != nil && !unparked && !errors.Is(q.Err, context.Canceled)
}

// add clamps the TTLs of q's answer and stores it if it may be stored. It
// returns the new entry, nil if there is none, and the kind of the answer.
func (c *Cache) add(q *dns.Query, k *key, optionsFrom int) (*entry, answerKind) {
	if !q.Cacheable {
		c.clampTTLs(q)
		return nil, failure
	}

	kind, ttl, ok := classify(q)
	if !ok {
		c.clampTTLs(q)
		if q.TC || q.Answer.Count[wire.Answers] > 0 {
			c.seriesOf(q).drops.Add(1)
		}
		// Without any answer NOERROR may be that of a lame server.
		if kind == denial && (q.RCode == wire.NXDomain || q.Answer.Count[wire.Answers] > 0) {
			c.removeExpired(q, k, kind)
		}
		return nil, kind
	}

	life := c.lifetime(q, kind, ttl)
	if life == 0 || c.bounds[kind.queue()].entries == 0 || c.disabled[kind.queue()].Through(k.name) {
		c.removeExpired(q, k, kind)
		return nil, kind
	}
	staleFor := c.staleFor
	if kind == failure {
		staleFor = 0
	}
	e := newEntry(c.scope, k, q, optionsFrom, kind)
	now := c.store.clock(time.Now())
	e.setTimes(now, life, staleFor)
	c.put(q, e, now)
	return e, kind
}

// lifetime clamps the TTLs of an answer that may be stored, whose own TTL is ttl, and returns
// how long it may be used.
func (c *Cache) lifetime(q *dns.Query, kind answerKind, ttl uint32) time.Duration {
	if kind == failure {
		c.clampTTLs(q)
		return c.servfailFor
	}

	b := &c.bounds[kind.queue()]
	ttl = min(max(ttl, b.minTTL), b.maxTTL)
	highest := b.maxTTL
	if kind == denial {
		highest = ttl // RFC 2308 §5: also the SOA record's TTL
	}
	q.Answer.ClampTTL(q.Answer.RecordsOffset(), b.minTTL, highest)
	return time.Duration(ttl) * time.Second
}

// clampTTLs clamps the TTLs of q's answer to the bounds of its apparent kind.
func (c *Cache) clampTTLs(q *dns.Query) {
	if !q.Answer.Empty() && !q.Type.IsTransfer() {
		b := &c.bounds[apparentKind(q).queue()]
		q.Answer.ClampTTL(q.Answer.RecordsOffset(), b.minTTL, b.maxTTL)
	}
}

// put puts e into the store. A denial replaces the positive answer unless that
// is preferred; a failure replaces neither.
func (c *Cache) put(q *dns.Query, e *entry, now time.Duration) {
	var keep kindSet
	switch {
	case e.kind() == failure:
		keep = 1<<success | 1<<denial
	case e.kind() == denial && c.preferPositive && c.staleFor > 0:
		keep = 1 << success
	}

	evicted, ok := c.store.put(e, keep, now)
	series := c.seriesOf(q)
	for kind, n := range evicted {
		if n > 0 {
			series.evictions[answerKind(kind).queue()].Add(uint64(n))
		}
	}
	if !ok && e.kind() != failure {
		series.drops.Add(1)
		c.removeExpired(q, e.key(), e.kind())
	}
}

// removeExpired removes the expired entries that q's answer replaces, which is of a kind and is not
// stored. Otherwise they would be given as stale answers after a newer one.
func (c *Cache) removeExpired(q *dns.Query, k *key, kind answerKind) {
	var replaced kindSet
	for _, old := range [...]answerKind{success, denial} {
		if c.replaces(q.RCode, q.TC, kind, old) {
			replaced |= 1 << old
		}
	}
	c.store.removeExpired(c.scope, k, replaced)
}
