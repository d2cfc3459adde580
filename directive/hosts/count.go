package hosts

import (
	"sync"
	"time"

	"github.com/seamark/seamark/metrics"
)

// A count is the metrics of all tables.
type count struct {
	mu     sync.Mutex
	tables map[*table]int
	last   time.Time
	drops  []func()
}

func newCount(reg *metrics.Registry) *count {
	c := &count{tables: map[*table]int{}}
	c.drops = []func(){
		reg.TemporaryGauge("coredns_hosts_entries", "Addresses of names, and names of addresses, that the hosts directives have.", c.entries),
		reg.TemporaryGauge("coredns_hosts_reload_timestamp_seconds", "When lines of a hosts directive were last taken in.", c.reloaded),
	}
	return c
}

func (c *count) entries() float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	sum := 0
	for _, n := range c.tables {
		sum += n
	}
	return float64(sum)
}

func (c *count) reloaded() float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return float64(c.last.UnixMilli()) / 1000
}

func (c *count) set(t *table, entries int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tables[t], c.last = entries, time.Now()
}

func (c *count) drop(t *table) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.tables, t)
}

// Stop is for config.Keep.
func (c *count) Stop() {
	for _, drop := range c.drops {
		drop()
	}
}
