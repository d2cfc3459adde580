package metrics

import (
	"bytes"
	"iter"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Values returns the present values of series by their names, such as up{to="a"}, for the families
// that selects returns true for. Those of a histogram end in _bucket, _sum and _count.
func (r *Registry) Values(selects func(family string) bool) map[string]float64 {
	var text bytes.Buffer
	// A histogram has series with names of their own. A buffer cannot fail.
	_ = r.write(&text, false, func(family string) bool {
		return selects(family) || selects(family+"_bucket") || selects(family+"_sum") || selects(family+"_count")
	})

	return maps.Collect(Parse(text.String(), selects))
}

// Parse yields the series of a page in the Prometheus text format with their values, of the families
// that selects returns true for.
func Parse(page string, selects func(family string) bool) iter.Seq2[string, float64] {
	return func(yield func(string, float64) bool) {
		for line := range strings.Lines(page) {
			end := strings.LastIndexByte(line, '}') + 1
			if end == 0 {
				end = max(0, strings.IndexByte(line, ' '))
			}
			family, _, _ := strings.Cut(line[:end], "{")
			fields := strings.Fields(line[end:]) // the value, and a time if there is one
			if len(fields) == 0 || !selects(family) {
				continue
			}
			if v, err := strconv.ParseFloat(fields[0], 64); err == nil && !yield(line[:end], v) {
				return
			}
		}
	}
}

// SeriesName returns the name of a series with labels, NAME VALUE each.
func SeriesName(family string, labels ...string) string {
	return family + render(labels)
}

// ParseSeries returns the family and the labels of a series.
func ParseSeries(name string) (family string, labels map[string]string) {
	family, rest, _ := strings.Cut(name, "{")
	labels = map[string]string{}
	for {
		key, after, found := strings.Cut(rest, "=")
		quoted, err := strconv.QuotedPrefix(after)
		if !found || err != nil {
			return family, labels
		}
		labels[key], _ = strconv.Unquote(quoted) // QuotedPrefix has checked it
		rest = strings.TrimPrefix(after[len(quoted):], ",")
	}
}

// Quantile estimates a quantile of the cumulative buckets of a histogram, by their upper bounds, as
// Prometheus does: linearly within its bucket, and in the last one by the lower bound. It returns
// 0 without observations.
func Quantile(q float64, buckets map[float64]float64) float64 {
	rank := q * buckets[math.Inf(1)]
	if rank == 0 {
		return 0
	}

	lower, below := 0.0, 0.0
	for _, bound := range slices.Sorted(maps.Keys(buckets)) {
		n := buckets[bound]
		switch {
		case n < rank:
			lower, below = bound, n
			continue
		case math.IsInf(bound, 1):
			return lower
		}
		return lower + (bound-lower)*(rank-below)/(n-below)
	}
	return lower
}
