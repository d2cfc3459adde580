package forward

import (
	"sync"
	"time"
)

const (
	// minRetryDelay is the shortest time after which a query is also sent to
	// another upstream. On a busy machine this process may read a reply
	// milliseconds after it was received.
	minRetryDelay     = 20 * time.Millisecond
	initialRetryDelay = 250 * time.Millisecond // for an upstream with few samples
	minSamples        = 8
)

// A latencyHistogram counts the response times of one upstream in buckets, each a
// quarter wider than the one before. All counts are halved now and then, so that recent
// samples have more weight.
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
func (h *latencyHistogram) add(t time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.buckets[bucket(t)]++
	if h.total++; h.total < 512 {
		return
	}

	h.total = 0
	for i := range h.buckets {
		h.buckets[i] /= 2
		h.total += int(h.buckets[i])
	}
}

// percentile95 returns the 95th percentile of the response times, at most limit. A reply
// that takes longer is probably lost.
func (h *latencyHistogram) percentile95(limit time.Duration) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.total < minSamples {
		return min(initialRetryDelay, limit)
	}

	remaining, bound := h.total-h.total/20, 250*time.Microsecond
	for _, n := range h.buckets {
		remaining -= int(n)
		if remaining <= 0 {
			break
		}
		bound += bound / 4
	}
	return min(max(bound, minRetryDelay), limit)
}
