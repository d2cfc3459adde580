package forward

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

const (
	// allowed is how long one question may take, as in CoreDNS.
	allowed = 5 * time.Second
	// mostSends bounds what one question makes upstreams see.
	mostSends = 16
	// outpaced is how much slower than another an upstream may be.
	outpaced = 4
)

var (
	errStopped   = errors.New("forward has been stopped")
	errBusy      = errors.New("too many questions are waiting for the upstream")
	errGuessed   = errors.New("somebody sends replies with wrong ids in the upstream's name")
	errHungUp    = errors.New("connection closed by the upstream")
	errProbe     = errors.New("no reply to a health check")
	errUnhealthy = errors.New("unreachable backend: no healthy upstream")
	errNone      = errors.New("no upstream is known yet: unreachable backend")
	errLooped    = errors.New("every upstream leads back to this server: see loop")
)

// An exchange is one question under way, for every client that asks it
// meanwhile. Its goroutine alone sends and decides; it reads the outcomes of
// its attempts.
type exchange struct {
	request
	set   *upstreams
	done  chan struct{}
	over  atomic.Bool
	ended chan *outcome

	began    time.Time
	end      *time.Timer
	order    []*upstream // whom to ask, best first
	sent     int
	turn     int // into order
	live     int
	failures int
	failed   []*upstream // which refused, or hung up
	last     *attempt
	kept     outcome // a reply to give if nothing better comes

	// What came of it, once done is closed.
	reply *reply
	from  *upstream
	err   error
	ede   uint16
	text  string // of the extended error
}

// join gives the exchange that has q's question under way, or begins one.
func (s *upstreams) join(q *dns.Query, excluded *exclusion) *exchange {
	r := newRequest(q, s.options.forceTCP || q.Proto == dns.TCP && !s.options.preferUDP)
	key := r.key(q, excluded.id)
	s.flight.Lock()
	defer s.flight.Unlock()
	if x := s.flights[key]; x != nil {
		s.coalesced.Add(1)
		return x
	}
	x := &exchange{request: r, set: s, done: make(chan struct{}), ended: make(chan *outcome, 2*mostSends)}
	s.flights[key] = x
	work := func() {
		x.run(excluded)
		x.over.Store(true)
		s.flight.Lock()
		delete(s.flights, key)
		s.flight.Unlock()
		close(x.done)
	}
	if !s.spawn(work) {
		delete(s.flights, key)
		x.fail(errStopped, wire.EDENoReachable)
		close(x.done)
	}
	return x
}

func (x *exchange) fail(err error, ede uint16) { x.err, x.ede, x.text = err, ede, err.Error() }

// run asks until there is an answer, or nobody left to ask.
func (x *exchange) run(excluded *exclusion) {
	var err error
	if x.order, err = x.set.order(excluded); err != nil && !x.triesAllTheSame(err) {
		x.fail(err, wire.EDENoReachable)
		return
	}
	x.began, x.end = time.Now(), time.NewTimer(allowed)
	defer x.end.Stop()
	retry := time.NewTimer(x.send(x.next()))
	defer retry.Stop()
	for {
		select {
		case o := <-x.ended:
			again, done := x.take(*o)
			switch {
			case done:
				return
			case again != nil:
				retry.Reset(x.send(again))
			case x.live == 0 && !x.more():
				x.giveUp()
				return
			}
		case <-retry.C:
			if len(x.ended) > 0 {
				retry.Reset(0) // this process was late, and not the upstream
				continue
			}
			if x.last != nil {
				x.last.to.waits()
			}
			switch {
			case x.allDown():
				x.giveUp()
				return
			case x.more():
				retry.Reset(x.sendAgain())
			}
		case <-x.end.C:
			x.giveUp()
			return
		case <-x.set.ctx.Done():
			x.fail(errStopped, wire.EDENoReachable)
			return
		}
	}
}

// more says whether the question may be sent once more: with a whole reply at
// hand, only to those who have not been asked.
func (x *exchange) more() bool {
	if x.kept.reply != nil && !x.kept.reply.cut && x.turn >= len(x.order) {
		return false
	}
	most := x.set.options.maxAttempts
	if most < 0 {
		most = 2 * len(x.order)
	}
	return x.sent < mostSends && (most == 0 || x.failures < most)
}

// allDown says that health checks have failed meanwhile.
func (x *exchange) allDown() bool {
	return !slices.ContainsFunc(x.order, func(u *upstream) bool { return !u.down() })
}

// next is an attempt at the next upstream in turn. From the second time around
// those that have failed, or do not answer anybody, are left out, if there are
// others.
func (x *exchange) next() *attempt {
	n := len(x.order)
	if x.turn >= n {
		x.turn += x.unfit()
	}
	a := x.attempt(x.order[x.turn%n])
	a.fresh = x.turn >= n
	x.turn++
	return a
}

// unfit is how many there are in turn before one that may answer.
func (x *exchange) unfit() int {
	n, now := len(x.order), time.Now()
	silent := -1
	for i := range n {
		switch u := x.order[(x.turn+i)%n]; {
		case u.down() || slices.Contains(x.failed, u):
		case !u.suspect(now):
			return i
		case silent < 0:
			silent = i
		}
	}
	return max(silent, 0)
}

func (x *exchange) attempt(u *upstream) *attempt {
	return &attempt{request: &x.request, stream: x.stream, to: u, over: &x.over, ended: x.ended}
}

// sendAgain is send for a question that has been waiting.
func (x *exchange) sendAgain() time.Duration {
	a := x.next()
	a.to.counted.retries.Add(1)
	return x.send(a)
}

// send sends a and says how long to leave it alone, and half as long again with
// each further round.
func (x *exchange) send(a *attempt) (wait time.Duration) {
	x.sent++
	x.live++
	x.last = a
	wait = x.leave(a.to)
	if a.stream {
		wait *= 3 // the connection has to be made first
	}
	for range (x.sent - 1) / len(x.order) {
		wait += wait / 2
	}
	a.to.send(a)
	return min(wait, x.set.options.readTimeout)
}

// leave is how long a question is left to u alone: as long as u usually takes,
// or until others would have answered several times. One that has been letting
// questions wait gets no longer than they take.
func (x *exchange) leave(u *upstream) time.Duration {
	wait, times := u.tail(), time.Duration(outpaced)
	if x.set.options.policy == sequential {
		return wait // the first is preferred, however slow
	}
	if u.suspect(time.Now()) {
		times = 1
	}
	for _, other := range x.order {
		if wait <= times*retryLeast {
			break
		}
		wait = min(wait, times*other.tail())
	}
	return wait
}

// take looks at an outcome. It gives a further attempt to send now, if there is
// reason for one, or says that all is done.
func (x *exchange) take(o outcome) (again *attempt, done bool) {
	if o.nudge {
		if x.last == o.attempt && x.more() {
			x.last.to.counted.retries.Add(1)
			return x.next(), false
		}
		return nil, false
	}
	x.live--
	if x.last == o.attempt {
		x.last = nil
	}
	switch {
	case o.err != nil:
		return x.takeError(o), false
	case o.edns && o.reply.dislikes() && x.sent < mostSends:
		again = x.attempt(o.to)
		again.bare = true
		return again, false
	case o.reply.cut && !o.stream && x.sent < mostSends:
		if !x.stream { // where TCP is blocked on the way, what has come is given
			x.end.Reset(min(max(x.set.options.readTimeout, dialTime), time.Until(x.began.Add(allowed))))
		}
		x.kept, x.stream = o, true
		return x.attempt(o.to), false
	case slices.Contains(x.set.options.failover, o.reply.code) && (x.turn < len(x.order) || x.live > 0):
		if x.kept.reply == nil || !x.kept.reply.cut {
			x.kept = o
		}
		if x.more() {
			again = x.next()
		}
		return again, false
	}
	x.reply, x.from = o.reply, o.to
	return nil, true
}

// takeError sends the question on at once, as long as that is no flood. Where
// one was waited for in vain, others have been asked meanwhile.
func (x *exchange) takeError(o outcome) *attempt {
	x.err, x.from = o.err, o.to
	late := isTimeout(o.err)
	if !late {
		x.failed = append(x.failed, o.to)
	}
	if x.set.options.maxAttempts >= 0 || !late {
		x.failures++
	}
	if !x.more() || late && x.live > 0 || x.failures >= 2*len(x.order) {
		return nil
	}
	a := x.next()
	a.to.counted.retries.Add(1)
	a.stream = a.stream || o.err == errGuessed // where guesses do not get through
	return a
}

// giveUp makes the best of what has come.
func (x *exchange) giveUp() {
	switch {
	case x.kept.reply != nil:
		x.reply, x.from, x.err = x.kept.reply, x.kept.to, nil
	case x.err == nil && x.last != nil:
		x.from = x.last.to
		x.fail(x.last.timedOut(), wire.EDENoReachable)
	case x.err == nil:
		x.fail(errUnhealthy, wire.EDENoReachable)
	case isTimeout(x.err):
		x.fail(x.err, wire.EDENoReachable)
	default:
		x.fail(x.err, wire.EDENetworkError)
	}
	if x.err != nil && x.from != nil {
		x.text = fmt.Sprintf("no answer from %s", x.from)
	}
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

// triesAllTheSame says whether one upstream is asked although none is healthy,
// and no longer than it usually takes: it may be health checks alone that fail,
// and any answer makes the upstream healthy.
func (x *exchange) triesAllTheSame(err error) bool {
	if err != errUnhealthy {
		return false
	}
	x.set.broken.Add(1)
	return len(x.order) > 0 && x.order[0].worthTrying(time.Now())
}

// write makes r the answer to q.
func (r *reply) write(q *dns.Query) {
	q.Answer.Append(wire.Answers, r.records, 0)
	q.Answer.Count = r.count
	q.RCode = r.code
	q.AA = r.flags&wire.FlagAA != 0
	q.RA = r.flags&wire.FlagRA != 0
	q.AD = r.flags&wire.FlagAD != 0
	q.TC = r.cut
	q.Cacheable = !r.cut && !r.poor
	for code, data := range wire.Options(r.options) {
		if code != wire.OptionNSID || asksName(q) {
			q.AddReplyOption(code, data)
		}
	}
}

// asksName says whether rewrite has the upstream asked for its name.
func asksName(q *dns.Query) bool {
	for code := range wire.Options(q.Options) {
		if code == wire.OptionNSID {
			return true
		}
	}
	return false
}
