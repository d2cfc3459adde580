package dns

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/sys/generation"
	"github.com/seamark/seamark/wire"
)

// MaxRepeat is the longest useful time for AllowRepeat, and MaxRepeatWhile the time of
// AllowRepeatWhile, which bounds the age of what its Stamp leaves out: the serials of SOA records.
const (
	MaxRepeat      = time.Second
	MaxRepeatWhile = 30 * time.Second
)

// Repeatable is implemented by handlers and observers that need not see each query. Replies
// are repeated without the server only in chains whose handlers and observers all implement
// it, and only if the handler that answers calls AllowRepeat.
type Repeatable interface{ Repetition() Repetition }

// A Repetition describes what replies that are repeated without it mean to a handler or an
// observer: mostly nothing, and then it is zero.
type Repetition struct {
	// Allows reports whether queries equal to q, from any client, would be treated as q was.
	// nil means that they always would.
	Allows func(q *Query) bool
	// Count adds n repeated replies to the metrics. It may be nil.
	Count func(r *Repeated, n uint64)
}

// Repeated has what counters need to know of a repeated reply.
type Repeated struct {
	Chain                *Chain
	IPv4, DO             bool
	Type                 wire.Type
	RCode                wire.RCode
	Step                 int // as Query.AnsweredStep
	QuerySize, ReplySize int

	allowed repeat
}

// A repeat is what the handler that answers has passed to AllowRepeat.
type repeat struct {
	duration time.Duration
	hits     *metrics.Counter
	stamp    generation.Stamp
}

// AllowRepeat is called by a handler that would give the same answer, with the same TTLs, to
// equal queries until d after Start. hits, if it is not nil, counts the repeated replies.
func (q *Query) AllowRepeat(d time.Duration, hits *metrics.Counter) {
	q.repeat = repeat{duration: d, hits: hits}
}

// AllowRepeatWhile is AllowRepeat for an answer that may change at any time. It is repeated while
// s is current, which was read before the data that the answer was made from, but no longer than
// MaxRepeatWhile.
func (q *Query) AllowRepeatWhile(s generation.Stamp) {
	q.repeat = repeat{duration: MaxRepeatWhile, stamp: s}
}

// Repeated returns the description of q's reply.
func (q *Query) Repeated() Repeated {
	return Repeated{
		Chain: q.chain, IPv4: q.Peer.Addr().Is4(), DO: q.DO, Type: q.Type, RCode: q.RCode,
		Step: q.answeredBy, QuerySize: len(q.packet), ReplySize: len(q.Answer.Buf), allowed: q.repeat,
	}
}

// Duration returns how long the reply may be repeated.
func (r *Repeated) Duration() time.Duration { return r.allowed.duration }

// Stamp returns the Stamp while which the reply may be repeated. It is zero, which is always
// current, if the reply depends on the time alone.
func (r *Repeated) Stamp() generation.Stamp { return r.allowed.stamp }

// Count counts n repetitions.
func (r *Repeated) Count(n uint64) {
	if r.allowed.hits != nil {
		r.allowed.hits.Add(n)
	}
	for _, p := range r.Chain.repetitions {
		if p.Count != nil {
			p.Count(r, n)
		}
	}
}

// MayRepeat reports whether the configuration that made the reply is still used.
func (q *Query) MayRepeat() bool { return q.mux != nil && q.mux.repeats != nil && q.mux.repeats.Load() }

// keepRepeated lets the Mux's keeper repeat q's reply, if equal queries would get the same
// one for some time from now on.
func (q *Query) keepRepeated() {
	q.repeat.duration -= q.Elapsed
	if q.repeat.duration > 0 && q.MayRepeat() && q.repeatable() {
		q.mux.keep(q)
	}
}

// repeatable reports whether equal queries would get the same reply.
func (q *Query) repeatable() bool {
	switch {
	case q.Proto != UDP, q.Opcode() != 0, q.Class != wire.ClassIN, len(q.Request.Options(q.packet)) > 0:
		return false
	case q.dropped, q.TC, q.Err != nil, q.subQueried, q.signer != nil:
		return false
	case q.chain == nil, q.chain.unrepeatable:
		return false
	}

	for _, p := range q.chain.repetitions {
		if p.Allows != nil && !p.Allows(q) {
			return false
		}
	}
	return true
}

// A repetition is the Repetition of one handler or observer, or both.
type repetition struct {
	of Repeatable
	Repetition
}

// addRepetition considers a new handler or observer of c.
func (c *Chain) addRepetition(v any) {
	r, ok := v.(Repeatable)
	if !ok {
		c.unrepeatable = true
		return
	}
	if !slices.ContainsFunc(c.repetitions, func(p repetition) bool { return p.of == r }) {
		c.repetitions = append(c.repetitions, repetition{r, r.Repetition()})
	}
}

// Repeat makes keep repeat replies of m's queries: for the duration of q.Repeated it answers
// queries that are equal to q, except for the ID, before they reach a Port. keep may do
// nothing, and must not keep q; it must call q.MayRepeat while it holds a lock that forget
// takes. forget ends the repetition of all replies. Both are safe for concurrent use.
//
// Repeat must be called after Route, before m serves. If the chain of a zone depends on the
// client, nothing is repeated.
func (m *Mux) Repeat(keep func(q *Query), forget func()) {
	for _, chains := range m.zones.All() {
		if slices.ContainsFunc(chains, func(c *Chain) bool { return c.Match != nil }) {
			return
		}
	}
	m.keep, m.forget, m.repeats = keep, forget, new(atomic.Bool)
	m.repeats.Store(true)
}

// stopRepeating ends the repetition of replies, because another Mux serves.
func (m *Mux) stopRepeating() {
	if m != nil && m.repeats != nil {
		m.repeats.Store(false)
		m.forget()
	}
}
