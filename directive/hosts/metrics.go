package hosts

import (
	"sync"
	"time"

	"github.com/seamark/seamark/metrics"
)

// counts has the metrics of all tables.
type counts struct {
	mu     sync.Mutex
	tables map[*table]int
	last   time.Time
	drops  []func()
}

func newCounts(reg *metrics.Registry) *counts {
	c := &counts{tables: map[*table]int{}}
	c.drops = []func(){
		reg.TemporaryGauge("coredns_hosts_entries",
			"Number of addresses of names and names of addresses in all hosts directives.", c.entries),
		reg.TemporaryGauge("coredns_hosts_reload_timestamp_seconds",
			"Time at which lines of a hosts directive were last loaded, in Unix seconds.", c.reloaded),
	}
	return c
}

func (c *counts) entries() float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	sum := 0
	for _, n := range c.tables {
		sum += n
	}
	return float64(sum)
}

func (c *counts) reloaded() float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return float64(c.last.UnixMilli()) / 1000
}

func (c *counts) set(t *table, entries int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tables[t], c.last = entries, time.Now()
}

func (c *counts) drop(t *table) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.tables, t)
}

// Stop removes the metrics.
func (c *counts) Stop() {
	for _, drop := range c.drops {
		drop()
	}
}
