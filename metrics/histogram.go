package metrics

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"sync/atomic"
)

// A Histogram counts integers by size: bytes, or nanoseconds that are written as seconds.
type Histogram struct {
	registry *Registry // nil if it has no cells in shards
	cell     int
	bounds   []float64 // upper, inclusive, ascending; one more bucket is above the last
	limits   []uint64  // bounds in units
	unit     float64
	shared   []atomic.Uint64 // the buckets and the sum, of values without a shard
}

// Histogram returns the histogram with that name and labels. It creates the
// histogram at the first call. unit is the value of 1: 1e-9 for nanoseconds if
// bounds are in seconds. bounds ascend, are whole numbers of units, and must not be
// changed by the caller.
func (r *Registry) Histogram(name, help string, unit float64, bounds []float64, labels ...string) *Histogram {
	return getOrMake(r, name, help, "histogram", labels, func() *Histogram { return newHistogram(unit, bounds) })
}

// ShardedHistogram is like Histogram for values that are counted in shards.
func (r *Registry) ShardedHistogram(name, help string, unit float64, bounds []float64, labels ...string) *Histogram {
	return getOrMake(r, name, help, "histogram", labels, func() *Histogram {
		h := newHistogram(unit, bounds)
		h.registry, h.cell = r, r.place(len(h.shared))
		return h
	})
}

func newHistogram(unit float64, bounds []float64) *Histogram {
	h := &Histogram{bounds: bounds, unit: unit, shared: make([]atomic.Uint64, len(bounds)+2)}
	for _, b := range bounds {
		h.limits = append(h.limits, uint64(math.Round(b/unit)))
	}
	return h
}

// Doubled returns n bounds, each twice the one before.
func Doubled(first float64, n int) (bounds []float64) {
	for b := first; len(bounds) < n; b *= 2 {
		bounds = append(bounds, b)
	}
	return bounds
}

// Observe counts one value in shard s, whose lock the caller holds. With nil it is
// like Add. Only the first use of a shard allocates.
func (h *Histogram) Observe(s *Shard, units uint64) {
	if !h.registry.owns(s) {
		h.Add(units, 1)
		return
	}
	sum := h.cell + len(h.limits) + 1
	s.use(sum)
	s.cells[h.cell+h.bucket(units)]++
	s.cells[sum] += units
}

// Add counts n equal values. It is safe for concurrent use and does not allocate.
func (h *Histogram) Add(units, n uint64) {
	h.shared[h.bucket(units)].Add(n)
	h.shared[len(h.limits)+1].Add(units * n)
}

func (h *Histogram) bucket(units uint64) int {
	i := 0
	for i < len(h.limits) && units > h.limits[i] {
		i++
	}
	return i
}

func (h *Histogram) writeText(w io.Writer, name, labels string, t totals, bound func(float64) string) {
	counts := make([]uint64, len(h.shared))
	for i := range counts {
		counts[i] = h.shared[i].Load()
		if h.registry != nil {
			counts[i] += t.at(h.cell + i)
		}
	}
	sum := len(h.limits) + 1
	// A product would have an error of rounding: 7 ms as 0.007000000000000001 s.
	value := float64(counts[sum]) / math.Round(1/h.unit)
	Distribution{h.bounds, counts[:sum], value}.writeText(w, name, labels, bound)
}

// writeText writes the lines of a histogram. In the text format each bucket includes
// the smaller ones.
func (d Distribution) writeText(w io.Writer, name, labels string, bound func(float64) string) {
	total := uint64(0)
	for i, n := range d.Counts {
		le := "+Inf"
		if i < len(d.Bounds) {
			le = bound(d.Bounds[i])
		}
		total += n
		fmt.Fprintf(w, "%s_bucket%s %d\n", name, with(labels, "le", le), total)
	}
	fmt.Fprintf(w, "%s_sum%s %s\n%s_count%s %d\n", name, labels, format(d.Sum), name, labels, total)
}

// with adds a label to rendered labels.
func with(labels, name, value string) string {
	if labels == "" {
		labels = "{"
	} else {
		labels = strings.TrimSuffix(labels, "}") + ","
	}
	return labels + name + `="` + value + `"}`
}

func format(v float64) string {
	switch {
	case math.IsInf(v, 1):
		return "+Inf"
	case math.IsInf(v, -1):
		return "-Inf"
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}
