package secondary

import (
	"math"
	"time"

	"github.com/seamark/seamark/metrics"
)

// The alerts of a zone that is not served, and of one whose refreshes fail. Their expressions are the gauges of
// export, and the conditions of report name them.
const alertNotServed, alertNotRefreshed = "SeamarkZoneNotServed", "SeamarkZoneNotRefreshed"

// zoneMetrics are the metrics of a zone in the Corefile. Those of a catalog are of its members, too, which may
// be thousands.
type zoneMetrics struct {
	failures          *metrics.Counter // of refreshes
	full, differences *metrics.Counter // transfers
	drop              []func()
}

// export exports the state of c, and of the members of a catalog, until Stop.
func (c *zoneCopy) export(reg *metrics.Registry, members func() []*zoneCopy) {
	origin := c.origin.String()
	transfers := func(kind string) *metrics.Counter {
		return reg.Counter("seamark_secondary_transfers_total",
			"Counter of new versions that were transferred, the whole zone (AXFR) or differences (IXFR).",
			"zone", origin, "kind", kind)
	}
	m := &zoneMetrics{full: transfers("AXFR"), differences: transfers("IXFR")}
	m.failures = reg.Counter("seamark_secondary_refresh_failures_total",
		"Counter of attempts to refresh a zone in which no primary confirmed or sent a version.", "zone", origin)

	// Two server blocks may have copies of a zone with different options: the worse one counts.
	gauge := func(name, help string, combine func(a, b float64) float64, value func() float64) {
		m.drop = append(m.drop, reg.SharedGauge(name, help, combine, value, "zone", origin))
	}
	count := func(is func(*zoneCopy) bool) func() float64 {
		return func() (n float64) {
			for _, copy := range append(members(), c) {
				if is(copy) {
					n++
				}
			}
			return n
		}
	}
	gauge("seamark_secondary_unserved_zones", "Zones that have expired, or that have not been transferred yet: "+
		"0 or 1, and the members of a catalog.", math.Max, count((*zoneCopy).isUnserved))
	gauge("seamark_secondary_failing_zones", "Zones that are served and whose last refresh has failed: 0 or 1, and "+
		"the members of a catalog.", math.Max, count((*zoneCopy).isFailing))
	gauge("seamark_secondary_serial", "Serial number of the version that is served; 0 if there is none.",
		math.Min, c.serial)
	gauge("seamark_secondary_data_age_seconds", "Time since a primary has confirmed the version, or since the start.",
		math.Max, c.age)
	c.metrics = m
}

// isUnserved reports whether queries get SERVFAIL.
func (c *zoneCopy) isUnserved() bool { return c.current.Load() == nil }

func (c *zoneCopy) isFailing() bool { return !c.isUnserved() && c.failing.Load() }

func (c *zoneCopy) serial() float64 {
	z := c.current.Load()
	if z == nil {
		return 0
	}
	serial, _ := z.Serial()
	return float64(serial)
}

func (c *zoneCopy) age() float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	since := c.checked
	if since.IsZero() {
		since = c.made
	}
	return time.Since(since).Seconds()
}

// transferred counts a new version.
func (m *zoneMetrics) transferred(differences bool) {
	switch {
	case m == nil:
	case differences:
		m.differences.Add(1)
	default:
		m.full.Add(1)
	}
}

// failed counts a refresh that has failed.
func (m *zoneMetrics) failed() {
	if m != nil {
		m.failures.Add(1)
	}
}

// stop removes the gauges.
func (m *zoneMetrics) stop() {
	if m == nil {
		return
	}
	for _, drop := range m.drop {
		drop()
	}
}

// membersOf returns the copies of a catalog's members.
func (m *catalogs) membersOf(c *catalog) (copies []*zoneCopy) {
	for _, has := range m.current.Load().members {
		if has.catalog == c && has.copy != nil {
			copies = append(copies, has.copy)
		}
	}
	return copies
}
