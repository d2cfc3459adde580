package cache

import (
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
)

// A series is what is counted for one server address.
type series struct {
	server                         string
	misses, prefetch, drops, stale *metrics.Counter
	hits, evictions                [2]*metrics.Counter // success; denial
}

// counted gives the series for q's chain. There are few: one for each address
// that the server block is reached at.
func (c *Cache) counted(q *dns.Query) *series { return c.seriesOf(q.Chain().Server) }

func (c *Cache) seriesOf(server string) *series {
	for _, s := range c.series {
		if s.server == server {
			return s
		}
	}
	return nil
}

// count makes the series of a chain's server, unless there is one.
func (c *Cache) count(chain *dns.Chain) {
	server := chain.Server
	if c.seriesOf(server) != nil {
		return
	}
	labels := func(kind ...string) []string {
		return append(append([]string{"server", server}, kind...), "zones", c.label, "view", c.view)
	}
	counter := func(name, help string, kind ...string) *metrics.Counter {
		return c.metrics.Counter(name, help, labels(kind...)...)
	}
	s := &series{
		server:   server,
		misses:   counter("coredns_cache_misses_total", "Counter of queries that were not answered from the cache."),
		prefetch: counter("coredns_cache_prefetch_total", "Counter of entries that were asked for anew while no client waited."),
		drops:    counter("coredns_cache_drops_total", "Counter of answers that were not kept because they are cut off, too large or not about the question."),
		stale:    counter("coredns_cache_served_stale_total", "Counter of queries that were answered with an entry after its end."),
	}
	for i, kind := range [...]string{"success", "denial"} {
		s.hits[i] = counter("coredns_cache_hits_total", "Counter of queries that were answered from the cache.", "type", kind)
		s.evictions[i] = counter("coredns_cache_evictions_total", "Counter of entries that had to make room for others.", "type", kind)
		drop := c.metrics.TemporaryGauge("coredns_cache_entries", "Number of entries in the cache.",
			func() float64 { return float64(c.store.entries(c.scope, i)) },
			labels("type", kind)...)
		c.drops = append(c.drops, drop)
	}
	// Each is either a hit or a miss, and need not be counted twice.
	c.metrics.CounterFunc("coredns_cache_requests_total", "Counter of queries that the cache has looked up.", func() float64 {
		return float64(s.misses.Value() + s.hits[0].Value() + s.hits[1].Value())
	}, labels()...)
	c.series = append(c.series, s)
}

// Stop takes back the gauges, which are about this plan.
func (c *Cache) Stop() {
	for _, drop := range c.drops {
		drop()
	}
}
