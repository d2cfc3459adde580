package dns

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/sys/generation"
	"github.com/seamark/seamark/wire"
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
	// Rotates reports that the addresses of an RRset are in another order each time.
	Rotates bool
}

// Repeated has what counters need to know of a repeated reply.
type Repeated struct {
	Chain                *Chain
	IPv4, DO             bool
	Type                 wire.Type
	RCode                wire.RCode
	Step                 int // as Query.AnsweredStep
	QuerySize, ReplySize int

	Allowed Repeat
	Rotates bool // the addresses of an RRset
}

// A Repeat describes how long a reply may be repeated, and how.
type Repeat struct {
	For   time.Duration    // from Start on
	While generation.Stamp // and while it is current: it was read before the data that the answer was made from
	Tick  time.Duration    // until TTLs decrease, the first time, and then each second; 0 if they do not
	Hits  *metrics.Counter // of repeated replies; may be nil
	Step  int              // with Hits: of the handler that repeated replies are of, as Query.AnsweredStep
}

// AllowRepeat is called by a handler that would give the same answer to equal queries, but for its
// TTLs, as r describes.
func (q *Query) AllowRepeat(r Repeat) { q.repeat = r }

// Repeated returns the description of q's reply.
func (q *Query) Repeated() Repeated {
	r := Repeated{
		Chain: q.chain, IPv4: q.Peer.Addr().Is4(), DO: q.DO, Type: q.Type, RCode: q.RCode,
		Step: q.answeredBy, QuerySize: len(q.packet), ReplySize: len(q.Answer.Buf), Allowed: q.repeat,
	}
	if q.repeat.Hits != nil {
		r.Step = q.repeat.Step
	}
	for _, p := range q.chain.repetitions {
		r.Rotates = r.Rotates || p.Rotates
	}
	return r
}

// Count counts n repetitions.
func (r *Repeated) Count(n uint64) {
	if r.Allowed.Hits != nil {
		r.Allowed.Hits.Add(n)
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
	q.repeat.For -= q.Elapsed
	if q.repeat.Tick != 0 {
		q.repeat.Tick -= q.Elapsed
	}
	if q.repeat.For > 0 && q.MayRepeat() && q.repeatable() {
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
