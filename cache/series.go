package cache

import (
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
)

// A series is what is counted for one server address.
type series struct {
	server                                   string
	requests, misses, prefetch, drops, stale *metrics.Counter
	hits, evictions                          [2]*metrics.Counter // success; denial
}

// counted gives the series for q's chain. There are few: one for each address
// that the server block is reached at.
func (c *Cache) counted(q *dns.Query) *series {
	server := q.Chain().Server
	if all := c.series.Load(); all != nil {
		for _, s := range *all {
			if s.server == server {
				return s
			}
		}
	}
	return c.count(server)
}

// count makes the series of a server, once.
func (c *Cache) count(server string) *series {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []*series
	if before := c.series.Load(); before != nil {
		all = append(all, *before...)
	}
	for _, s := range all {
		if s.server == server {
			return s
		}
	}
	counter := func(name, help string, kind ...string) *metrics.Counter {
		labels := append([]string{"server", server}, kind...)
		return c.metrics.Counter(name, help, append(labels, "zones", c.label, "view", c.view)...)
	}
	s := &series{
		server:   server,
		requests: counter("coredns_cache_requests_total", "Counter of queries that the cache has looked up."),
		misses:   counter("coredns_cache_misses_total", "Counter of queries that were not answered from the cache."),
		prefetch: counter("coredns_cache_prefetch_total", "Counter of entries that were asked for anew while no client waited."),
		drops:    counter("coredns_cache_drops_total", "Counter of answers that were not kept because they are cut off, too large or not about the question."),
		stale:    counter("coredns_cache_served_stale_total", "Counter of queries that were answered with an entry after its end."),
	}
	for i, kind := range [...]string{"success", "denial"} {
		s.hits[i] = counter("coredns_cache_hits_total", "Counter of queries that were answered from the cache.", "type", kind)
		s.evictions[i] = counter("coredns_cache_evictions_total", "Counter of entries that had to make room for others.", "type", kind)
		drop := c.metrics.GaugeUntil("coredns_cache_entries", "Number of entries in the cache.",
			func() float64 { return float64(c.store.entries(c.scope, i)) },
			"server", server, "type", kind, "zones", c.label, "view", c.view)
		c.drops = append(c.drops, drop)
	}
	all = append(all, s)
	c.series.Store(&all)
	return s
}

// Stop takes back the gauges, which are about this plan.
func (c *Cache) Stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, drop := range c.drops {
		drop()
	}
	c.drops = nil
}
