package supervisor

import "time"

const (
	// steady is the time after which the end of a worker is not a failed start.
	steady = 200 * time.Millisecond
	// endCost and shortCost are what the end of a worker adds to the level: of one that was
	// steady, and of another.
	endCost, shortCost = 1, 6
	// maxLevel is the level up to which a worker is started again at once. The level falls
	// by one every levelInterval. So a worker may end every two seconds, 15 times in a row,
	// or three times while it starts.
	maxLevel      = 15
	levelInterval = 2 * time.Second
	// Above maxLevel the delay is minDelay, and twice as long after each further end.
	minDelay, maxDelay = 200 * time.Millisecond, 30 * time.Second
)

// A backoff determines when a worker that has ended is started again. The zero value is
// ready to use.
type backoff struct {
	level   float64
	updated time.Time
	delay   time.Duration // zero up to maxLevel
}

// ended returns how long to wait before the next start, after a worker that has served for
// the time served (zero: not at all). The gate remains closed until the next worker has
// served for as long.
func (b *backoff) ended(now time.Time, served time.Duration) time.Duration {
	passed := now.Sub(b.updated) - b.delay // the delay itself proves nothing
	b.level = max(0, b.level-max(0, float64(passed))/float64(levelInterval))
	b.updated = now
	if served >= steady {
		b.level += endCost
	} else {
		b.level += shortCost
	}
	b.level = min(b.level, 2*maxLevel) // so that it falls within 30 s
	switch {
	case b.level <= maxLevel:
		b.delay = 0
	case b.delay == 0:
		b.delay = minDelay
	default:
		b.delay = min(2*b.delay, maxDelay)
	}
	return b.delay
}
