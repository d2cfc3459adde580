package forward

import (
	"sync"
	"time"
)

const (
	// retryLeast and retryMost bound the time after which a question goes to
	// another upstream, too. A machine that is busy makes the fastest upstream
	// look late for a moment.
	retryLeast = 20 * time.Millisecond
	retryFirst = 250 * time.Millisecond // of an upstream that is not known yet
	// known is how many answers make it known.
	known = 8
)

// Latencies is how long one upstream takes to answer: a histogram whose buckets
// grow by a quarter, in which what is old counts less.
type latencies struct {
	mu      sync.Mutex
	buckets [48]uint16
	total   int
}

// bucket is the first whose bound is not below t. Bounds begin at a
// quarter of a millisecond and end at nine seconds.
func bucket(t time.Duration) int {
	i, bound := 0, 250*time.Microsecond
	for i < len(latencies{}.buckets)-1 && t > bound {
		bound += bound / 4
		i++
	}
	return i
}

// add counts one answer.
func (l *latencies) add(t time.Duration) {
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

// tail is what ninety-five of a hundred answers are not slower than: who waits
// longer waits for one that is lost, or one that is rare.
func (l *latencies) tail(most time.Duration) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.total < known {
		return min(retryFirst, most)
	}
	beyond, bound := l.total-l.total/20, 250*time.Microsecond
	for _, n := range l.buckets {
		beyond -= int(n)
		if beyond <= 0 {
			break
		}
		bound += bound / 4
	}
	return min(max(bound, retryLeast), most)
}
