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

// An Interceptor may answer a query in place of a handler below it that would
// wait. The chain calls InterceptDNS when the handler that stands below steps
// further down returns Wait, after the Interceptor's own ServeDNS returned Next.
// The answer is empty. Next leaves the query to the other handler. Any other
// verdict means what it means from ServeDNS: the Interceptor's FinishDNS is not
// called then, and the finishers between the two handlers see an empty answer. An
// Interceptor sees only the question that it passed on: the chain does not call it
// if a handler below it has changed the question. InterceptDNS must not block.
type Interceptor interface {
	InterceptDNS(q *Query, below int) Verdict
}

// A ChainBinder is a handler or an observer that keeps state for each chain, for
// example counters that are labelled with the chain's server and zone. CopyFor
// calls BindChain once for each new chain, and puts the result in the place of the
// handler. The result must implement the same interfaces. Observers are bound when
// the chain has all its handlers.
type ChainBinder interface {
	BindChain(c *Chain) any
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
	intercept bool // some step is an Interceptor
	anyClass  bool // some step answers other classes than IN
}

type step struct {
	name        string
	value       any // which implements the interfaces below, or some of them
	handler     Handler
	resolver    Resolver
	finisher    Finisher
	interceptor Interceptor
	anyClass    bool
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
	s := step{name: name, value: h}
	s.handler, _ = h.(Handler)
	s.resolver, _ = h.(Resolver)
	s.finisher, _ = h.(Finisher)
	s.interceptor, _ = h.(Interceptor)
	c.intercept = c.intercept || s.interceptor != nil
	if classes, ok := h.(AnyClass); ok {
		s.anyClass = true
		c.anyClass = c.anyClass || classes.AnyClass()
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

// CopyFor returns a copy of c for another server address and zone. It binds each
// ChainBinder to the copy.
func (c *Chain) CopyFor(server, zone string) *Chain {
	copied := &Chain{Server: server, Zone: zone, View: c.View, Match: c.Match, words: c.words}
	bound := map[ChainBinder]any{} // a handler may be an observer, too
	bind := func(v any) any {
		binder, ok := v.(ChainBinder)
		if !ok {
			return v
		}
		if _, ok := bound[binder]; !ok {
			bound[binder] = binder.BindChain(copied)
		}
		return bound[binder]
	}
	for _, s := range c.steps {
		copied.Add(s.name, bind(s.value))
	}
	for _, o := range c.observers {
		copied.Observe(bind(o).(Observer))
	}
	return copied
}

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

// walk calls the handlers from q.at downwards. If none waits, it then calls the
// finishers upwards as far as floor, and the answer is complete. Otherwise it
// returns Wait, and q.at is the step of the handler that waits.
func (q *Query) walk(floor int) Verdict {
	steps := q.chain.steps
	for ; q.at < len(steps); q.at++ {
		if q.Class != wire.ClassIN && !steps[q.at].anyClass {
			continue
		}
		verdict := Wait
		if h := steps[q.at].handler; h != nil {
			verdict = h.ServeDNS(q)
		}
		if verdict == Wait && q.chain.intercept {
			verdict = q.intercept(floor)
		}
		switch verdict {
		case Wait:
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

// intercept calls the Interceptors between floor and q.at, whose handler waits,
// from the nearest upwards. If one returns another verdict than Next, q.at becomes
// its step.
func (q *Query) intercept(floor int) Verdict {
	for i := q.at - 1; i >= floor; i-- {
		s := &q.chain.steps[i]
		if s.interceptor == nil || q.Class != wire.ClassIN && !s.anyClass || q.instead != nil && q.changed > i {
			continue
		}
		partial := q.setAside()
		q.interceptor = i
		verdict := s.interceptor.InterceptDNS(q, q.at-i)
		q.interceptor = -1
		if verdict == Next {
			q.Result = partial
			continue
		}
		found := q.setAside()
		q.abandon()
		q.climb(i + 1)
		q.Result = found
		q.Answer.MoveTo(partial.Answer.Buf)
		if verdict != Wait {
			return verdict
		}
	}
	return Wait
}

// setAside returns the result and makes q's an empty one, in the memory behind it.
func (q *Query) setAside() Result {
	old := q.Result
	q.Result = Result{}
	q.Answer.Reset(old.Answer.Buf[len(old.Answer.Buf):], q.Question())
	return old
}

// resume calls Resolve of the handler at q.at, and then the finishers upwards as
// far as floor.
func (q *Query) resume(ctx context.Context, floor int) {
	at := q.at
	q.by, q.dropped = at, false
	if err := q.chain.steps[at].resolver.Resolve(ctx, q); err != nil {
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
		if q.Timeout > 0 { // a handler below may have set it
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, q.Timeout)
			defer cancel()
		}
		q.resume(ctx, at+1)
	}
	q.at = at
}
