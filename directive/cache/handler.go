package cache

import (
	"context"
	"errors"
	"time"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// A passage is what is kept of each query on its way down: that it concerns the
// directive, and the flags of its key, since header, below, may change the
// query's. If those below answer at once that is all. One passage is enough for
// all queries with the same flags.
type passage struct{ flags uint16 }

// The flags of a key.
const (
	flagRD uint16 = 1 << iota
	flagCD
	flagDO
	allFlags = iota
)

// passages are by flags.
type passages [1 << allFlags]passage

func newPassages() (all passages) {
	for i := range all {
		all[i].flags = uint16(i)
	}
	return all
}

// of gives q's.
func (all *passages) of(q *dns.Query) *passage {
	flags := uint16(0)
	if q.Flags&wire.FlagRD != 0 {
		flags = flagRD
	}
	if q.Flags&wire.FlagCD != 0 {
		flags |= flagCD
	}
	if q.DO {
		flags |= flagDO
	}
	return &all[flags]
}

// A look is what is kept of a query that those below cannot answer at once: its
// key, and what is to become of it.
type look struct {
	key
	name    [wire.MaxName]byte
	options [maxOptions]byte
	replied int  // bytes of the reply's options that were there before
	below   int  // how many steps below they stand who would wait
	joined  bool // the next word is ours
	now     time.Duration
	entry   *entry // what there is
	stale   bool   // it has ended
	marker  *entry // of the flight that it leads
}

// begin looks for what q asks of the one who stands below steps further down.
// It is nil if nothing of the kind is kept.
func (c *Cache) begin(q *dns.Query, p *passage, below int) *look {
	if c.never(q) {
		return nil
	}
	l, ok := c.spare.Get().(*look)
	if !ok {
		l = new(look)
	}
	l.replied, l.below, l.joined = len(q.ReplyOptions()), below, false
	l.entry, l.stale, l.marker = nil, false, nil
	if !l.read(q, p.flags, &l.name, &l.options) {
		c.spare.Put(l)
		return nil
	}
	way, step := c.ways.of(q, below)
	l.place(c.store, c.scope, way, step)
	l.now = c.store.at(q.Now())
	q.SetState(c.word, l)
	return l
}

// end takes l from q.
func (c *Cache) end(q *dns.Query, l *look) {
	q.SetState(c.word, nil)
	l.entry, l.marker = nil, nil
	c.spare.Put(l)
}

// AnyClass says that queries of every class are looked up, too; those who may
// answer them stand below.
func (*Cache) AnyClass() bool { return false }

// ServeDNS lets those below have the first word: what this server knows by
// itself is as cheap as an entry, and always current. It is called again if
// they would wait, and then answers with what there is.
func (c *Cache) ServeDNS(q *dns.Query) dns.Verdict {
	if l, ok := q.State(c.word).(*look); ok && l.joined {
		return c.serve(q, l)
	}
	if c.everywhere || c.concerns(q) {
		q.SetState(c.word, c.passages.of(q))
	}
	return dns.Next
}

// JoinDNS is called when those below would wait: it takes q if there is an
// entry or a flight for it, and else lets q lead one.
func (c *Cache) JoinDNS(q *dns.Query, below int) bool {
	p, ok := q.State(c.word).(*passage)
	if !ok {
		return false // it is not for us, or leads a flight
	}
	if q.IsLoop() {
		return false // whoever asks this may lead its flight
	}
	l := c.begin(q, p, below)
	if l == nil {
		return false
	}
	f := c.store.find(c.scope, &l.key)
	if l.entry, l.stale = c.choose(&f, l.now); l.entry == nil {
		c.counted(q).misses.Add(1)
		if f.flight == nil {
			_, l.marker = c.store.lead(c.scope, &l.key, q.Proto)
		}
	}
	l.joined = l.marker == nil
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
	q.Answer.ClampTTL(q.Answer.RecordsOffset(), c.staleTTL, c.staleTTL)
	code := wire.EDEStale
	if e.rcode == wire.NXDomain {
		code = wire.EDEStaleNX
	}
	q.AddExtendedError(code, "")
}

// FinishDNS bounds the answer's TTLs, keeps it if it is another server's, and
// lets those go that wait for it.
func (c *Cache) FinishDNS(q *dns.Query) {
	switch state := q.State(c.word).(type) {
	case *passage:
		if q.Err != nil && !q.Cacheable && c.rescue(q, state) {
			q.SetState(c.word, ofMemory)
			return
		}
		c.counted(q).misses.Add(1)
		c.bound(q)
	case *look:
		c.settle(q, state)
		c.end(q, state)
	}
}

// rescue answers with an entry of those who would have waited, had they not
// refused at once: forward's max_concurrent is no bound for what is kept.
func (c *Cache) rescue(q *dns.Query, p *passage) bool {
	if q.AnsweredStep() <= c.step {
		return false
	}
	l := c.begin(q, p, q.AnsweredStep()-c.step)
	if l == nil {
		return false
	}
	defer c.end(q, l)
	f := c.store.find(c.scope, &l.key)
	e, stale := c.choose(&f, l.now)
	switch {
	case e == nil:
		return false
	case stale:
		c.hitStale(q, e)
	default:
		c.hit(q, e, l.now)
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
	case q.Cacheable && e == nil:
		e = newEntry(c.scope, &l.key, q, l.replied)
		e.stored = c.store.at(time.Now())
	case q.Cacheable:
	case q.RCode != wire.ServFail && q.AnsweredStep() >= 0:
		alone = true // this server's own: it is cheap to look up
	case q.RCode == wire.ServFail && q.Err != nil && !errors.Is(q.Err, dns.ErrParkingFull) && !errors.Is(q.Err, context.Canceled):
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
	q.Answer.ClampTTL(q.Answer.RecordsOffset(), b.least, b.most)
}

// keep bounds the answer's TTLs, and puts it into the store if it belongs
// there.
func (c *Cache) keep(q *dns.Query, l *look) *entry {
	if !q.Cacheable {
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
		q.Answer.ClampTTL(q.Answer.RecordsOffset(), b.least, most)
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
