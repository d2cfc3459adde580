// Package metrics keeps counters, gauges and histograms by name and labels and writes them
// in the Prometheus text format. Everything that counts asks a Registry for
// its series once, when it is planned, and keeps the pointer; a query never
// looks a series up. It uses the standard library alone and imports nothing of
// ours.
package metrics

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// A Registry holds the series of one server. The same name and labels always
// give the same series, so counters survive a reload.
type Registry struct {
	mu       sync.Mutex
	families map[string]*family
	shards   []*Shard
	gone     []uint64 // what shards had counted that have been dropped
	cells    int      // that each shard may have
}

type family struct {
	help, kind string
	series     map[string]any // by rendered labels: *Counter, gauges or a writer
}

// gauges are what gives a series its readings: the last one does.
type gauges []*gauge

type gauge struct{ value func() float64 }

// A writer is a series of several lines.
type writer interface {
	writeText(w io.Writer, name, labels string, t totals)
}

// A Counter only grows. Add is safe from any goroutine.
type Counter struct {
	n    atomic.Uint64
	of   *Registry // nil: it has no cell in shards
	cell int
}

// Add counts n more.
func (c *Counter) Add(n uint64) { c.n.Add(n) }

// Value is what has been counted so far. It takes the lock of each shard: whoever
// holds one must not ask.
func (c *Counter) Value() uint64 {
	n := c.n.Load()
	if c.of != nil {
		n += c.of.totals().at(c.cell)
	}
	return n
}

// Counter gives the counter of that name and labels (pairs of name and value),
// and makes it at the first call.
func (r *Registry) Counter(name, help string, labels ...string) *Counter {
	r.mu.Lock()
	defer r.mu.Unlock()
	series := r.family(name, help, "counter").series
	key := render(labels)
	c, ok := series[key].(*Counter)
	if !ok {
		c = &Counter{of: r, cell: r.place(1)}
		series[key] = c
	}
	return c
}

// Gauge makes value the reading of that name and labels, in place of whatever
// gave it before. It is called at each scrape, from any goroutine.
func (r *Registry) Gauge(name, help string, value func() float64, labels ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.family(name, help, "gauge").series[render(labels)] = gauges{{value}}
}

// TemporaryGauge is Gauge for what may end: when drop is called the reading is
// again that of the one before, unless that has been dropped too. A reload
// starts the new before it ends the old, or gives the new up.
func (r *Registry) TemporaryGauge(name, help string, value func() float64, labels ...string) (drop func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	series, key, own := r.family(name, help, "gauge").series, render(labels), &gauge{value}
	before, _ := series[key].(gauges)
	series[key] = append(slices.Clone(before), own)
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		now, _ := series[key].(gauges)
		left := slices.DeleteFunc(slices.Clone(now), func(g *gauge) bool { return g == own })
		if len(left) == 0 {
			delete(series, key)
		} else {
			series[key] = left
		}
	}
}

func (r *Registry) family(name, help, kind string) *family {
	if r.families == nil {
		r.families = map[string]*family{}
	}
	f := r.families[name]
	if f == nil {
		f = &family{help, kind, map[string]any{}}
		r.families[name] = f
	}
	return f
}

// WriteText writes every series in the Prometheus text format 0.0.4, sorted by
// name and labels.
func (r *Registry) WriteText(w io.Writer) error {
	type line struct {
		labels string
		value  any
	}
	type block struct {
		name, help, kind string
		lines            []line
	}
	r.mu.Lock()
	var blocks []block
	for _, name := range slices.Sorted(maps.Keys(r.families)) {
		f := r.families[name]
		b := block{name, f.help, f.kind, nil}
		for labels, v := range f.series {
			b.lines = append(b.lines, line{labels, v})
		}
		blocks = append(blocks, b)
	}
	r.mu.Unlock() // gauges are called without it: they may ask for series themselves

	totals := r.totals()
	out := bufio.NewWriter(w)
	for _, b := range blocks {
		if len(b.lines) == 0 {
			continue
		}
		slices.SortFunc(b.lines, func(x, y line) int { return cmp.Compare(x.labels, y.labels) })
		fmt.Fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", b.name, strings.NewReplacer("\\", `\\`, "\n", `\n`).Replace(b.help), b.name, b.kind)
		for _, l := range b.lines {
			switch v := l.value.(type) {
			case *Counter:
				fmt.Fprintf(out, "%s%s %d\n", b.name, l.labels, v.n.Load()+totals.at(v.cell))
			case gauges:
				fmt.Fprintf(out, "%s%s %s\n", b.name, l.labels, format(v[len(v)-1].value()))
			case writer:
				v.writeText(out, b.name, l.labels, totals)
			}
		}
	}
	return out.Flush()
}

// render writes pairs as {a="b",c="d"}, in the order given.
func render(labels []string) string {
	if len(labels) == 0 {
		return ""
	}
	var b strings.Builder
	escape := strings.NewReplacer("\\", `\\`, "\n", `\n`, `"`, `\"`)
	for i := 0; i+1 < len(labels); i += 2 {
		b.WriteByte("{,"[min(i, 1)])
		b.WriteString(labels[i] + `="` + escape.Replace(labels[i+1]) + `"`)
	}
	return b.String() + "}"
}
