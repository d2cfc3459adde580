package judge

import (
	"iter"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/observe/traffic"
	"github.com/seamark/seamark/sys/health"
)

// Evidence is what rules judge by.
type evidence struct {
	now      time.Time
	values   map[string]float64  // by series, at present
	families map[string][]series // values: see of
	recorder *traffic.Recorder
	failures []health.Failure // the last one of each upstream
	judge    *Judge           // which is locked
}

// A series is one of a family.
type series struct {
	name   string
	labels map[string]string
	value  float64
}

// of returns the series of a family, sorted by name, with their present values.
func (e *evidence) of(family string) []series {
	if e.families == nil { // each name is parsed once, as there are some thousand
		e.families = map[string][]series{}
		for _, name := range slices.Sorted(maps.Keys(e.values)) {
			f, labels := metrics.ParseSeries(name)
			e.families[f] = append(e.families[f], series{name, labels, e.values[name]})
		}
	}
	return e.families[family]
}

// increase returns the series of a family, sorted by name, with the increases of their values within the
// window that ends now, or since the start.
func (e *evidence) increase(family string, window time.Duration) []series {
	before := e.judge.before(e.now.Add(-window))
	all := slices.Clone(e.of(family))
	for i, s := range all {
		if at, ok := e.judge.names[s.name]; ok && at < len(before.values) {
			all[i].value -= before.values[at]
		}
	}
	return all
}

// before returns the oldest sample from a time on; the last one if there is none.
func (j *Judge) before(at time.Time) sample {
	for _, s := range j.samples {
		if !s.at.Before(at) {
			return s
		}
	}
	return j.samples[len(j.samples)-1]
}

// because returns the last error of an upstream as the end of a sentence; "" if there has been none.
func (e *evidence) because(to string) string {
	f := health.FailureOf(e.failures, to)
	if f == nil {
		return ""
	}
	return "; last error: " + f.Ago(e.now)
}

// failing returns the share of the replies of the last minute that are SERVFAIL; 0 below minFailed of them.
func (e *evidence) failing() float64 {
	last, _ := e.recorder.Last(time.Minute, e.now)
	if last.RCodes["SERVFAIL"] < minFailed {
		return 0
	}
	return last.RCodes["SERVFAIL"] / max(1, last.Queries)
}

// lost returns n as a share of the queries within the window that ends now.
func (e *evidence) lost(n float64, window time.Duration) float64 {
	all, _ := e.recorder.Last(window, e.now)
	return min(1, n/max(1, all.Queries))
}

// covered returns the part of the window that ends now for which there are samples.
func (e *evidence) covered(window time.Duration) time.Duration {
	return e.now.Sub(e.judge.before(e.now.Add(-window)).at)
}

// sum returns the sums of series by the value of a label; "" if they have none.
func sum(all []series, label string) map[string]float64 {
	sums := map[string]float64{}
	for _, s := range all {
		sums[s.labels[label]] += s.value
	}
	return sums
}

// sorted yields the values of a map by their keys, in order.
func sorted(m map[string]float64) iter.Seq2[string, float64] {
	return func(yield func(string, float64) bool) {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			if !yield(k, m[k]) {
				return
			}
		}
	}
}

// where returns the series whose label has a value.
func where(all []series, label, value string) []series {
	return slices.DeleteFunc(slices.Clone(all), func(s series) bool { return s.labels[label] != value })
}

// quantile returns a quantile of the buckets of histograms, by the value of a label, and the number
// of observations.
func quantile(buckets []series, label string, q float64) map[string]observed {
	byKey := map[string]map[float64]float64{}
	for _, s := range buckets {
		bound, err := strconv.ParseFloat(s.labels["le"], 64)
		if err != nil {
			continue
		}
		key := s.labels[label]
		if byKey[key] == nil {
			byKey[key] = map[float64]float64{}
		}
		byKey[key][bound] += s.value
	}

	found := map[string]observed{}
	for key, counts := range byKey {
		if all := counts[math.Inf(1)]; all > 0 {
			found[key] = observed{metrics.Quantile(q, counts), all}
		}
	}
	return found
}

// An observed is a quantile of some observations.
type observed struct{ seconds, count float64 }
