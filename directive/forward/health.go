package forward

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/wire"
)

// probeTime is how long a health check waits for its reply.
const probeTime = time.Second

// check starts health checks, unless they are under way: they end with the
// first reply, whatever it says.
func (u *upstream) check() {
	if u.options().maxFails == 0 || !u.checking.CompareAndSwap(false, true) {
		return
	}
	if !u.set.spawn(u.checks) {
		u.checking.Store(false)
	}
}

func (u *upstream) checks() {
	defer u.checking.Store(false)
	for {
		began := time.Now()
		if u.probe(u.set.ctx, u.options().checkRequest()) == nil {
			return
		}
		if u.heardSince(began) {
			return
		}
		u.fails.Add(1)
		u.counted.unhealthy.Add(1)
		wait := time.NewTimer(u.options().checkEvery - time.Since(began))
		select {
		case <-wait.C:
		case <-u.set.ctx.Done():
			wait.Stop()
			return
		}
		u.mu.Lock()
		gone := u.gone
		u.mu.Unlock()
		if gone || u.heardSince(began) {
			return
		}
	}
}

// heardSince says that a client's question was answered meanwhile. A failure
// that was counted since does not count: nobody would take it back.
func (u *upstream) heardSince(then time.Time) bool {
	if u.heard.Load() < then.UnixNano() {
		return false
	}
	u.fails.Store(0)
	return true
}

// checkRequest is the question of health checks.
func (o *options) checkRequest() *request {
	r := &request{question: questionOf(o.checkDomain, wire.TypeNS)}
	if !o.checkNoRec {
		r.flags = wire.FlagRD
	}
	return r
}

func questionOf(name wire.Name, t wire.Type) []byte {
	return append([]byte(name), byte(t>>8), byte(t), 0, byte(wire.ClassIN))
}

// probe asks u and waits for any reply.
func (u *upstream) probe(ctx context.Context, r *request) error {
	ended := make(chan *outcome, 2)
	u.send(&attempt{request: r, probe: true, fresh: true, over: new(atomic.Bool), ended: ended})
	timer := time.NewTimer(max(probeTime, u.options().checkEvery))
	defer timer.Stop()
	for {
		select {
		case o := <-ended:
			if !o.nudge {
				return o.err
			}
		case <-timer.C:
			return errProbe
		case <-ctx.Done():
			return ctx.Err()
		case <-u.set.ctx.Done():
			return errStopped
		}
	}
}
