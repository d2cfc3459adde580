// Package metrics keeps counters, gauges and histograms by name and labels, and
// writes them in the text format of Prometheus or OpenMetrics. A directive gets
// its series from a Registry when it is set up and keeps the pointers, so that a query
// looks up no series.
package metrics

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/seamark/seamark/sys/order"
)

// A Registry holds the series of one server. The same name and labels always return
// the same series, so counters continue over a reload.
type Registry struct {
	mu       sync.Mutex
	families map[string]*family
	shards   []*Shard
	gone     []uint64 // by cell: the counts of removed shards
	cells    int      // the number of cells of a shard
}

type family struct {
	help, kind string
	series     map[string]any // by rendered labels: *Counter, gauges or a writer
}

// gauges are the functions that were registered for a series; the last one returns its value, unless
// it combines it with those of the others.
type gauges []*gauge

type gauge struct {
	value   func() float64
	combine func(a, b float64) float64 // may be nil
}

func (g gauges) value() float64 {
	last := g[len(g)-1]
	v := last.value()
	if last.combine != nil {
		for _, other := range g[:len(g)-1] {
			v = last.combine(v, other.value())
		}
	}
	return v
}

// A writer is a series of several lines. bound returns a number as the value of a label.
type writer interface {
	writeText(w io.Writer, name, labels string, t totals, bound func(float64) string)
}

// A Counter only grows. Add is safe for concurrent use.
type Counter struct {
	n        atomic.Uint64
	registry *Registry // nil if it has no cell in shards
	cell     int
}

// Add adds n.
func (c *Counter) Add(n uint64) { c.n.Add(n) }

// Value returns the count. It takes the lock of each shard, so the caller must not
// hold one.
func (c *Counter) Value() uint64 {
	n := c.n.Load()
	if c.registry != nil {
		n += c.registry.totals().at(c.cell)
	}
	return n
}

// Counter returns the counter with that name and labels (pairs of name and value).
// It creates the counter at the first call.
func (r *Registry) Counter(name, help string, labels ...string) *Counter {
	return getOrMake(r, name, help, "counter", labels, func() *Counter {
		return &Counter{registry: r, cell: r.place(1)}
	})
}

// getOrMake returns the series with that name and labels. It stores the result of
// create if the series does not exist yet.
func getOrMake[S any](r *Registry, name, help, kind string, labels []string, create func() S) S {
	r.mu.Lock()
	defer r.mu.Unlock()
	series, key := r.family(name, help, kind).series, render(labels)
	s, ok := series[key].(S)
	if !ok {
		s = create()
		series[key] = s
	}
	return s
}

// set replaces the series with that name and labels.
func (r *Registry) set(name, help, kind string, labels []string, series any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.family(name, help, kind).series[render(labels)] = series
}

// Gauge makes value the function that returns the value of the series with that name
// and labels, in place of earlier ones. It is called at each scrape, from any
// goroutine.
func (r *Registry) Gauge(name, help string, value func() float64, labels ...string) {
	r.set(name, help, "gauge", labels, gauges{{value: value}})
}

// CounterFunc is like Gauge for a value that only grows.
func (r *Registry) CounterFunc(name, help string, value func() float64, labels ...string) {
	r.set(name, help, "counter", labels, gauges{{value: value}})
}

// TemporaryGauge is like Gauge until drop is called; then the function before it is
// used again, unless it was dropped, too. In a reload the new plan registers its
// gauges before the old plan drops its own, or before it fails and drops them.
func (r *Registry) TemporaryGauge(name, help string, value func() float64, labels ...string) (drop func()) {
	return r.SharedGauge(name, help, nil, value, labels...)
}

// SharedGauge is like TemporaryGauge for a series that several parts of a server have at the same
// time, such as two clusters: its value combines those of all of them.
func (r *Registry) SharedGauge(
	name, help string, combine func(a, b float64) float64, value func() float64, labels ...string,
) (drop func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	series, key, own := r.family(name, help, "gauge").series, render(labels), &gauge{value, combine}
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

// Sum is a function for SharedGauge.
func Sum(a, b float64) float64 { return a + b }

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

// WriteText writes all series in the Prometheus text format 0.0.4, sorted by name
// and labels.
func (r *Registry) WriteText(w io.Writer) error { return r.write(w, false, everyFamily) }

// WriteOpenMetrics writes all series in the text format of OpenMetrics 1.0.0. Counters whose
// names do not end with _total, as of kube-dns's sidecar, have the type unknown there.
func (r *Registry) WriteOpenMetrics(w io.Writer) error { return r.write(w, true, everyFamily) }

func everyFamily(string) bool { return true }

func (r *Registry) write(w io.Writer, open bool, selects func(family string) bool) error {
	blocks, totals := r.blocks(selects), r.totals()

	out := bufio.NewWriter(w)
	for _, b := range blocks {
		if len(b.lines) > 0 {
			b.write(out, open, totals)
		}
	}
	if open {
		fmt.Fprintln(out, "# EOF")
	}
	return out.Flush()
}

// A block has the series of a family at one moment.
type block struct {
	name, help, kind string
	lines            []line
}

type line struct {
	labels string
	value  any
}

// blocks returns the selected families, sorted by name. Gauges may use the registry, so their functions
// are called without its lock.
func (r *Registry) blocks(selects func(family string) bool) (blocks []block) {
	r.mu.Lock()
	defer r.mu.Unlock()

	for _, name := range slices.Sorted(maps.Keys(r.families)) {
		if !selects(name) {
			continue
		}
		f := r.families[name]
		b := block{name, f.help, f.kind, nil}
		for labels, v := range f.series {
			b.lines = append(b.lines, line{labels, v})
		}
		blocks = append(blocks, b)
	}
	return blocks
}

// What a line of help and the value of a label escape. A Replacer is made once: making it costs more
// than a page's replacements.
var (
	helpEscapes  = strings.NewReplacer("\\", `\\`, "\n", `\n`)
	labelEscapes = strings.NewReplacer("\\", `\\`, "\n", `\n`, `"`, `\"`)
)

// write writes the series, sorted by labels.
func (b *block) write(out io.Writer, open bool, t totals) {
	name, kind, bound := b.name, b.kind, format
	help := helpEscapes.Replace(b.help)
	if open {
		name, kind = openFamily(name, kind)
		help = strings.ReplaceAll(help, `"`, `\"`)
		bound = openBound
	}
	fmt.Fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)

	order.Slice(b.lines, func(x, y line) int { return cmp.Compare(x.labels, y.labels) })
	for _, l := range b.lines {
		switch v := l.value.(type) {
		case *Counter:
			fmt.Fprintf(out, "%s%s %d\n", b.name, l.labels, v.n.Load()+t.at(v.cell))
		case gauges:
			fmt.Fprintf(out, "%s%s %s\n", b.name, l.labels, format(v.value()))
		case writer:
			v.writeText(out, b.name, l.labels, t, bound)
		}
	}
}

// openFamily returns the name and the type of a family in OpenMetrics.
func openFamily(name, kind string) (string, string) {
	if kind != "counter" {
		return name, kind
	}
	if short, ok := strings.CutSuffix(name, "_total"); ok {
		return short, kind
	}
	return name, "unknown"
}

// openBound returns the canonical form of a number in a label, as OpenMetrics wants it: 1.0.
func openBound(v float64) string {
	s := format(v)
	if math.IsInf(v, 0) || strings.ContainsAny(s, ".e") {
		return s
	}
	return s + ".0"
}

// render returns pairs as {a="b",c="d"}, in the given order.
func render(labels []string) string {
	if len(labels) == 0 {
		return ""
	}
	var b strings.Builder
	for i := 0; i+1 < len(labels); i += 2 {
		b.WriteByte("{,"[min(i, 1)])
		b.WriteString(labels[i] + `="` + labelEscapes.Replace(labels[i+1]) + `"`)
	}
	return b.String() + "}"
}
