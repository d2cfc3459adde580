package metrics

import (
	"fmt"
	"io"
)

// A Distribution is the state of a histogram that is kept elsewhere. Counts[i] is
// the number of values at most as large as Bounds[i] and larger than the bound
// before; the last element of Counts is the number of values above all bounds.
// Bounds ascend.
type Distribution struct {
	Bounds []float64
	Counts []uint64
	Sum    float64 // of all values
}

// Quantiles is the state of a summary that is kept elsewhere. Values[i] is the
// quantile Shares[i].
type Quantiles struct {
	Shares, Values []float64 // of one length
	Sum            float64   // of all values
	Count          uint64
}

type (
	distributions struct{ read func() Distribution }
	summaries     struct{ read func() Quantiles }
)

// HistogramFunc is like Gauge for a histogram.
func (r *Registry) HistogramFunc(name, help string, read func() Distribution, labels ...string) {
	r.set(name, help, "histogram", labels, distributions{read})
}

// SummaryFunc is like Gauge for a summary.
func (r *Registry) SummaryFunc(name, help string, read func() Quantiles, labels ...string) {
	r.set(name, help, "summary", labels, summaries{read})
}

func (d distributions) writeText(w io.Writer, name, labels string, _ totals, bound func(float64) string) {
	d.read().writeText(w, name, labels, bound)
}

func (s summaries) writeText(w io.Writer, name, labels string, _ totals, bound func(float64) string) {
	q := s.read()
	for i, share := range q.Shares {
		fmt.Fprintf(w, "%s%s %s\n", name, with(labels, "quantile", bound(share)), format(q.Values[i]))
	}
	fmt.Fprintf(w, "%s_sum%s %s\n%s_count%s %d\n", name, labels, format(q.Sum), name, labels, q.Count)
}
