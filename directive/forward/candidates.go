package forward

import (
	"slices"
	"time"

	"github.com/seamark/seamark/sys/clock"
)

// This file decides which upstream an exchange asks next, and when.

// maySend reports whether another attempt may be sent. Once there is a complete reply,
// only upstreams that have not been queried may be sent one.
func (x *exchange) maySend() bool {
	if x.fallback != nil && !x.fallback.reply.truncated && x.nextIndex >= len(x.candidates) {
		return false
	}

	limit := x.set.options.maxAttempts
	if limit < 0 {
		limit = 2 * len(x.candidates)
	}
	sent := x.sent - min(x.repairs, maxRepairs) // that one was asked in another way takes no other's turn
	return sent < x.set.options.maxSends && x.sent < maxSends && (limit == 0 || x.failures < limit)
}

// noneLeft reports whether all candidates have failed their health checks or are unusable.
func (x *exchange) noneLeft() bool {
	return !slices.ContainsFunc(x.candidates, func(u *upstream) bool {
		return !u.down() && !x.historyOf(u).unusable
	})
}

// nextAttempt returns an attempt for the next candidate. From the second round on it
// skips candidates that are down, suspect or have refused the query, if there are others.
func (x *exchange) nextAttempt() *attempt {
	n := len(x.candidates)
	if x.nextIndex >= n {
		x.nextIndex += x.skipCount()
	}

	a := x.newAttempt(x.candidates[x.nextIndex%n])
	a.fresh, a.noEDNS = x.nextIndex >= n, x.avoidsEDNS(a.upstream)
	x.nextIndex++
	return a
}

// skipCount returns the number of candidates to skip.
func (x *exchange) skipCount() int {
	n, now := len(x.candidates), time.Now()
	suspect := -1
	for i := range n {
		switch u := x.candidates[(x.nextIndex+i)%n]; {
		case u.down() || x.historyOf(u).refused || x.historyOf(u).unusable:
		case !u.suspect(now):
			return i
		case suspect < 0:
			suspect = i
		}
	}
	return max(suspect, 0)
}

func (x *exchange) newAttempt(u *upstream) *attempt {
	return &attempt{request: &x.request, useStream: x.useStream, upstream: u, requester: x}
}

// retry sends another attempt, since the last one has not been answered.
func (x *exchange) retry() {
	a := x.nextAttempt()
	a.upstream.metrics.retries.Add(1)
	x.sendNow(a)
}

// send sends a and returns the delay after which to send another attempt. The
// delay grows by half with each round.
func (x *exchange) send(a *attempt) (wait time.Duration) {
	x.sent++
	x.inFlight++
	x.last, x.sentAt = a, clock.Now()
	if a.noEDNS {
		x.history(a.upstream).plain = true
	}

	wait = x.retryDelay(a.upstream)
	if a.useStream {
		wait *= 3 // includes connecting
	}
	for range (x.sent - 1) / len(x.candidates) {
		wait += wait / 2
	}
	if a.upstream.scheme == schemeDNS && !x.do {
		wait = min(wait, x.longestWait())
	}

	a.upstream.send(a)
	return min(wait, x.set.options.readTimeout)
}

// longestWait returns how long to wait for the last attempt at most, so that there is time for three at
// each upstream, of which the last one is without EDNS: half of it for the first round, which most queries
// need. Over other transports than UDP EDNS is not lost, and a query with DO has it always.
func (x *exchange) longestWait() time.Duration {
	n, share := len(x.candidates), 1
	if x.nextIndex <= n {
		share = 2
	}
	others := max(0, 3*n-x.nextIndex) + max(0, n-x.nextIndex)
	return (x.deadline - clock.Now()) * time.Duration(share) / time.Duration(share+others)
}

// retryDelay returns how long to wait for u alone: as long as u usually takes, but at
// most slowFactor times as long as the fastest candidate takes. For a suspect upstream
// it is at most as long as the fastest takes.
func (x *exchange) retryDelay(u *upstream) time.Duration {
	wait, times := u.latency95(), time.Duration(slowFactor)
	if x.set.options.policy == sequential {
		return wait // the order has precedence over speed
	}
	if u.suspect(time.Now()) {
		times = 1
	}

	for _, other := range x.candidates {
		if wait <= times*minRetryDelay {
			break
		}
		wait = min(wait, times*other.latency95())
	}
	return wait
}

// triesDownUpstream reports whether to query a candidate although all are down: a server
// may fail health checks and still answer queries. Any reply marks the upstream healthy.
// The query waits no longer than the upstream usually takes.
func (x *exchange) triesDownUpstream(err error) bool {
	if err != errUnhealthy {
		return false
	}
	x.set.allDown.Add(1)
	return len(x.candidates) > 0 && x.candidates[0].allowTrial(time.Now())
}
