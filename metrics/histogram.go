package metrics

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"sync/atomic"
)

// A Histogram counts values by size. Observe is safe for concurrent use and does not
// allocate.
type Histogram struct {
	bounds []float64 // upper, inclusive, ascending; counts has one more bucket, above the last
	counts []atomic.Uint64
	sum    atomic.Uint64 // bits of a float64
}

// Observe counts one value.
func (h *Histogram) Observe(v float64) {
	i := 0
	for i < len(h.bounds) && v > h.bounds[i] {
		i++
	}
	h.counts[i].Add(1)
	for {
		old := h.sum.Load()
		if h.sum.CompareAndSwap(old, math.Float64bits(math.Float64frombits(old)+v)) {
			return
		}
	}
}

// Count returns the number of observed values.
func (h *Histogram) Count() (n uint64) {
	for i := range h.counts {
		n += h.counts[i].Load()
	}
	return n
}

// Sum returns the sum of the observed values.
func (h *Histogram) Sum() float64 { return math.Float64frombits(h.sum.Load()) }

// Histogram returns the histogram with that name and labels. It creates the
// histogram at the first call, with these upper bounds, which ascend and must not be
// changed by the caller.
func (r *Registry) Histogram(name, help string, bounds []float64, labels ...string) *Histogram {
	return getOrMake(r, name, help, "histogram", labels, func() *Histogram {
		return &Histogram{bounds: bounds, counts: make([]atomic.Uint64, len(bounds)+1)}
	})
}

func (h *Histogram) writeText(w io.Writer, name, labels string, _ totals, bound func(float64) string) {
	counts := make([]uint64, len(h.counts))
	for i := range h.counts {
		counts[i] = h.counts[i].Load()
	}
	Distribution{h.bounds, counts, h.Sum()}.writeText(w, name, labels, bound)
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
