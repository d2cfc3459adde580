// Package dns is the core: a Query that owns its packet, Handlers that say what
// they make of it, the Chain that it walks, the Mux that finds the chain, and
// the one place (seal.go) where a reply gets its header, its OPT and its size.
//
// Transports fill a Query and call Mux.Serve; handlers see nothing but the
// Query. This package opens no socket, starts no goroutine but those of parked
// queries (Lot), and never looks at configuration.
package dns

import (
	"context"
	"errors"
	"slices"

	"github.com/seamark/seamark/wire"
)

// A Verdict is what a handler says about a query.
type Verdict uint8

const (
	Next Verdict = iota // not mine, and I left the answer clean: ask the handler below
	Done                // the answer is complete; it may be empty (NODATA)
	Drop                // say nothing to the client; still observed
	Wait                // mine, but I must block: call my Resolve off the reader
)

// A Handler looks at a query on its way down. It must not block and must not
// keep q.
type Handler interface{ ServeDNS(q *Query) Verdict }

// A Resolver may block. Its Resolve is called, off the reader, after its
// ServeDNS has said Wait; a handler that is only a Resolver always waits. An
// error makes the answer SERVFAIL. It may ask those below with q.Next.
type Resolver interface {
	Resolve(ctx context.Context, q *Query) error
}

// A Finisher edits the answer on its way up, if its ServeDNS said Next; it is
// called exactly once for each such query, whatever happened below. It must not
// block.
type Finisher interface{ FinishDNS(q *Query) }

// A Joiner may answer in the place of handlers that would wait, or let queries
// with one question wait for one answer. When a handler below it, which it has
// said Next to, says Wait, it is asked whether it has q instead; below is how
// many steps further down that handler stands. If it has, those between finish
// as if an empty answer had come, and its own ServeDNS is called again, which
// then says Done or Wait; as for others that say so, its FinishDNS is not
// called. It is not asked about another question than the one that it has seen.
// It must not block.
type Joiner interface {
	JoinDNS(q *Query, below int) bool
}

// An Observer sees each client's query once, when its reply is sealed or it has
// been dropped. It changes nothing, and needs no place in the walk. Sub-queries
// are not observed.
type Observer interface{ ObserveDNS(q *Query) }

// A Chain is the handlers of one server block in the order in which a query
// meets them. It is immutable while it serves.
type Chain struct {
	Server string // the address it listens on, as metrics name it: "dns://:53"
	Zone   string // the zone it was found by
	// View names the condition under which queries come here, "" if there is
	// none, and Match tells whether it holds. Match sees the client's own
	// question, must not block, and changes nothing.
	View  string
	Match func(q *Query) bool

	steps     []step
	observers []Observer
	words     int
	slow      bool
	joins     bool // some step is a Joiner
	anyClass  bool // some step answers other classes than IN
}

type step struct {
	name     string
	handler  Handler
	resolver Resolver
	finisher Finisher
	joiner   Joiner
	anyClass bool
}

// A StateKey is the place of one handler's state in the queries of its chain. A
// handler asks for it when it is set up.
type StateKey int

// StateKey gives a handler of c a word of its own.
func (c *Chain) NewStateKey() StateKey {
	c.words++
	return StateKey(c.words - 1)
}

// AnyClass is implemented by handlers that queries of other classes than IN
// meet, too; they pass the others by. Answers says that it may have answers of
// such a class: a chain without any handler that may refuses them.
type AnyClass interface{ AnyClass() (answers bool) }

// Add puts h behind those that are there. It must be at least one of Handler
// and Resolver.
func (c *Chain) Add(name string, h any) {
	s := step{name: name}
	s.handler, _ = h.(Handler)
	s.resolver, _ = h.(Resolver)
	s.finisher, _ = h.(Finisher)
	s.joiner, _ = h.(Joiner)
	c.joins = c.joins || s.joiner != nil
	if any, ok := h.(AnyClass); ok {
		s.anyClass = true
		c.anyClass = c.anyClass || any.AnyClass()
	}
	if s.handler == nil && s.resolver == nil {
		panic("dns: " + name + " neither serves nor resolves")
	}
	c.steps = append(c.steps, s)
}

// empty says that nothing at all was written into the server block: as in
// CoreDNS its queries are refused.
func (c *Chain) empty() bool { return len(c.steps) == 0 && len(c.observers) == 0 }

// Observe adds an observer. Observers see a query in the order in which they
// were added.
func (c *Chain) Observe(o Observer) { c.observers = append(c.observers, o) }

// Exchange puts an observer into the place of another: what that keeps for this
// chain alone, which then need not be looked for. It is called before c serves.
func (c *Chain) Exchange(old, o Observer) {
	if i := slices.Index(c.observers, old); i >= 0 {
		c.observers[i] = o
	}
}

// CopyFor returns the same chain under another server's or zone's name.
func (c *Chain) CopyFor(server, zone string) *Chain {
	copied := *c
	copied.Server, copied.Zone = server, zone
	copied.steps, copied.observers = slices.Clone(c.steps), slices.Clone(c.observers)
	return &copied
}

// Slow makes every handler wait: each query leaves its reader at the first of
// them. The answers are the same; tests show it.
func (c *Chain) Slow() { c.slow = true }

// A AnsweredStep describes one handler for people: its directive and what it may do.
type Step struct {
	Name                       string
	Inline, MayWait, Finishing bool
}

// Steps lists the chain's handlers, top to bottom.
func (c *Chain) Steps() []Step {
	var steps []Step
	for _, s := range c.steps {
		steps = append(steps, Step{s.name, s.handler != nil, s.resolver != nil, s.finisher != nil})
	}
	return steps
}

// walk goes down from q.at. If nobody waits it then goes up again as far as
// floor, and the answer stands. If somebody does, q.at is his.
func (q *Query) walk(floor int) Verdict {
	steps := q.chain.steps
	for ; q.at < len(steps); q.at++ {
		if q.Class != wire.ClassIN && !steps[q.at].anyClass {
			continue
		}
		verdict := Wait
		if h := steps[q.at].handler; h != nil && !q.chain.slow {
			verdict = h.ServeDNS(q)
		}
		switch verdict {
		case Wait:
			if q.chain.joins && (!q.chain.slow || steps[q.at].handler == nil) && q.join(floor) {
				q.at--
				continue
			}
			return Wait
		case Next:
			continue
		}
		return q.up(floor, q.at, verdict)
	}
	// Nobody is left to ask. CoreDNS says SERVFAIL here too.
	q.Fail(wire.ServFail)
	q.Err = errNobody
	return q.up(floor, -1, Done)
}

// up lets those between by, who gave the verdict, and floor edit the answer.
func (q *Query) up(floor, by int, verdict Verdict) Verdict {
	q.by = by
	q.dropped = verdict == Drop
	q.climb(floor)
	return verdict
}

var errNobody = errors.New("no directive answers this name here")

// Unanswered says that no server block has the name, or none of its handlers
// took it.
func (q *Query) Unanswered() bool {
	return q.by < 0 && (q.Err == errNobody || q.Err == nil && q.RCode == wire.Refused)
}

func (q *Query) climb(floor int) {
	for q.at--; q.at >= floor; q.at-- {
		s := &q.chain.steps[q.at]
		if s.finisher != nil && (q.Class == wire.ClassIN || s.anyClass) {
			s.finisher.FinishDNS(q)
		}
	}
}

// join asks the Joiners between floor and the handler that says Wait, the
// nearest first. If one has q it stands at that one.
func (q *Query) join(floor int) bool {
	for i := q.at - 1; i >= floor; i-- {
		s := &q.chain.steps[i]
		if s.joiner == nil || q.Class != wire.ClassIN && !s.anyClass {
			continue
		}
		if q.instead != nil && q.changed > i || !s.joiner.JoinDNS(q, q.at-i) {
			continue // those above whoever has changed the question do not know this one
		}
		q.abandon()
		q.begin()
		q.climb(i + 1)
		q.begin()
		return true
	}
	return false
}

// begin takes back everything of an answer.
func (q *Query) begin() {
	q.Fail(wire.NoError)
	q.RA, q.Err = false, nil
}

// resume continues a query from where walk left it waiting, as long as it
// takes, and then up to floor.
func (q *Query) resume(ctx context.Context, floor int) {
	at := q.at
	s := &q.chain.steps[at]
	if q.chain.slow && s.handler != nil {
		switch verdict := s.handler.ServeDNS(q); verdict {
		case Next:
			q.at++
			if q.walk(floor) == Wait {
				// The handler may have said how long, which is otherwise
				// looked at when the query is parked.
				ctx, cancel := context.WithTimeout(ctx, q.allowed())
				defer cancel()
				q.resume(ctx, floor)
			}
			return
		case Done, Drop:
			q.up(floor, at, verdict)
			return
		}
		if q.join(floor) {
			q.resume(ctx, floor)
			return
		}
	}
	q.by, q.dropped = at, false
	if err := s.resolver.Resolve(ctx, q); err != nil {
		q.Fail(wire.ServFail)
		q.Err = err
	}
	q.abandon()
	q.at = at
	q.climb(floor)
}

// unwind runs the finishers that a panic, or an answer given up, has left out:
// those above where q stands, after those of its unfinished question. A
// finisher that panics itself does not keep the others from running.
func (q *Query) unwind() {
	q.abandon()
	for q.chain != nil && q.at >= q.floor {
		func() {
			defer func() { _ = recover() }()
			q.climb(q.floor)
		}()
	}
}

// abandon ends a further question that is still under way. What there is of
// its answer is not one.
func (q *Query) abandon() {
	s := q.sub
	if s == nil {
		return
	}
	if s.chain != nil && s.at >= s.floor {
		s.Fail(wire.ServFail)
		s.by = -1
	}
	s.unwind()
}

// Next asks the handlers below the one whose Resolve is running, waits for
// them, and returns when the answer stands.
func (q *Query) Next(ctx context.Context) {
	at := q.at
	q.at++
	if q.walk(at+1) == Wait {
		q.resume(ctx, at+1)
	}
	q.at = at
}
