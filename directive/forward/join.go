package forward

import (
	"bytes"
	"errors"
	"hash/maphash"
	"slices"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/sys/clock"
	"github.com/seamark/seamark/sys/slots"
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

// join returns the exchange for q, which is a new one unless an equal query is being
// sent. If observed, it keeps the messages for observers. wake is called when it
// finishes, perhaps before join returns.
func (s *upstreamSet) join(q *dns.Query, excluded []string, observed bool, wake func()) *exchange {
	r := newRequest(q, s.options.forceTCP || q.Proto == dns.TCP && !s.options.preferUDP && !s.options.preferTCP)
	r.observed = observed
	hash := s.hashOf(q.Name(), q.Type)

	s.exchangeMu.Lock()
	first := s.exchanges[hash]
	var last *exchange
	for x := first; x != nil; x = x.nextSimilar {
		if slices.Equal(x.excluded, excluded) && x.request.equal(&r) {
			s.coalesced.Add(1)
			x.wakes = append(x.wakes, wake)
			x.shareWith(first, q.Peer.Addr())
			s.exchangeMu.Unlock()
			return x
		}
		last = x
	}

	// Over its share, x waits for its turn, but not longer than for a reply.
	x := &exchange{
		request: r, useStream: r.stream, set: s, hash: hash, client: q.Peer.Addr(), excluded: excluded, wakes: []func(){wake},
		counted: slots.Client(q.Peer.Addr()),
	}
	var begin func()
	var displaced *exchange
	if s.unanswered.silent(hash, &x.request) {
		s.skipped.Add(1)
		x.begun = true
		begin = func() { x.setError(errUnanswered, wire.EDECached); x.finish() }
	} else {
		begin, displaced = x.admit(first)
	}
	if last != nil {
		last.nextSimilar = x
	} else {
		s.exchanges[hash] = x
	}
	s.exchangeMu.Unlock()

	if s.enter() {
		defer s.running.Done()
		if displaced != nil {
			displaced.process(displaced.refuse)
		}
		x.process(begin)
	} else {
		x.stop()
	}
	return x
}

// hashOf returns the hash of a name, in lower case, and a type.
func (s *upstreamSet) hashOf(name []byte, t wire.Type) uint64 {
	return maphash.Bytes(s.seed, name) + uint64(t)
}

// equal reports whether the two requests have equal answers.
func (r *request) equal(o *request) bool {
	n := len(r.question)
	return n == len(o.question) && wire.SameName(r.question[:n-4], o.question[:n-4]) &&
		bytes.Equal(r.question[n-4:], o.question[n-4:]) &&
		r.flags == o.flags && r.do == o.do && r.stream == o.stream &&
		bytes.Equal(r.options, o.options) && r.ownZones.Equal(o.ownZones)
}

// finish ends x with a result.
func (x *exchange) finish() {
	x.set.timers.Stop(&x.timer)
	if x.sent > 0 {
		x.remember()
	}

	x.set.exchangeMu.Lock()
	x.end()
}

// abandon ends x, unless another query than the one just refused waits for it, so that upstreams
// are no longer asked.
func (x *exchange) abandon() {
	if !x.set.enter() {
		return // the set ends x
	}
	defer x.set.running.Done()
	x.process(func() {
		x.set.exchangeMu.Lock()
		if len(x.wakes) > 1 {
			x.set.exchangeMu.Unlock()
			return
		}
		x.setError(errLimit, wire.EDEOther)
		x.end()
		x.set.timers.Stop(&x.timer)
	})
}

// end wakes the queries that wait for x, and begins the similar exchanges whose turn it is now.
// The caller holds exchangeMu; end unlocks it.
func (x *exchange) end() {
	x.finished.Store(true)
	wakes := x.wakes
	x.wakes = nil // attempts may refer to x for longer
	begin := x.removeSimilar()
	x.set.exchangeMu.Unlock()

	for _, wake := range wakes {
		wake()
	}
	for _, next := range begin {
		next.process(next.start)
	}
}

// removeSimilar removes x from the exchanges for its name and type. It returns those that may
// begin now. The caller holds exchangeMu.
func (x *exchange) removeSimilar() (begin []*exchange) {
	first := x.set.exchanges[x.hash]
	at := &first
	for *at != x {
		at = &(*at).nextSimilar
	}
	*at, x.nextSimilar = x.nextSimilar, nil

	if first == nil {
		delete(x.set.exchanges, x.hash)
		return nil
	}
	x.set.exchanges[x.hash] = first
	for next := first.next(); next != nil; next = first.next() {
		next.begun = true
		begin = append(begin, next)
	}
	return begin
}

// startTimer starts the time for x.
func (x *exchange) startTimer() {
	x.deadline = clock.Now() + exchangeTimeout
	x.retryAt = x.deadline
	x.timer.Expired = func() {
		if x.set.enter() {
			defer x.set.running.Done()
			x.process(x.timerExpired)
		}
	}
	x.setTimer()
}
