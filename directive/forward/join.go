package forward

import (
	"bytes"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

const (
	// maxSimilar is the maximum number of exchanges for one name and type, for
	// example with different EDNS options, that send queries at the same time. With
	// many of them a forged reply is more likely to match one (RFC 5452 §5).
	maxSimilar = 8
	// maxWaitingSimilar bounds the exchanges that wait until one of them ends.
	maxWaitingSimilar = 64
)

var errSimilar = errors.New("too many different queries for the name and type are waiting")

// similarExchanges are the exchanges for one name and type. upstreamSet.exchangeMu
// guards them.
type similarExchanges struct {
	key  string      // name and type
	list []*exchange // the first maxSimilar have started
}

// join returns the exchange for q, which is a new one unless an equal query is
// being sent. wake is called when it finishes, perhaps before join returns.
func (s *upstreamSet) join(q *dns.Query, excluded *exclusion, wake func()) *exchange {
	r := newRequest(q, s.options.forceTCP || q.Proto == dns.TCP && !s.options.preferUDP)
	t := r.question[len(r.question)-4:][:2]
	key := append(append(make([]byte, 0, wire.MaxName+2), q.Name()...), t...)
	s.exchangeMu.Lock()
	similar := s.exchanges[string(key)]
	if similar == nil {
		similar = &similarExchanges{key: string(key)}
		s.exchanges[similar.key] = similar
	}
	for _, x := range similar.list {
		if x.excluded.id == excluded.id && x.request.equal(&r) {
			s.coalesced.Add(1)
			x.wakes = append(x.wakes, wake)
			s.exchangeMu.Unlock()
			return x
		}
	}
	x := &exchange{request: r, useStream: r.stream, set: s, similar: similar, excluded: excluded, wakes: []func(){wake}}
	begin := x.start
	switch n := len(similar.list); {
	case n >= maxSimilar+maxWaitingSimilar:
		begin = func() { x.setError(errSimilar, wire.EDENoReachable); x.finish() }
	case n >= maxSimilar:
		begin = x.startTimer
	}
	similar.list = append(similar.list, x)
	s.exchangeMu.Unlock()
	if s.enter() {
		defer s.running.Done()
		x.process(begin)
	} else {
		x.stop()
	}
	return x
}

// equal reports whether the two requests, which have the same name and type, have equal
// answers.
func (r *request) equal(o *request) bool {
	class := func(r *request) []byte { return r.question[len(r.question)-2:] }
	return r.flags == o.flags && r.do == o.do && r.stream == o.stream &&
		bytes.Equal(class(r), class(o)) && bytes.Equal(r.options, o.options) && maps.Equal(r.ownZones, o.ownZones)
}

// finish wakes the queries that wait for x, and starts an exchange that waits for the
// end of a similar one.
func (x *exchange) finish() {
	if x.timer != nil {
		x.timer.Stop()
	}
	x.set.exchangeMu.Lock()
	x.finished.Store(true)
	wakes := x.wakes
	x.wakes = nil // attempts may refer to x for longer
	var next *exchange
	i := slices.Index(x.similar.list, x)
	x.similar.list = slices.Delete(x.similar.list, i, i+1)
	switch list := x.similar.list; {
	case len(list) == 0:
		delete(x.set.exchanges, x.similar.key)
	case i < maxSimilar && len(list) >= maxSimilar:
		next = list[maxSimilar-1]
	}
	x.set.exchangeMu.Unlock()
	for _, wake := range wakes {
		wake()
	}
	if next != nil {
		next.process(next.start)
	}
}

// startTimer starts the time for x.
func (x *exchange) startTimer() {
	x.deadline = time.Now().Add(exchangeTimeout)
	x.retryAt = x.deadline
	x.timer = time.AfterFunc(exchangeTimeout, func() {
		if x.set.enter() {
			defer x.set.running.Done()
			x.process(x.timerExpired)
		}
	})
}
