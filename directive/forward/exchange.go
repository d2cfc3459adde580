package forward

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

const (
	// exchangeTimeout is the time for one query, as in CoreDNS.
	exchangeTimeout = 5 * time.Second
	// maxSends bounds the attempts for one query.
	maxSends = 16
	// slowFactor is how many times slower than another an upstream may be before
	// a query is also sent to that one.
	slowFactor = 4
)

var (
	errStopped    = errors.New("forward is stopping")
	errBusy       = errors.New("too many queries are waiting for the upstream")
	errSpoofed    = errors.New("packets with wrong IDs arrive from the upstream's address")
	errClosed     = errors.New("connection closed by the upstream")
	errProbe      = errors.New("no reply to a health check")
	errUnhealthy  = errors.New("unreachable backend: no healthy upstream")
	errNoUpstream = errors.New("unreachable backend: no upstream address is known")
	errLooped     = errors.New("unreachable backend: directive loop excluded every upstream")
)

// An exchange is one query to the upstreams, on behalf of all clients that send it
// at the same time. It has no goroutine: the outcomes of its attempts and the end of
// its timer are events, and the goroutine that reports an event processes it.
type exchange struct {
	request
	set     *upstreamSet
	key     string   // in set.exchanges
	waiting []func() // called at the end; guarded by set.exchangeMu

	mu     sync.Mutex
	events []func() // not yet processed
	busy   bool     // a goroutine processes events

	// Used by the goroutine that processes events.
	timer      *time.Timer
	deadline   time.Time
	retryAt    time.Time   // when to send another attempt
	candidates []*upstream // best first
	sent       int
	nextIndex  int // of the next candidate, modulo their number
	inFlight   int
	failures   int
	refused    []*upstream // that refused the query or closed the connection
	last       *attempt
	fallback   *outcome // a reply that is used if no better one arrives

	// The result, once finished is true.
	finished atomic.Bool
	reply    *reply
	upstream *upstream
	err      error
	ede      uint16 // the extended error
}

// join returns the exchange for q, which is a new one unless an equal query is
// being sent. wake is called when it finishes, unless it has finished.
func (s *upstreamSet) join(q *dns.Query, excluded *exclusion, wake func()) *exchange {
	r := newRequest(q, s.options.forceTCP || q.Proto == dns.TCP && !s.options.preferUDP)
	key := r.key(q, excluded.id)
	s.exchangeMu.Lock()
	x := s.exchanges[key]
	if x != nil {
		s.coalesced.Add(1)
		x.waiting = append(x.waiting, wake)
		s.exchangeMu.Unlock()
		return x
	}
	x = &exchange{request: r, set: s, key: key, waiting: []func(){wake}}
	s.exchanges[key] = x
	s.exchangeMu.Unlock()
	if s.enter() {
		defer s.running.Done()
		x.process(func() { x.start(excluded) })
	} else {
		x.stop()
	}
	return x
}

// process processes an event. If another goroutine is processing one, process leaves
// the event to it.
func (x *exchange) process(event func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.events = append(x.events, event)
	if x.busy {
		return
	}
	x.busy = true
	for len(x.events) > 0 {
		event, x.events = x.events[0], x.events[1:]
		x.mu.Unlock()
		if !x.finished.Load() {
			event()
		}
		x.mu.Lock()
	}
	x.busy, x.events = false, nil
}

func (x *exchange) fail(err error, ede uint16) { x.err, x.ede = err, ede }

// edeText returns the text of the extended error.
func (x *exchange) edeText() string {
	if x.upstream != nil {
		return fmt.Sprintf("no answer from %s", x.upstream)
	}
	return x.err.Error()
}

// finish wakes the queries that wait for x.
func (x *exchange) finish() {
	if x.timer != nil {
		x.timer.Stop()
	}
	x.set.exchangeMu.Lock()
	delete(x.set.exchanges, x.key)
	x.finished.Store(true)
	waiting := x.waiting
	x.waiting = nil // attempts may refer to x for longer
	x.set.exchangeMu.Unlock()
	for _, wake := range waiting {
		wake()
	}
}

// stop ends x because the set of upstreams is stopping.
func (x *exchange) stop() {
	x.process(func() {
		x.fail(errStopped, wire.EDENoReachable)
		x.finish()
	})
}

// start sends the first attempt.
func (x *exchange) start(excluded *exclusion) {
	var err error
	if x.candidates, err = x.set.candidates(excluded); err != nil && !x.triesDownUpstream(err) {
		x.fail(err, wire.EDENoReachable)
		x.finish()
		return
	}
	x.deadline = time.Now().Add(exchangeTimeout)
	x.timer = time.AfterFunc(exchangeTimeout, func() {
		if x.set.enter() {
			defer x.set.running.Done()
			x.process(x.timeOver)
		}
	})
	x.sendNow(x.nextAttempt())
}

// sendNow sends a and starts the time after which to send another attempt.
func (x *exchange) sendNow(a *attempt) {
	x.retryAt = time.Now().Add(x.send(a))
	x.setTimer()
}

func (x *exchange) setTimer() {
	next := x.deadline
	if x.retryAt.Before(next) {
		next = x.retryAt
	}
	x.timer.Reset(time.Until(next))
}

// timeOver processes the end of the timer.
func (x *exchange) timeOver() {
	switch now := time.Now(); {
	case !now.Before(x.deadline):
		x.giveUp()
		return
	case now.Before(x.retryAt):
		x.setTimer() // another event has changed it
		return
	}
	if x.last != nil {
		x.last.upstream.countOverdue()
	}
	switch {
	case x.allDown():
		x.giveUp()
	case x.maySend():
		x.retry()
	default:
		x.retryAt = x.deadline
		x.setTimer()
	}
}

// report processes the outcome of an attempt.
func (x *exchange) report(o outcome) {
	x.process(func() {
		again, done := x.handle(o)
		switch {
		case done:
			x.finish()
		case again != nil:
			x.sendNow(again)
		case x.inFlight == 0 && !x.maySend():
			x.giveUp()
		}
	})
}

func (x *exchange) isFinished() bool { return x.finished.Load() }

// limit ends the exchange after d, unless it ends before.
func (x *exchange) limit(d time.Duration) {
	if deadline := time.Now().Add(d); deadline.Before(x.deadline) {
		x.deadline = deadline
	}
}

// maySend reports whether another attempt may be sent. With a complete reply at
// hand only upstreams that have not been queried are.
func (x *exchange) maySend() bool {
	if x.fallback != nil && !x.fallback.reply.truncated && x.nextIndex >= len(x.candidates) {
		return false
	}
	most := x.set.options.maxAttempts
	if most < 0 {
		most = 2 * len(x.candidates)
	}
	return x.sent < maxSends && (most == 0 || x.failures < most)
}

// allDown reports whether all candidates have failed their health checks.
func (x *exchange) allDown() bool {
	return !slices.ContainsFunc(x.candidates, func(u *upstream) bool { return !u.down() })
}

// nextAttempt returns an attempt at the next candidate. From the second round on
// it skips those that refused the query or answer slowly, if there are others.
func (x *exchange) nextAttempt() *attempt {
	n := len(x.candidates)
	if x.nextIndex >= n {
		x.nextIndex += x.unfitCount()
	}
	a := x.newAttempt(x.candidates[x.nextIndex%n])
	a.fresh = x.nextIndex >= n
	x.nextIndex++
	return a
}

// unfitCount returns the number of candidates to skip.
func (x *exchange) unfitCount() int {
	n, now := len(x.candidates), time.Now()
	silent := -1
	for i := range n {
		switch u := x.candidates[(x.nextIndex+i)%n]; {
		case u.down() || slices.Contains(x.refused, u):
		case !u.suspect(now):
			return i
		case silent < 0:
			silent = i
		}
	}
	return max(silent, 0)
}

func (x *exchange) newAttempt(u *upstream) *attempt {
	return &attempt{request: &x.request, useStream: x.stream, upstream: u, owner: x}
}

// retry sends another attempt, because the last one has not been answered.
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
	x.last = a
	wait = x.retryDelay(a.upstream)
	if a.useStream {
		wait *= 3 // includes connecting
	}
	for range (x.sent - 1) / len(x.candidates) {
		wait += wait / 2
	}
	a.upstream.send(a)
	return min(wait, x.set.options.readTimeout)
}

// retryDelay returns how long to wait for u alone: as long as u usually takes,
// but no longer than slowFactor times what the fastest candidate takes. A suspect
// upstream gets no longer than the fastest.
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

// handle processes an outcome. It returns an attempt to send now, if any, or
// reports that the exchange is done.
func (x *exchange) handle(o outcome) (again *attempt, done bool) {
	if o.invalid {
		if x.last == o.attempt && x.maySend() {
			x.last.upstream.metrics.retries.Add(1)
			return x.nextAttempt(), false
		}
		return nil, false
	}
	x.inFlight--
	if x.last == o.attempt {
		x.last = nil
	}
	switch {
	case o.err != nil:
		return x.handleError(o), false
	case o.edns && o.reply.rejectsRequest() && x.sent < maxSends:
		again = x.newAttempt(o.upstream)
		again.noEDNS = true
		return again, false
	case o.reply.truncated && !o.useStream && x.sent < maxSends:
		if !x.stream { // TCP may be blocked: limit the time to wait for it
			x.limit(max(x.set.options.readTimeout, minDialTimeout))
		}
		x.fallback, x.stream = &o, true
		return x.newAttempt(o.upstream), false
	case slices.Contains(x.set.options.failover, o.reply.code) && (x.nextIndex < len(x.candidates) || x.inFlight > 0):
		if x.fallback == nil || !x.fallback.reply.truncated {
			x.fallback = &o
		}
		if x.maySend() {
			again = x.nextAttempt()
		}
		return again, false
	}
	x.reply, x.upstream = o.reply, o.upstream
	return nil, true
}

// handleError returns an attempt to send now, nil if the limit of failures is
// reached. After a timeout the query has been sent to other candidates already.
func (x *exchange) handleError(o outcome) *attempt {
	x.err, x.upstream = o.err, o.upstream
	late := isTimeout(o.err)
	if !late {
		x.refused = append(x.refused, o.upstream)
	}
	if x.set.options.maxAttempts >= 0 || !late {
		x.failures++
	}
	if !x.maySend() || late && x.inFlight > 0 || x.failures >= 2*len(x.candidates) {
		return nil
	}
	a := x.nextAttempt()
	a.upstream.metrics.retries.Add(1)
	a.useStream = a.useStream || o.err == errSpoofed // spoofed packets would keep the reply out
	return a
}

// giveUp finishes the exchange with the fallback reply or an error.
func (x *exchange) giveUp() {
	defer x.finish()
	switch {
	case x.fallback != nil:
		x.reply, x.upstream, x.err = x.fallback.reply, x.fallback.upstream, nil
	case x.err == nil && x.last != nil:
		x.upstream = x.last.upstream
		x.fail(x.last.timeoutError(), wire.EDENoReachable)
	case x.err == nil:
		x.fail(errUnhealthy, wire.EDENoReachable)
	case isTimeout(x.err):
		x.fail(x.err, wire.EDENoReachable)
	default:
		x.fail(x.err, wire.EDENetworkError)
	}
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

// triesDownUpstream reports whether a candidate is queried although all are down.
// Health checks alone may fail, and any reply makes the upstream healthy. The
// query waits no longer than the upstream usually takes.
func (x *exchange) triesDownUpstream(err error) bool {
	if err != errUnhealthy {
		return false
	}
	x.set.allDown.Add(1)
	return len(x.candidates) > 0 && x.candidates[0].allowTrial(time.Now())
}

// write makes r the answer to q.
func (r *reply) write(q *dns.Query) {
	q.Answer.Append(wire.Answers, r.records, 0)
	q.Answer.Count = r.count
	q.RCode = r.code
	q.AA = r.flags&wire.FlagAA != 0
	q.RA = r.flags&wire.FlagRA != 0
	q.AD = r.flags&wire.FlagAD != 0
	q.TC = r.truncated
	q.Cacheable = !r.truncated && !r.otherType
	for code, data := range wire.Options(r.options) {
		if code != wire.OptionNSID || asksNSID(q) {
			q.AddReplyOption(code, data)
		}
	}
}

// asksNSID reports whether rewrite added the NSID option to the query.
func asksNSID(q *dns.Query) bool {
	for code := range wire.Options(q.Options) {
		if code == wire.OptionNSID {
			return true
		}
	}
	return false
}
