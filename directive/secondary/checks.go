package secondary

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/seamark/seamark/sys/clock"
)

const (
	// zoneInterval is the least time between two checks of a zone that NOTIFY messages cause, and
	// checkInterval that between two of all zones. The messages may be forged (RFC 1996 §5), or
	// a primary may send many, and each check is a query to it.
	zoneInterval  = time.Second
	checkInterval = time.Second / 20
	// A zone that a check has found unchanged has less urgent ones for idleFor: the message was
	// probably forged, or repeated.
	idleFor = 10 * time.Minute
)

// checks gives zones turns for the checks that NOTIFY messages cause: primaries take turns, and of a
// primary's zones those go first whose last message announced a change. Forged messages for thousands
// of zones do not delay a genuine one for long: each of the zones goes first only once.
type checks struct {
	mu      sync.Mutex
	next    time.Time // of the next turn
	waits   bool      // grant will be called
	waiting []*primaryTurns
}

// A primaryTurns has the zones of one primary that wait for a turn, in the order of arrival.
type primaryTurns struct {
	primary      netip.Addr
	urgent, idle []*turn
	given        int
}

// A turn is that of one zone.
type turn struct {
	primary netip.Addr
	idle    bool // the last check has found the zone unchanged
	granted chan struct{}
}

// enter makes t wait for its turn, if that is not now.
func (c *checks) enter(t *turn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.waiting, func(p *primaryTurns) bool { return p.primary == t.primary })
	if i < 0 {
		i = len(c.waiting)
		c.waiting = append(c.waiting, &primaryTurns{primary: t.primary})
	}
	list := c.waiting[i].list(t.idle)
	*list = append(*list, t)

	if !c.waits {
		c.waits = true
		time.AfterFunc(time.Until(c.next), c.grant)
	}
}

// leave removes t, if it still waits.
func (c *checks) leave(t *turn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.waiting {
		list := p.list(t.idle)
		*list = slices.DeleteFunc(*list, func(other *turn) bool { return other == t })
	}
}

// grant gives the next turn.
func (c *checks) grant() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waits = false
	for len(c.waiting) > 0 && !c.waits {
		p := c.waiting[0]
		c.waiting = c.waiting[1:]
		t := p.take()
		if t == nil {
			continue
		}

		close(t.granted)
		c.waiting, c.waits = append(c.waiting, p), true
		c.next = time.Now().Add(checkInterval)
		time.AfterFunc(checkInterval, c.grant)
	}
}

func (p *primaryTurns) list(idle bool) *[]*turn {
	if idle {
		return &p.idle
	}
	return &p.urgent
}

// take removes and returns the turn to be given, nil if there is none. Every fourth one is of an idle
// zone, and of each kind the newest and the oldest alternate: a message that comes while many wait
// does not wait for all of them, and none waits for ever.
func (p *primaryTurns) take() (t *turn) {
	p.given++
	list := &p.urgent
	if len(p.urgent) == 0 || len(p.idle) > 0 && p.given%4 == 0 {
		list = &p.idle
	}
	n := len(*list)
	switch {
	case n == 0:
		return nil
	case p.given/4%2 == 0 && list == &p.idle, p.given%2 == 0 && list == &p.urgent:
		t, *list = (*list)[n-1], (*list)[:n-1]
	default:
		t, *list = (*list)[0], (*list)[1:]
	}
	return t
}

// awaitCheck blocks until a NOTIFY message may lead to a check, or the next refresh. It returns false
// when ctx ends.
func (s *schedule) awaitCheck(ctx context.Context) bool {
	unchanged := s.notified != nil && s.notified == s.zone && time.Since(s.asked) < idleFor
	if !clock.Sleep(ctx, time.Until(s.asked.Add(zoneInterval))) {
		return false
	}

	// Messages for thousands of zones make each wait for minutes, but not for what is due without one.
	refresh := time.NewTimer(time.Until(s.next))
	defer refresh.Stop()
	t := &turn{s.copy.clients[0].addr.Addr(), unchanged, make(chan struct{})}
	s.copy.server.checks.enter(t)
	select {
	case <-t.granted:
	case <-refresh.C:
		s.copy.server.checks.leave(t)
	case <-ctx.Done():
		s.copy.server.checks.leave(t)
		return false
	}
	s.notified = s.zone

	// The check is later than the messages that have come meanwhile.
	select {
	case <-s.copy.notified:
	default:
	}
	return true
}
