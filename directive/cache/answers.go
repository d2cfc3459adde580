package cache

import (
	"iter"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/wire"
)

// Scope identifies the answers of the server block: those of a block with the same scope are the same.
func (c *Cache) Scope() any { return c.scope }

// Answers yields the answers that the server block has stored, in no particular order.
// Answers that are stored or removed meanwhile may be missing.
func (c *Cache) Answers(yield func(config.CachedAnswer) bool) {
	now := c.store.clock(time.Now())
	for e := range c.entries() {
		if now > e.expires+e.staleFor() {
			continue
		}
		a := config.CachedAnswer{
			Name: wire.Name(e.name()), Type: e.t, RCode: e.rcode,
			Records: int(e.count[0]) + int(e.count[1]) + int(e.count[2]),
			Size:    e.size(), Age: now - e.stored(), Left: e.expires - now,
		}
		if !yield(a) {
			return
		}
	}
}

// entries yields the entries of the server block, in no particular order. An entry may be removed
// while it is yielded.
func (c *Cache) entries() iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		for i := range c.store.table {
			for e := c.store.table[i].Load(); e != nil; {
				next := e.next.Load()
				if e.scope == c.scope && !yield(e) {
					return
				}
				e = next
			}
		}
	}
}

// Flush removes the answers of the server block for a name and all names below it. It
// returns their number.
func (c *Cache) Flush(name wire.Name) (n int) {
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	for e := range c.entries() {
		if wire.Within(e.name(), name) {
			c.store.generations.Begin(e.key().generation())
			c.store.remove(e)
			c.store.generations.End(e.key().generation())
			n++
		}
	}
	return n
}
