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
)

var (
	errStopped   = errors.New("forward has been stopped")
	errBusy      = errors.New("too many questions are waiting for the upstream")
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
	ended chan outcome

	order    []*upstream // whom to ask, best first
	sent     int
	turn     int // into order
	live     int
	failures int
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
	x := &exchange{request: r, set: s, done: make(chan struct{}), ended: make(chan outcome, 2*mostSends)}
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
	if x.order, err = x.set.order(excluded); err != nil {
		x.unreachable(err)
		return
	}
	end := time.NewTimer(allowed)
	defer end.Stop()
	retry := time.NewTimer(x.send(x.next()))
	defer retry.Stop()
	for {
		select {
		case o := <-x.ended:
			again, done := x.take(o)
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
			if x.last != nil {
				x.last.to.waits()
			}
			if x.more() {
				retry.Reset(x.sendAgain())
			}
		case <-end.C:
			x.giveUp()
			return
		case <-x.set.ctx.Done():
			x.fail(errStopped, wire.EDENoReachable)
			return
		}
	}
}

// more says whether the question may be sent once more.
func (x *exchange) more() bool {
	most := x.set.options.maxAttempts
	if most < 0 {
		most = 2 * len(x.order)
	}
	return x.sent < mostSends && (most == 0 || x.failures < most)
}

// next is an attempt at the next upstream in turn.
func (x *exchange) next() *attempt {
	u := x.order[x.turn%len(x.order)]
	a := x.attempt(u)
	a.fresh = x.turn >= len(x.order)
	x.turn++
	return a
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

// send sends a and says how long to leave it alone: as long as its upstream
// takes, and twice that with each further round.
func (x *exchange) send(a *attempt) (wait time.Duration) {
	x.sent++
	x.live++
	x.last = a
	wait = a.to.tail()
	if a.stream {
		wait *= 3 // the connection has to be made first
	}
	wait <<= min((x.sent-1)/len(x.order), 8)
	a.to.send(a)
	return min(wait, x.set.options.readTimeout)
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
	case o.edns && !o.reply.edns && (o.reply.code == wire.FormErr || o.reply.code == wire.NotImp) && x.sent < mostSends:
		return x.attempt(o.to), false // which is going to be asked without
	case o.reply.cut && !o.stream && x.sent < mostSends:
		x.kept, x.stream = o, true
		return x.attempt(o.to), false
	case slices.Contains(x.set.options.failover, o.reply.code) && x.turn < len(x.order):
		x.kept = o
		return x.next(), false
	}
	x.reply, x.from = o.reply, o.to
	return nil, true
}

// takeError sends the question on at once, as long as that is no flood.
func (x *exchange) takeError(o outcome) *attempt {
	x.err = o.err
	x.from = o.to
	x.failures++
	if !x.more() || x.sent >= 2*len(x.order) {
		return nil
	}
	x.order[x.turn%len(x.order)].counted.retries.Add(1)
	return x.next()
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

// unreachable answers at once that nobody can be asked. Where health checks
// alone fail, a question may get through: one of them is sent all the same, and
// its answer, for which nobody waits, makes the upstream healthy.
func (x *exchange) unreachable(err error) {
	x.fail(err, wire.EDENoReachable)
	if err != errUnhealthy {
		return
	}
	x.set.broken.Add(1)
	if len(x.order) > 0 {
		a := x.attempt(x.order[0])
		a.probe, a.over = true, new(atomic.Bool)
		a.to.send(a)
	}
}

// write makes r the answer to q.
func (r *reply) write(q *dns.Query) {
	q.Answer.Append(wire.Answers, r.records, 0)
	q.Answer.Count = r.count
	q.RCode = r.code
	q.AA = r.flags&wire.FlagAA != 0
	q.RA = r.flags&wire.FlagRA != 0
	q.AD = r.flags&wire.FlagAD != 0 && (q.DO || q.Flags&wire.FlagAD != 0)
	q.TC = r.cut
	q.Learned = !r.cut
	for o := r.options; len(o) >= 4; {
		n := 4 + int(o[2])<<8 + int(o[3])
		q.ReplyOption(uint16(o[0])<<8|uint16(o[1]), o[4:n])
		o = o[n:]
	}
}
