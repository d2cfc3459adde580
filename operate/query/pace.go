package query

import (
	"context"
	"time"

	"github.com/seamark/seamark/sys/clock"
)

// burst is the longest delay that later queries make up for.
const burst = 100 * time.Millisecond

// A Pace spreads queries over time. It is not safe for concurrent use.
type Pace struct {
	interval time.Duration
	next     time.Time
}

// NewPace returns a Pace of at most rate queries a second.
func NewPace(rate int) *Pace { return &Pace{interval: time.Second / time.Duration(rate)} }

// Wait blocks until the next query may be sent, or ctx ends.
func (p *Pace) Wait(ctx context.Context) error {
	now := time.Now()
	if behind := now.Add(-burst); p.next.Before(behind) {
		p.next = behind
	}
	p.next = p.next.Add(p.interval)
	if early := p.next.Sub(now); early >= time.Millisecond {
		clock.Sleep(ctx, early)
	}
	return ctx.Err()
}
