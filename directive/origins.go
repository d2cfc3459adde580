package directive

import (
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// A source is who knew the answer to a query.
type source uint8

const (
	bySelf   source = iota // this server, even if all it knew is that it has no answer
	byMemory               // a cache
	byOthers               // the upstreams of a forward for all names
	byStub                 // those of a forward for some names
)

// Origins tell for the queries of a server block who knew the answer. What a
// handler made of the answers to further questions counts as its own.
type origins struct {
	steps  []source // by place in the chain
	memory memory   // nil if the block has none
}

// A memory keeps the answers of others: cache does.
type memory interface {
	// Answered gives the place of the handler whose answer q has, or says that
	// the answer was kept.
	Answered(q *dns.Query) (step int, kept bool)
	// Statistics is how many answers there may be, how many were put in, and how
	// many of these had to go before their time.
	Statistics() (capacity int, inserted, evicted uint64)
}

// A sender asks other servers: forward does.
type sender interface {
	// From is the zone whose names it asks for.
	From() wire.Name
	// Sent tells for each upstream the questions that it was sent, and those of
	// them that it did not answer.
	Sent(yield func(upstream string, questions, unanswered uint64))
}

// newOrigins looks at b, whose directives have all been set up.
func newOrigins(b *config.Block) (s origins) {
	senders := config.Find[sender](b)
	for _, step := range b.Chain.Steps() {
		from := bySelf
		if len(senders) > 0 && b.NameOf(senders[0]) == step.Name {
			if from = byOthers; senders[0].From() != wire.Root {
				from = byStub
			}
			senders = senders[1:]
		}
		s.steps = append(s.steps, from)
	}
	if found := config.Find[memory](b); len(found) > 0 {
		s.memory = found[0]
	}
	return s
}

// of tells for a query that is finished.
func (s *origins) of(q *dns.Query) source {
	step, kept := q.AnsweredStep(), false
	if s.memory != nil {
		step, kept = s.memory.Answered(q)
	}
	switch {
	case kept:
		return byMemory
	case step < 0:
		return bySelf
	}
	return s.steps[step]
}
