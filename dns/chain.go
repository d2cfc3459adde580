package dns

import (
	"strings"
	"sync/atomic"

	"github.com/seamark/seamark/wire"
)

// A Chain holds the handlers of one server block, in the order in which they are
// called. It is immutable while it serves.
type Chain struct {
	Server string // the listening address as metrics name it: "dns://:53"
	Zone   string // the zone of the server block that the query's name is in
	// View is the name of the condition under which the chain serves queries, ""
	// if there is none. Match reports whether it is met. Match sees the client's
	// own question, must not block and changes nothing.
	View  string
	Match func(q *Query) bool
	// ExplainMatch returns why the condition is met or not. It may be nil.
	ExplainMatch func(q *Query) []Cause

	// Unrepeated is the directive because of which no reply of the chain is repeated, as an explanation names
	// it; "" if there is none, or if none would be repeated anyway.
	Unrepeated string

	messages     *Chain // the handlers of messages other than queries; nil if there are none
	opcodes      uint16 // a bit for each opcode that one of them answers
	steps        []step
	observers    []Observer
	stateKeys    int
	interceptors bool   // some step is an Interceptor
	anyClass     bool   // some step answers classes other than IN
	changesClass bool   // some step turns other classes into IN
	tracer       Tracer // nil if there is none
	traced       *Chain // for the queries that tracer follows
	silent       bool   // a copy without the observers, which the server block has

	unrepeatable bool // a handler or observer is not Repeatable
	repetitions  []repetition
}

// Network returns the protocol of the packets in which the chain receives queries with a Proto.
func (c *Chain) Network(p Proto) Proto {
	if c != nil && (strings.HasPrefix(c.Server, "quic://") || strings.HasPrefix(c.Server, "https3://")) {
		return UDP
	}
	return p
}

// A step is one handler and the interfaces that it implements.
type step struct {
	name        string
	index       int // in Steps of the chain of queries
	value       any
	handler     Handler
	resolver    Resolver
	awaiter     Awaiter
	reserver    Reserver
	finisher    Finisher
	completer   Completer
	interceptor Interceptor
	anyClass    bool
	parked      *atomic.Int64 // places in the ParkingLot of queries that wait for the handler
}

// admits reports whether q's class, or what a handler makes of it, has an answer in the chain.
func (c *Chain) admits(q *Query) bool { return q.Class == wire.ClassIN || c.anyClass || c.changesClass }

// serves reports whether queries of q's class are for the handler.
func (s *step) serves(q *Query) bool { return q.Class == wire.ClassIN || s.anyClass }

// A StateKey is the index of one handler's state in the queries of its chain.
type StateKey int

// NewStateKey returns the key of a handler of c. A handler calls it when it is set
// up.
func (c *Chain) NewStateKey() StateKey {
	c.stateKeys++
	return StateKey(c.stateKeys - 1)
}

// Add adds h below the other handlers. h must implement Handler, Resolver or both.
func (c *Chain) Add(name string, h any) {
	s := step{name: name, index: len(c.steps), value: h, parked: new(atomic.Int64)}
	s.handler, _ = h.(Handler)
	s.resolver, _ = h.(Resolver)
	s.awaiter, _ = h.(Awaiter)
	s.reserver, _ = h.(Reserver)
	s.finisher, _ = h.(Finisher)
	s.completer, _ = h.(Completer)
	s.interceptor, _ = h.(Interceptor)
	if s.handler == nil && s.resolver == nil {
		panic("dns: " + name + " has neither ServeDNS nor Resolve")
	}

	c.interceptors = c.interceptors || s.interceptor != nil
	if classes, ok := h.(AnyClass); ok {
		use := classes.AnyClass()
		s.anyClass = true
		c.anyClass = c.anyClass || use == ClassAnswered
		c.changesClass = c.changesClass || use == ClassChanged
	}
	c.steps = append(c.steps, s)
	c.addRepetition(h)

	if messages, ok := h.(OpcodeHandler); ok {
		if c.messages == nil {
			c.messages = &Chain{anyClass: true}
		}
		c.messages.steps = append(c.messages.steps, s)
		for _, opcode := range messages.Opcodes() {
			c.opcodes |= 1 << opcode
		}
	}
}

// Observe adds an observer. Observers see a query in the order in which they were
// added, a Tracer after the others. A chain has one Tracer at most.
func (c *Chain) Observe(o Observer) {
	if t, ok := o.(Tracer); ok {
		c.tracer, c.unrepeatable = t, true
		return
	}
	c.observers = append(c.observers, o)
	c.addRepetition(o)
}

// empty reports whether the server block has no directives. As in CoreDNS, its
// queries are refused.
func (c *Chain) empty() bool {
	return len(c.steps) == 0 && len(c.observers) == 0 && c.tracer == nil && !c.silent
}

// CopyFor returns a copy of c for another server address and zone. It binds each
// ChainBinder to the copy.
func (c *Chain) CopyFor(server, zone string) *Chain {
	copied := &Chain{
		Server: server, Zone: zone, View: c.View, Match: c.Match, ExplainMatch: c.ExplainMatch, stateKeys: c.stateKeys,
	}

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
	if c.tracer != nil {
		copied.Observe(bind(c.tracer).(Tracer))
		copied.addTraced()
	}

	if m := copied.messages; m != nil {
		m.Server, m.Zone, m.View, m.stateKeys, m.observers = server, zone, c.View, c.stateKeys, copied.observers
	}
	return copied
}

// Handler returns the handler at an index in Steps.
func (c *Chain) Handler(step int) any { return c.steps[step].value }

// A Step describes one handler: its directive, and the optional interfaces that it implements.
type Step struct {
	Name                       string
	Inline, MayWait, Finishing bool
}

// Steps lists the chain's handlers from top to bottom.
func (c *Chain) Steps() []Step {
	var steps []Step
	for _, s := range c.steps {
		finishes := s.finisher != nil || s.completer != nil
		steps = append(steps, Step{s.name, s.handler != nil, s.resolver != nil, finishes})
	}
	return steps
}
