package directive

import (
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// An origin is the part of the server that an answer came from.
type origin uint8

const (
	fromServer   origin = iota // this server's own data, or its own error
	fromCache                  // cache
	fromUpstream               // an upstream of a forward for all names
	fromStub                   // an upstream of a forward for some names
)

// origins finds out where the answers to a server block's queries come from.
// The answer that a handler assembles from the replies to sub-queries counts as
// its own.
type origins struct {
	steps []origin      // by index in the chain
	cache countingCache // nil if the block has none
}

// A countingCache is the cache directive.
type countingCache interface {
	// Answered returns the step of the handler that answered q, or reports that
	// the answer came from the cache.
	Answered(q *dns.Query) (step int, kept bool)
	// Statistics returns the capacity in answers, and how many answers were
	// inserted and evicted.
	Statistics() (capacity int, inserted, evicted uint64)
}

// A countingForward is a forward directive.
type countingForward interface {
	// From returns the zone whose names are forwarded.
	From() wire.Name
	// Sent yields each upstream with the number of queries sent to it and the
	// number of unanswered ones.
	Sent(yield func(upstream string, queries, unanswered uint64))
}

// newOrigins must be called after every directive of b has been set up.
func newOrigins(b *config.Block) (s origins) {
	forwards := config.Find[countingForward](b)
	for _, step := range b.Chain.Steps() {
		from := fromServer
		if len(forwards) > 0 && b.NameOf(forwards[0]) == step.Name {
			if from = fromUpstream; forwards[0].From() != wire.Root || step.Name == "stub_zones" {
				from = fromStub
			}
			forwards = forwards[1:]
		}
		s.steps = append(s.steps, from)
	}
	if found := config.Find[countingCache](b); len(found) > 0 {
		s.cache = found[0]
	}
	return s
}

// origin returns where the answer of a finished query came from.
func (o *origins) origin(q *dns.Query) origin {
	step, kept := q.AnsweredStep(), false
	if o.cache != nil {
		step, kept = o.cache.Answered(q)
	}
	switch {
	case kept:
		return fromCache
	case step < 0:
		return fromServer
	}
	return o.steps[step]
}
