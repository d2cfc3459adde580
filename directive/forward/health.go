package forward

import (
	"context"
	"time"

	"github.com/seamark/seamark/sys/clock"
	"github.com/seamark/seamark/wire"
)

// probeTimeout is the time for the reply to a health check.
const probeTimeout = time.Second

// startChecks starts health checks unless they are running. They end with the first
// reply. Host names are looked up: the upstream may have another address.
func (u *upstream) startChecks() {
	u.set.failed.Send()
	if u.options().maxFails == 0 || !u.checking.CompareAndSwap(false, true) {
		return
	}
	if !u.set.spawn(u.runChecks) {
		u.checking.Store(false)
	}
}

func (u *upstream) runChecks() {
	defer u.checking.Store(false)
	for n := 0; ; n++ {
		began := time.Now()
		// Where a firewall drops UDP, TCP may work. More such checks would load a host that is down.
		alsoOverTCP := n%4 == 1 && u.scheme == schemeDNS && !u.options().forceTCP
		err := u.probe(u.set.ctx, u.options().check.request(), alsoOverTCP)
		if err == nil || u.set.ctx.Err() != nil || u.repliedSince(began) {
			return
		}
		if !isLocal(err) {
			u.countFailedCheck(err)
		}

		select {
		case <-time.After(u.options().check.interval - time.Since(began)):
		case <-u.set.ctx.Done():
			return
		}

		u.mu.Lock()
		retired := u.retired
		u.mu.Unlock()
		if retired || u.repliedSince(began) {
			return
		}
	}
}

// repliedSince reports whether the upstream has replied to a query since then. If it
// has, it is healthy, even if a check has failed.
func (u *upstream) repliedSince(then time.Time) bool {
	if u.lastReply.Load() < int64(clock.At(then)) {
		return false
	}
	u.countSuccess()
	return true
}

// countFailedCheck counts a failed check, and logs when the upstream goes down.
func (u *upstream) countFailedCheck(err error) {
	u.metrics.unhealthy.Add(1)
	u.remember(err)
	if int(u.failedChecks.Add(1)) == u.options().maxFails {
		u.downSince.Store(int64(clock.Now()))
		u.metrics.wentDown.Add(1)
		u.set.log.Warn("forward: Upstream is down", "upstream", u.String(), "error", err)
	}
}

// countSuccess is called for each reply. It logs that the upstream is up if it was down.
func (u *upstream) countSuccess() {
	if u.failedChecks.Load() == 0 {
		return
	}
	if failed, maxFails := int(u.failedChecks.Swap(0)), u.options().maxFails; maxFails > 0 && failed >= maxFails {
		duration := (clock.Now() - time.Duration(u.downSince.Load())).Round(time.Millisecond)
		u.set.log.Info("forward: Upstream is up again", "upstream", u.String(), "duration", duration)
	}
}

// request returns the request of health checks.
func (c *healthCheck) request() *request {
	r := &request{question: questionOf(c.domain, wire.TypeNS)}
	if !c.noRec {
		r.flags = wire.FlagRD
	}
	return r
}

func questionOf(name wire.Name, t wire.Type) []byte {
	return append([]byte(name), byte(t>>8), byte(t), 0, byte(wire.ClassIN))
}

// checkOutcomes receives the outcomes of a health check: a reply with a fault and the end.
type checkOutcomes chan outcome

func (c checkOutcomes) report(o outcome) { c <- o }
func (checkOutcomes) isFinished() bool   { return false }

// probe sends a request to u, perhaps over TCP as well, and waits for any reply.
func (u *upstream) probe(ctx context.Context, r *request, alsoOverTCP bool) (err error) {
	began, waiting := clock.Now(), 1
	outcomes := make(checkOutcomes, 4)
	u.send(&attempt{request: r, probe: true, fresh: true, requester: outcomes})
	if alsoOverTCP {
		waiting++
		u.send(&attempt{request: r, probe: true, useStream: true, udpSilent: began, requester: outcomes})
	}

	timeout := time.After(max(probeTimeout, u.options().check.interval))
	for {
		select {
		case o := <-outcomes:
			if o.err == nil {
				return nil
			}
			if !o.useStream || err == nil {
				err = o.err
			}
			if waiting--; waiting == 0 {
				return err
			}
		case <-timeout:
			return errProbe
		case <-ctx.Done():
			return ctx.Err()
		case <-u.set.ctx.Done():
			return errStopped
		}
	}
}
