package forward

import (
	"sync"
	"time"
)

const (
	// minRetryDelay is the shortest time after which a query is also sent to
	// another upstream. On a busy machine even the fastest upstream looks late
	// for a moment.
	minRetryDelay     = 20 * time.Millisecond
	initialRetryDelay = 250 * time.Millisecond // for an upstream with few samples
	minSamples        = 8
)

// A latencyHistogram counts the response times of one upstream in buckets that
// grow by a quarter. Old samples lose weight.
type latencyHistogram struct {
	mu      sync.Mutex
	buckets [48]uint16
	total   int
}

// bucket returns the first bucket whose bound is at least t. The bounds range
// from a quarter of a millisecond to nine seconds.
func bucket(t time.Duration) int {
	i, bound := 0, 250*time.Microsecond
	for i < len(latencyHistogram{}.buckets)-1 && t > bound {
		bound += bound / 4
		i++
	}
	return i
}

// add adds a sample.
func (l *latencyHistogram) add(t time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buckets[bucket(t)]++
	if l.total++; l.total < 512 {
		return
	}
	l.total = 0
	for i := range l.buckets {
		l.buckets[i] /= 2
		l.total += int(l.buckets[i])
	}
}

// percentile95 returns the 95th percentile, at most the limit given. A reply
// that takes longer is probably lost.
func (l *latencyHistogram) percentile95(most time.Duration) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.total < minSamples {
		return min(initialRetryDelay, most)
	}
	beyond, bound := l.total-l.total/20, 250*time.Microsecond
	for _, n := range l.buckets {
		beyond -= int(n)
		if beyond <= 0 {
			break
		}
		bound += bound / 4
	}
	return min(max(bound, minRetryDelay), most)
}
