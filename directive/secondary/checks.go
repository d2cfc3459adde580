package secondary

import (
	"context"
	"sync"
	"time"
)

const (
	// zoneInterval is the least time between two checks of a zone that NOTIFY messages cause, and
	// checkInterval that between two of all zones. The messages may be forged (RFC 1996 §5), or
	// a primary may send many, and each check is a query to it.
	zoneInterval  = time.Second
	checkInterval = time.Second / 20
)

// checks spaces the checks that NOTIFY messages cause. All zones of a server share one.
type checks struct {
	mu   sync.Mutex
	next time.Time
}

// checksKey identifies the checks across reloads.
type checksKey struct{}

// Stop implements config.Stopper.
func (*checks) Stop() {}

// reserve returns how long to wait before a check.
func (c *checks) reserve() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	at := now
	if c.next.After(now) {
		at = c.next
	}
	c.next = at.Add(checkInterval)
	return at.Sub(now)
}

// awaitCheck blocks until a NOTIFY message may lead to a check, or the next refresh. It returns false
// when ctx ends.
func (s *schedule) awaitCheck(ctx context.Context) bool {
	if !sleep(ctx, time.Until(s.asked.Add(zoneInterval))) {
		return false
	}
	// Messages for thousands of zones make each wait for minutes, but not for what is due without one.
	if !sleep(ctx, min(s.copy.checks.reserve(), time.Until(s.next))) {
		return false
	}

	// The check is later than the messages that have come meanwhile.
	select {
	case <-s.copy.notified:
	default:
	}
	return true
}
