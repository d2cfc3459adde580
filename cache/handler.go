package cache

import (
	"context"
	"errors"
	"time"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// A look is what is kept of a query on its way down: its key, which those
// below may make hard to tell, and what is to become of it.
type look struct {
	key
	name    [wire.MaxName]byte
	options [maxOptions]byte
	replied int  // bytes of the reply's options that were there before
	joined  bool // those below would wait: the next word is ours
	counted bool // as a hit or a miss
	now     time.Duration
	entry   *entry // what there is
	stale   bool   // it has ended
	marker  *entry // of the flight that it leads
}

// begin keeps what q asks. It is nil if q has too many options to be told by.
func (c *Cache) begin(q *dns.Query) *look {
	l, ok := c.spare.Get().(*look)
	if !ok {
		l = new(look)
	}
	l.replied, l.joined, l.counted = len(q.ReplyOptions()), false, false
	l.entry, l.stale, l.marker = nil, false, nil
	if !l.read(q, &l.name, &l.options) {
		c.spare.Put(l)
		return nil
	}
	q.SetState(c.word, l)
	return l
}

// end takes l from q.
func (c *Cache) end(q *dns.Query, l *look) {
	q.SetState(c.word, nil)
	l.entry, l.marker = nil, nil
	c.spare.Put(l)
}

func (c *Cache) miss(q *dns.Query, l *look) {
	if !l.counted {
		l.counted = true
		c.counted(q).misses.Add(1)
	}
}

// AnyClass says that queries of every class are looked up, too; those who may
// answer them stand below.
func (*Cache) AnyClass() bool { return false }

// ServeDNS lets those below have the first word: what this server knows by
// itself is as cheap as an entry, and always current. It is called again if
// they would wait, and then answers with what there is.
func (c *Cache) ServeDNS(q *dns.Query) dns.Verdict {
	if l, _ := q.State(c.word).(*look); l != nil && l.joined {
		return c.serve(q, l)
	}
	if !c.concerns(q) {
		return dns.Next
	}
	c.counted(q).requests.Add(1)
	if c.never(q) || c.begin(q) == nil {
		c.counted(q).misses.Add(1)
	}
	return dns.Next
}

// JoinDNS is called when those below would wait: it takes q if there is an
// entry or a flight for it, and else lets q lead one.
func (c *Cache) JoinDNS(q *dns.Query, below int) bool {
	l, _ := q.State(c.word).(*look)
	if l == nil || l.marker != nil {
		return false
	}
	l.place(c.store, c.scope, below)
	l.now = c.store.at(q.Now())
	f := c.store.find(c.scope, &l.key)
	if l.entry, l.stale = c.choose(&f, l.now); l.entry == nil && f.flight == nil {
		_, l.marker = c.store.lead(c.scope, &l.key, q.Proto)
	}
	l.joined = l.marker == nil
	if l.entry == nil {
		c.miss(q, l)
	}
	return l.joined
}

// serve answers with an entry, or waits for a flight.
func (c *Cache) serve(q *dns.Query, l *look) dns.Verdict {
	e, now := l.entry, l.now
	switch {
	case e == nil:
		return dns.Wait
	case !l.stale:
		c.hit(q, e, now)
		if c.due(e, now) {
			c.refresh(q, e, c.counted(q).prefetch)
		}
	case now < time.Duration(e.retry.Load()):
		c.hitStale(q, e)
	case c.verify:
		return dns.Wait
	default:
		c.hitStale(q, e)
		c.refresh(q, e, c.counted(q).prefetch)
	}
	c.end(q, l)
	return dns.Done
}

// choose picks what answers now: what is known, however it is known, comes
// before that nobody could say.
func (c *Cache) choose(f *found, now time.Duration) (e *entry, stale bool) {
	s, d, x := f.of[success], f.of[denial], f.of[failure]
	switch {
	case s.fresh(now):
		return s, false
	case c.preferPositive && s.stale(now, c.staleFor):
		return s, true
	case d.fresh(now):
		return d, false
	case s.stale(now, c.staleFor):
		return s, true
	case d.stale(now, c.staleFor):
		return d, true
	case x.fresh(now):
		return x, false
	}
	return nil, false
}

func (c *Cache) hit(q *dns.Query, e *entry, now time.Duration) {
	c.counted(q).hits[e.kind.queue()].Add(1)
	c.give(q, e, now)
}

// give makes e, which has not ended, the answer.
func (c *Cache) give(q *dns.Query, e *entry, now time.Duration) {
	e.used()
	if c.keepTTL {
		e.write(q, 0)
	} else {
		e.write(q, seconds(now-e.stored))
	}
}

// hitStale answers with what has ended, and says so (RFC 8914 §4.4, §4.20).
func (c *Cache) hitStale(q *dns.Query, e *entry) {
	e.used()
	count := c.counted(q)
	count.hits[e.kind.queue()].Add(1)
	count.stale.Add(1)
	e.write(q, 0)
	q.Answer.BoundTTL(q.Answer.Body(), c.staleTTL, c.staleTTL)
	code := wire.EDEStale
	if e.rcode == wire.NXDomain {
		code = wire.EDEStaleNX
	}
	q.Extend(code, "")
}

// FinishDNS bounds the answer's TTLs, keeps it if it is another server's, and
// lets those go that wait for it.
func (c *Cache) FinishDNS(q *dns.Query) {
	l, _ := q.State(c.word).(*look)
	if l == nil {
		if c.concerns(q) {
			c.bound(q)
		}
		return
	}
	if q.Err == nil || q.Learned || l.marker != nil || !c.rescue(q, l) {
		c.miss(q, l)
		c.settle(q, l)
	}
	c.end(q, l)
}

// rescue answers with an entry of those who would have waited, had they not
// refused at once: forward's max_concurrent is no bound for what is kept.
func (c *Cache) rescue(q *dns.Query, l *look) bool {
	if q.Step() <= c.step {
		return false
	}
	l.place(c.store, c.scope, q.Step()-c.step)
	f, now := c.store.find(c.scope, &l.key), c.store.at(q.Now())
	e, stale := c.choose(&f, now)
	switch {
	case e == nil:
		return false
	case stale:
		c.hitStale(q, e)
	default:
		c.hit(q, e, now)
	}
	return true
}

// settle is the end of a query that was asked of those below.
func (c *Cache) settle(q *dns.Query, l *look) {
	e := c.keep(q, l)
	if l.marker == nil {
		return
	}
	alone := false
	switch {
	case q.Learned && e == nil:
		e = newEntry(c.scope, &l.key, q, l.replied)
		e.stored = c.store.at(time.Now())
	case q.Learned:
	case q.RCode != wire.ServFail && q.Step() >= 0:
		alone = true // this server's own: it is cheap to look up
	case q.RCode == wire.ServFail && q.Err != nil && !errors.Is(q.Err, dns.ErrFull) && !errors.Is(q.Err, context.Canceled):
		e = newEntry(c.scope, &l.key, q, l.replied) // asking again would fail again
	}
	c.store.land(l.marker, e, alone)
	l.marker = nil
}

// bound puts the answer's TTLs between the bounds of what it looks like.
func (c *Cache) bound(q *dns.Query) {
	if q.Answer.Empty() {
		return
	}
	b := &c.bounds[looks(q).queue()]
	q.Answer.BoundTTL(q.Answer.Body(), b.least, b.most)
}

// keep bounds the answer's TTLs, and puts it into the store if it belongs
// there.
func (c *Cache) keep(q *dns.Query, l *look) *entry {
	if !q.Learned || l.below == 0 { // who answers at once is asked again
		c.bound(q)
		return nil
	}
	kind, ttl, ok := judge(q)
	switch {
	case !ok:
		c.bound(q)
		if q.TC || q.Answer.Count[wire.Answers] > 0 {
			c.counted(q).drops.Add(1)
		}
		return nil
	case kind == failure:
		c.bound(q)
	default:
		b := &c.bounds[kind.queue()]
		ttl = min(max(ttl, b.least), b.most)
		most := b.most
		if kind == denial {
			most = ttl // RFC 2308 §5: also that of the SOA record
		}
		q.Answer.BoundTTL(q.Answer.Body(), b.least, most)
	}
	life := time.Duration(ttl) * time.Second
	if kind == failure {
		life = c.failureFor
	}
	if life == 0 || c.bounds[kind.queue()].entries == 0 || c.disabled[kind.queue()].Through(l.key.name) {
		return nil
	}
	e := newEntry(c.scope, &l.key, q, l.replied)
	e.kind, e.stored = kind, c.store.at(time.Now())
	e.ends = e.stored + life
	if kind != failure {
		e.forget = c.staleFor
	}
	c.put(q, e)
	return e
}

// put stores e. A denial is news about the name: it takes the place of the
// records that there were. A failure is none.
func (c *Cache) put(q *dns.Query, e *entry) {
	var beside kindSet
	switch {
	case e.kind == failure:
		beside = 1<<success | 1<<denial
	case e.kind == denial && c.preferPositive && c.staleFor > 0:
		beside = 1 << success
	}
	out, ok := c.store.put(e, beside, e.stored)
	count := c.counted(q)
	for kind, n := range out {
		if n > 0 {
			count.evictions[entryKind(kind).queue()].Add(uint64(n))
		}
	}
	if !ok && e.kind != failure {
		count.drops.Add(1)
	}
}
