package shadow

import (
	"math"
	"time"
)

// A latency is the distribution of durations, with an error of 3 %.
type latency struct {
	count   int
	buckets map[int]int
}

// steps is the number of buckets for each power of two.
const steps = 16

func (l *latency) add(d time.Duration) {
	if l.buckets == nil {
		l.buckets = map[int]int{}
	}
	l.count++
	l.buckets[int(math.Round(steps*math.Log2(float64(max(d, 1)))))]++
}

// Quantiles are the quantiles of a distribution.
type Quantiles struct {
	Median time.Duration `json:"median_ns"`
	P99    time.Duration `json:"p99_ns"`
}

func (l *latency) quantiles() Quantiles { return Quantiles{l.quantile(0.5), l.quantile(0.99)} }

// quantile returns the duration that a share of the durations does not exceed.
func (l *latency) quantile(share float64) time.Duration {
	rank := int(math.Ceil(share * float64(l.count)))
	for b, seen := 0, 0; seen < l.count; b++ {
		if seen += l.buckets[b]; seen >= rank {
			return time.Duration(math.Round(math.Exp2(float64(b) / steps)))
		}
	}
	return 0
}
