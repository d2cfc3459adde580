package hosts

import (
	"math"
	"strings"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/metrics"
)

// counts has the metrics of all tables.
type counts struct {
	registry *metrics.Registry
	loaded   atomic.Int64 // in milliseconds, by the table that was last
	drop     func()
}

func newCounts(reg *metrics.Registry) *counts {
	c := &counts{registry: reg}
	c.drop = reg.TemporaryGauge("coredns_hosts_reload_timestamp_seconds",
		"Time at which lines of a hosts directive were last loaded, in Unix seconds.",
		func() float64 { return float64(c.loaded.Load()) / 1000 })
	return c
}

// add adds the number of a table's entries until drop is called. Of several tables with the same
// files, such as before and after a reload, the metric has the largest.
func (c *counts) add(t *table) (drop func()) {
	return c.registry.SharedGauge("coredns_hosts_entries",
		"Number of addresses of names and names of addresses in a hosts directive, with those of the Corefile.",
		math.Max, func() float64 { return float64(t.index.Load().entries) }, "hostsfile", strings.Join(t.paths, " "))
}

// update records that a table has loaded its lines.
func (c *counts) update() { c.loaded.Store(time.Now().UnixMilli()) }

// Stop removes the metrics.
func (c *counts) Stop() { c.drop() }
