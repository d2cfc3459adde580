package forward

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/sys/clock"
	"github.com/seamark/seamark/wire"
)

const (
	// exchangeTimeout is the time for one query, as in CoreDNS.
	exchangeTimeout = 5 * time.Second
	// maxSends bounds the attempts for one query; the option attempts can lower it.
	maxSends = 16
	// maxRepairs is the number of attempts beyond the option attempts, so that a query without EDNS,
	// and then over TCP, is sent with any value of it.
	maxRepairs = 2
	// slowFactor is how many times as long as the fastest candidate an upstream may
	// take before the query is also sent to another one.
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
	set      *upstreamSet
	excluded []string
	hash     uint64     // of name and type
	client   netip.Addr // that the exchange was started for

	// Guarded by set.exchangeMu.
	nextSimilar *exchange  // the next one for the same name and type
	begun       bool       // it sends, or is refused; others wait
	counted     netip.Addr // the client that has the place: see similar.go
	wakes       []func()   // called by finish

	mu         sync.Mutex
	processing bool     // a goroutine processes events
	events     []func() // not yet processed

	// Used by the goroutine that processes events. Times are of package clock.
	timer      clock.Timer
	began      time.Duration
	deadline   time.Duration
	retryAt    time.Duration // when to send another attempt
	candidates []*upstream   // best first
	sent       int           // without those of sendOverTCP
	repairs    int           // of these, attempts after a reply with a fault
	nextIndex  int           // of the next candidate, modulo their number
	inFlight   int           // attempts that have not ended
	failures   int           // attempts that count for max_connect_attempts
	histories  []history     // of upstreams with one
	faulty     *faultError   // of the last reply that could not be used
	last       *attempt      // the one sent last; nil if it has ended
	fallback   *outcome      // a reply that is used if no better one arrives
	useStream  bool          // send over a connection: the request requires it, or a reply was truncated

	// The result, once finished is true.
	finished atomic.Bool
	observed atomic.Bool   // an observer has seen it
	used     *attempt      // the one whose outcome is the result; nil after a timeout
	sentAt   time.Duration // of package clock
	ede      uint16        // the extended error
	reply    *reply
	upstream *upstream
	err      error
}

// A history is what has happened between an exchange and an upstream.
type history struct {
	upstream *upstream
	refused  bool // it refused the query or closed the connection
	unusable bool // its reply had a fault that another one would have, too
	plain    bool // it was asked without EDNS
	replied  bool // although another one may have a better reply
	overTCP  bool // it was asked over TCP besides
}

// history returns the history of u, to be changed before the next call.
func (x *exchange) history(u *upstream) *history {
	i := slices.IndexFunc(x.histories, func(h history) bool { return h.upstream == u })
	if i < 0 {
		i = len(x.histories)
		x.histories = append(x.histories, history{upstream: u})
	}
	return &x.histories[i]
}

// historyOf returns a copy of the history of u.
func (x *exchange) historyOf(u *upstream) history {
	for _, h := range x.histories {
		if h.upstream == u {
			return h
		}
	}
	return history{}
}

// process processes an event. If another goroutine is processing one, process leaves
// the event to it. After a panic of an event the ones that follow it are lost.
func (x *exchange) process(event func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.events = append(x.events, event)
	if x.processing {
		return
	}

	x.processing = true
	defer func() { x.processing, x.events = false, nil }()
	for len(x.events) > 0 {
		event, x.events = x.events[0], x.events[1:]
		x.unlocked(event)
	}
}

// unlocked calls an event, which may cause others on the same goroutine. x.mu is held before and after.
func (x *exchange) unlocked(event func()) {
	x.mu.Unlock()
	defer x.mu.Lock()
	if !x.finished.Load() {
		event()
	}
}

// setError sets the error and the code of the extended DNS error.
func (x *exchange) setError(err error, ede uint16) { x.err, x.ede = err, ede }

// setReply makes o the result.
func (x *exchange) setReply(o *outcome) {
	x.reply, x.upstream, x.used, x.err = o.reply, o.upstream, o.attempt, nil
	if err := x.reply.err; err != nil {
		x.reply, x.upstream = nil, nil
		x.setError(err, wire.EDEOther)
		return
	}
	if x.reply.code == wire.BadVers { // to version 0, which the client has used as well
		x.reply.code = wire.ServFail
		x.reply.options = appendError(x.reply.options, "upstream sent BADVERS to EDNS version 0")
	}
	if x.reply.fault == empty { // which glibc takes for a failure without RA
		x.reply.flags |= wire.FlagRA
	}
}

// edeText returns the text of the extended error.
func (x *exchange) edeText() string {
	if _, ok := x.err.(*faultError); !ok && !isLocal(x.err) && x.upstream != nil {
		return fmt.Sprintf("no answer from %s", x.upstream)
	}
	return x.err.Error()
}

// stop ends x because the set of upstreams is stopping.
func (x *exchange) stop() {
	x.process(func() {
		x.setError(errStopped, wire.EDENoReachable)
		x.finish()
	})
}

// start sends the first attempt.
func (x *exchange) start() {
	var err error
	x.began = clock.Now()
	if x.candidates, err = x.set.candidates(x.excluded); err != nil && !x.triesDownUpstream(err) {
		x.setError(err, wire.EDENoReachable)
		x.finish()
		return
	}
	if x.deadline == 0 {
		x.startTimer()
	}
	x.sendNow(x.nextAttempt())
}

// sendNow sends a, and sets the timer to the time for another attempt.
func (x *exchange) sendNow(a *attempt) {
	overTCP := x.asksOverTCP(a)
	x.retryAt = clock.Now() + x.send(a)
	if overTCP {
		x.sendOverTCP(a.upstream)
	}
	x.setTimer()
}

func (x *exchange) setTimer() {
	x.set.timers.Set(&x.timer, min(x.retryAt, x.deadline))
}

// timerExpired gives up, or sends another attempt.
func (x *exchange) timerExpired() {
	switch now := clock.Now(); {
	case now >= x.deadline:
		x.giveUp()
		return
	case now < x.retryAt:
		x.setTimer() // another event has changed retryAt
		return
	}

	if x.last != nil {
		x.last.upstream.countOverdue()
	}
	switch {
	case x.noneLeft():
		x.giveUp()
	case x.maySend():
		x.retry()
	default:
		x.repairSilence()
		x.retryAt = x.deadline
		x.setTimer()
	}
}

// report processes the outcome of an attempt.
func (x *exchange) report(o outcome) {
	x.process(func() {
		next, done := x.handle(o)
		switch {
		case done:
			x.finish()
		case next != nil:
			x.sendNow(next)
		case x.inFlight == 0 && !x.maySend() && (x.hasReply() || !x.repairSilence()):
			x.giveUp()
		}
	})
}

// hasReply reports whether an upstream has replied, although the exchange waits for a better reply.
func (x *exchange) hasReply() bool { return x.fallback != nil || x.faulty != nil }

func (x *exchange) isFinished() bool { return x.finished.Load() }

// handle processes an outcome. It returns an attempt to send now, if any, or
// reports that the exchange is done.
func (x *exchange) handle(o outcome) (next *attempt, done bool) {
	if !o.abandoned {
		x.inFlight--
		if x.last == o.attempt {
			x.last = nil
		}
	}

	switch {
	case o.err != nil && (o.abandoned || o.udpSilent != 0): // the attempts over UDP have the error
		return nil, false
	case o.err != nil:
		return x.handleError(o), false
	case o.reply == nil:
		o.abandoned = true // it goes on for the right reply, and the exchange does not wait for that
	}

	f := x.faultOf(&o)
	x.keep(&o, f)
	for _, s := range nextSteps[f] {
		var ok bool
		if next, done, ok = x.take(s, &o); ok {
			break
		}
	}
	return next, done
}

// handleError processes an error. It returns an attempt to send now; nil if the limit of
// failures is reached, or if other attempts are waiting after a timeout.
func (x *exchange) handleError(o outcome) *attempt {
	x.err, x.upstream, x.used = o.err, o.upstream, o.attempt
	timedOut := isTimeout(o.err)
	if !timedOut && !isLocal(o.err) {
		x.history(o.upstream).refused = true
	}
	if x.set.options.maxAttempts >= 0 || !timedOut {
		x.failures++
	}

	if !x.maySend() || timedOut && x.inFlight > 0 || x.failures >= 2*len(x.candidates) {
		return nil
	}

	a := x.nextAttempt()
	a.upstream.metrics.retries.Add(1)
	a.useStream = a.useStream || o.err == errSpoofed // where spoofed packets have no effect
	return a
}

// giveUp finishes the exchange with the fallback reply or an error.
func (x *exchange) giveUp() {
	defer x.finish()
	switch {
	case x.fallback != nil:
		x.setReply(x.fallback)
	case x.faulty != nil: // says more than the silence of others
		x.upstream = x.faulty.upstream
		x.setError(x.faulty, wire.EDENetworkError)
	case x.sent == 0:
		x.setError(errSimilar, wire.EDENoReachable)
	case x.err == nil && x.last != nil:
		x.upstream = x.last.upstream
		x.setError(x.last.timeoutError(), wire.EDENoReachable)
	case x.err == nil:
		x.setError(errUnhealthy, wire.EDENoReachable)
	case isTimeout(x.err):
		x.setError(x.err, wire.EDENoReachable)
	default:
		x.setError(x.err, wire.EDENetworkError)
	}
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}
