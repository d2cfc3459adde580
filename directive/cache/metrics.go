package cache

import (
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
)

// series are the metrics of one server address.
type series struct {
	server                         string
	misses, prefetch, drops, stale *metrics.Counter
	hits, evictions                [2]*metrics.Counter // by queue
}

// seriesOf returns the series of q's server address.
func (c *Cache) seriesOf(q *dns.Query) *series { return c.findSeries(q.Chain().Server) }

// findSeries returns the series of a server address; nil if there is none. A
// server block has few addresses.
func (c *Cache) findSeries(server string) *series {
	for _, s := range c.series {
		if s.server == server {
			return s
		}
	}
	return nil
}

// BindChain registers the metrics of the chain's server address, unless they are
// registered. c itself serves in every chain.
func (c *Cache) BindChain(chain *dns.Chain) any {
	server := chain.Server
	if c.findSeries(server) != nil {
		return c
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
		prefetch: counter("coredns_cache_prefetch_total", "Counter of entries refreshed while no client waited."),
		drops: counter("coredns_cache_drops_total", "Counter of answers not stored because they were truncated, "+
			"too large or had records that do not belong to the query."),
		stale: counter("coredns_cache_served_stale_total", "Counter of queries answered from an expired entry."),
	}
	for i, kind := range [...]string{"success", "denial"} {
		s.hits[i] = counter("coredns_cache_hits_total", "Counter of queries answered from the cache.", "type", kind)
		s.evictions[i] = counter("coredns_cache_evictions_total", "Counter of entries evicted to make room.",
			"type", kind)
		c.drops = append(c.drops, c.metrics.TemporaryGauge("coredns_cache_entries", "Number of entries in the cache.",
			func() float64 { return float64(c.store.entries(c.scope, i)) },
			labels("type", kind)...))
	}
	c.metrics.CounterFunc("coredns_cache_requests_total", "Counter of queries looked up in the cache.",
		func() float64 { return float64(s.misses.Value() + s.hits[0].Value() + s.hits[1].Value()) },
		labels()...)

	c.series = append(c.series, s)
	return c
}

// Statistics returns the capacity for entries of both kinds, and the number of
// entries inserted and evicted since the server block's scope was created. A
// reload that keeps the entries keeps the numbers. Statistics takes the store's
// lock.
func (c *Cache) Statistics() (capacity int, inserted, evicted uint64) {
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	return c.bounds[0].entries + c.bounds[1].entries, c.scope.inserted, c.scope.evicted
}

// Stop removes the gauges, which belong to this plan.
func (c *Cache) Stop() {
	for _, drop := range c.drops {
		drop()
	}
}
