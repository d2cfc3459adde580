package dns

import (
	"cmp"
	"fmt"
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
	// Sample, if it is not nil, sees finished queries to which replies were repeated, unless Samples returns
	// NoSamples: a sample of them, as each stands for a number of queries, its weight.
	Sample  func(q *Query, weight float64)
	Samples func() SampleRate
	// Rotates reports that the addresses of an RRset are in another order each time.
	Rotates bool
}

// A SampleRate is how many samples a handler or an observer wants.
type SampleRate int

const (
	NoSamples   SampleRate = iota
	FewSamples             // for estimates: each second some
	ManySamples            // to look at: as many as can be passed, at once
)

// Repeated has what counters need to know of a repeated reply.
type Repeated struct {
	Chain                *Chain
	IPv4, DO             bool
	Type                 wire.Type
	RCode                wire.RCode
	Step                 int // as Query.AnsweredStep
	QuerySize, ReplySize int
	// Name is the name of the queries that Count counts, in wire form and in lower case; nil if it is not known.
	Name []byte

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
	// Refused is why the reply may not be repeated if For is zero, for an explanation.
	Refused string
}

// AllowRepeat is called by a handler that would give the same answer to equal queries, but for its
// TTLs, as r describes, or that refuses it for a reason.
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

// SampleRate returns the highest rate at which a handler or an observer of c wants samples of the queries to which
// replies are repeated.
func (c *Chain) SampleRate() (rate SampleRate) {
	for _, p := range c.repetitions {
		rate = max(rate, p.sampleRate())
	}
	return rate
}

func (p *repetition) sampleRate() SampleRate {
	if p.Sample == nil {
		return NoSamples
	}
	return p.Samples()
}

// Sample passes a query that was answered by the repetition of r to what wants samples. The caller has
// called q.Reset and set the addresses.
func (r *Repeated) Sample(q *Query, reply []byte, weight float64) {
	if q.Parse(q.packet) != wire.NoFault {
		return
	}
	q.enter(r.Chain)
	q.answeredBy, q.RCode, q.sealed = r.Step, r.RCode, true
	q.Answer.Reset(q.Answer.Buf, nil)
	q.Answer.Buf = append(q.Answer.Buf[:0], reply...)

	for _, p := range r.Chain.repetitions {
		if p.sampleRate() > NoSamples {
			p.Sample(q, weight)
		}
	}
	q.release()
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
	if q.repeat.For > 0 && q.MayRepeat() && q.mux.keep != nil && q.whyUnrepeatable() == "" {
		q.mux.keep(q)
	}
}

// whyUnrepeatable returns why equal queries would get another reply, or "".
func (q *Query) whyUnrepeatable() string {
	switch {
	case q.Proto != UDP:
		return "it is too large for UDP"
	case q.Opcode() != 0, q.Class != wire.ClassIN, len(q.Request.Options(q.packet)) > 0, q.Signature != nil:
		return "the query is of a kind that the server has to see"
	case q.dropped:
		return "there is none"
	case q.TC, q.Err != nil:
		return "it is not complete"
	case q.subQueried:
		return "it depends on the answer for another name"
	case q.chain == nil, q.chain.unrepeatable:
		return "a directive has to see each query"
	}

	for _, p := range q.chain.repetitions {
		if p.Allows != nil && !p.Allows(q) {
			return "the name may be in the cluster from the next change on"
		}
	}
	return ""
}

// A RepeatExplanation explains whether a node's kernel repeats the reply to a query, and for how long.
type RepeatExplanation struct {
	For     time.Duration `json:"for"`               // at most, in nanoseconds: until the data of the answer change
	Refused string        `json:"refused,omitempty"` // if For is zero, the reason
}

// String returns a sentence.
func (r *RepeatExplanation) String() string {
	if r.Refused != "" {
		return "The kernel does not repeat the reply: " + r.Refused + "."
	}
	return fmt.Sprintf("The kernel repeats the reply until its data change, for %v at most.", r.For.Round(time.Second))
}

// explainRepeat explains whether q's reply is repeated. It returns nil if q's address repeats none, and no
// directive is the reason for it.
func (q *Query) explainRepeat() *RepeatExplanation {
	refused := func(why string) *RepeatExplanation { return &RepeatExplanation{Refused: why} }
	switch {
	case q.chain == nil:
		return nil
	case q.chain.Unrepeated != "":
		return refused("the directive " + q.chain.Unrepeated + " has to see each query")
	case !q.MayRepeat():
		return nil
	}

	left := q.repeat.For - time.Since(q.Start)
	if why := q.whyUnrepeatable(); why != "" {
		return refused(why)
	}
	switch why := q.repeat.Refused; {
	case q.answeredBy < 0:
		return refused("no directive has answered")
	case why != "" || left <= 0:
		return refused(cmp.Or(why, "the directive "+q.chain.steps[q.answeredBy].name+" does not allow it for this answer"))
	}
	if q.mux.Unsuitable != nil {
		if why := q.mux.Unsuitable(q); why != "" {
			return refused(why)
		}
	}
	return &RepeatExplanation{For: left}
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
