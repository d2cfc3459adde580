package cache

import (
	"context"
	"time"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/wire"
)

// Resolve waits for a flight, or for the proof that an entry which has ended
// must still do.
func (c *Cache) Resolve(ctx context.Context, q *dns.Query) error {
	l := q.State(c.word).(*look)
	var err error
	asked, from := true, origin(l.below)
	if l.entry != nil {
		asked = c.prove(ctx, q, l.entry)
	} else {
		err = c.wait(ctx, q, l)
	}
	c.end(q, l)
	if asked {
		q.SetState(c.word, from)
	}
	return err
}

// wait takes what the flight brings. If that came to no end, those who wait
// lead one after the other.
func (c *Cache) wait(ctx context.Context, q *dns.Query, l *look) error {
	for {
		f, marker := c.store.lead(c.scope, &l.key, q.Proto)
		if marker != nil {
			if c.landed(q, l) { // between the flight before and this one
				c.store.land(marker, nil, false)
				return nil
			}
			l.marker = marker
			c.ask(ctx, q, l)
			return nil
		}
		select {
		case <-f.done:
		case <-ctx.Done():
			return ctx.Err()
		}
		switch {
		case f.shared(q.Proto):
			f.result.write(q, 0)
			return nil
		case f.alone:
			c.ask(ctx, q, l)
			return nil
		}
	}
}

// ask asks those below. If they panic it is FinishDNS that settles.
func (c *Cache) ask(ctx context.Context, q *dns.Query, l *look) {
	q.Next(ctx)
	c.settle(q, l)
}

// landed answers q if there is an entry by now.
func (c *Cache) landed(q *dns.Query, l *look) bool {
	now := c.store.at(time.Now())
	f := c.store.find(c.scope, &l.key)
	e, stale := c.choose(&f, now)
	if e == nil || stale {
		return false
	}
	c.give(q, e, now)
	return true
}

// prove asks those below before it answers with an entry that has ended. The
// answer is waited for until the option's timeout, and kept whenever it comes. It
// says whether q has that one.
func (c *Cache) prove(ctx context.Context, q *dns.Query, e *entry) (asked bool) {
	f := c.refresh(q, e, nil)
	if f == nil {
		c.hitStale(q, e)
		return false
	}
	if c.verifyWithin > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.verifyWithin)
		defer cancel()
	}
	select {
	case <-f.done:
	case <-ctx.Done():
		c.hitStale(q, e)
		return false
	}
	if r := f.result; f.shared(q.Proto) && (r.rcode == wire.NoError || r.rcode == wire.NXDomain) && !r.tc {
		c.counted(q).misses.Add(1)
		r.write(q, 0)
		return true
	}
	c.hitStale(q, e)
	return false
}

// due says whether e is to be asked for anew: it was asked often, without a
// gap, and is near its end.
func (c *Cache) due(e *entry, now time.Duration) bool {
	if c.prefetch == 0 || e.kind == failure {
		return false
	}
	asked := uint32(1)
	if last := time.Duration(e.last.Swap(int64(now))); e.asked.Load() > 0 && now-last < c.gap {
		asked = e.asked.Add(1)
	} else {
		e.asked.Store(1)
	}
	left, whole := e.ends-now, e.ends-e.stored
	return asked >= c.prefetch && left <= max(whole*time.Duration(c.percent)/100, time.Second) &&
		now >= time.Duration(e.retry.Load())
}

// leastRecheck is how long an entry that could not be had anew is let alone:
// each query would ask otherwise.
const leastRecheck = time.Second

// refresh asks those below once more for what e says, unless somebody does
// already, and gives the flight. It is nil if too many queries are waiting.
func (c *Cache) refresh(q *dns.Query, e *entry, count *metrics.Counter) *flight {
	f, marker := c.store.lead(c.scope, &e.key, q.Proto)
	if marker == nil {
		return f
	}
	began := q.Requery(func(ctx context.Context, again *dns.Query) {
		l := &look{key: e.key, marker: marker}
		// Whatever happens below: nobody waits for ever.
		defer func() {
			if l.marker != nil {
				c.store.land(l.marker, nil, false)
			}
		}()
		again.Next(ctx)
		// If something new has come nobody looks at e any more.
		e.retry.Store(int64(c.store.at(time.Now()) + max(c.recheck, leastRecheck)))
		c.settle(again, l)
	})
	if !began {
		c.store.land(marker, nil, false)
		return nil
	}
	if count != nil {
		count.Add(1)
	}
	return f
}
