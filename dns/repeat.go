package dns

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/wire"
)

// A Repeater repeats replies: for a short time it answers queries that are equal to an
// earlier one, except for the ID, before they reach a Port. It is safe for concurrent use.
type Repeater interface {
	// Keep makes it repeat q's reply, for q.RepeatFor at most. It may do nothing, and must
	// not keep q. It must call q.MayRepeat while it holds a lock that Forget takes.
	Keep(q *Query)
	// Forget ends the repetition of all replies.
	Forget()
}

// Repeatable is implemented by handlers and observers that need not see each query. If a
// handler below answers q and allows to repeat the reply, RepeatableDNS reports whether equal
// queries, from any client, would be treated in the same way. Replies are repeated only in
// chains whose handlers and observers all implement it.
type Repeatable interface {
	RepeatableDNS(q *Query) bool
}

// A RepeatCounter is a handler or an observer that counts repeated replies.
type RepeatCounter interface {
	CountRepeats(r *Repeated, n uint64)
}

// Repeated has what counters need to know of a repeated reply.
type Repeated struct {
	Chain                *Chain
	IPv4, DO             bool
	Type                 wire.Type
	RCode                wire.RCode
	Kind                 uint8 // as Query.RepeatKind
	Step                 int   // as Query.AnsweredStep
	QuerySize, ReplySize int
}

// Count counts n repetitions.
func (r *Repeated) Count(n uint64) {
	for _, c := range r.Chain.repeatCounters {
		c.CountRepeats(r, n)
	}
}

// Repeated returns the description of q's reply.
func (q *Query) Repeated() Repeated {
	return Repeated{
		Chain: q.chain, IPv4: q.Peer.Addr().Is4(), DO: q.DO, Type: q.Type, RCode: q.RCode, Kind: q.RepeatKind,
		Step: q.answeredBy, QuerySize: len(q.packet), ReplySize: len(q.Answer.Buf),
	}
}

// MayRepeat reports whether the configuration that made the reply is still used.
func (q *Query) MayRepeat() bool { return q.mux != nil && q.mux.repeats != nil && q.mux.repeats.Load() }

// repeatable reports whether equal queries would get the same reply for q.RepeatFor.
func (q *Query) repeatable() bool {
	if q.RepeatFor <= 0 || !q.MayRepeat() || q.Proto != UDP || q.dropped || q.TC || q.Err != nil || q.Opcode() != 0 || q.Class != wire.ClassIN ||
		q.subQueried || q.signer != nil || q.chain == nil || q.chain.unrepeatable || len(q.Request.Options(q.packet)) > 0 {
		return false
	}
	for _, r := range q.chain.repeatables {
		if !r.RepeatableDNS(q) {
			return false
		}
	}
	return true
}

// addRepeatable considers a new handler or observer of c.
func (c *Chain) addRepeatable(v any) {
	r, ok := v.(Repeatable)
	if !ok {
		c.unrepeatable = true
		return
	}
	c.repeatables = append(c.repeatables, r)
	if counter, ok := v.(RepeatCounter); ok && !slices.Contains(c.repeatCounters, counter) {
		c.repeatCounters = append(c.repeatCounters, counter)
	}
}

// Repeat makes r repeat replies of m's queries. It must be called after Route, before m
// serves. If the chain of a zone depends on the client, nothing is repeated.
func (m *Mux) Repeat(r Repeater) {
	for _, chains := range m.zones.All() {
		for _, c := range chains {
			if c.Match != nil {
				return
			}
		}
	}
	m.repeater, m.repeats = r, new(atomic.Bool)
	m.repeats.Store(true)
}

// stopRepeating ends the repetition of replies, because another Mux serves.
func (m *Mux) stopRepeating() {
	if m != nil && m.repeater != nil {
		m.repeats.Store(false)
		m.repeater.Forget()
	}
}

// MaxRepeat is the largest useful value of Query.RepeatFor.
const MaxRepeat = time.Second
