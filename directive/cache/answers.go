package cache

import (
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/wire"
)

// Answers yields the answers that the server block has stored, in no particular order.
// Answers that are stored or removed meanwhile may be missing.
func (c *Cache) Answers(yield func(config.CachedAnswer) bool) {
	now := c.store.clock(time.Now())
	for i := range c.store.table {
		for e := c.store.table[i].Load(); e != nil; e = e.next.Load() {
			if e.scope != c.scope || now > e.expires+e.staleFor {
				continue
			}
			a := config.CachedAnswer{
				Name: wire.Name(e.name()), Type: e.t, RCode: e.rcode, Records: int(e.count[0]) + int(e.count[1]) + int(e.count[2]),
				Size: e.size(), Age: now - e.stored, Left: e.expires - now,
			}
			if !yield(a) {
				return
			}
		}
	}
}

// Flush removes the answers of the server block for a name and all names below it. It
// returns their number.
func (c *Cache) Flush(name wire.Name) (n int) {
	st := c.store
	st.mu.Lock()
	defer st.mu.Unlock()
	for i := range st.table {
		for e := st.table[i].Load(); e != nil; {
			next := e.next.Load()
			if e.scope == c.scope && wire.Name(e.name()).Within(name) {
				st.remove(e)
				n++
			}
			e = next
		}
	}
	return n
}
