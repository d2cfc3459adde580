package dns

import (
	"context"
	"slices"
)

// A Tracer is an Observer that follows some queries on their way through its chain. It
// observes only these.
type Tracer interface {
	Observer
	// TraceDNS is called when a client's query enters the chain. It returns nil unless
	// the query will be followed. It must not block.
	TraceDNS(q *Query) Trace
}

// A Trace follows one query and its sub-queries. The goroutine that has the query calls
// its methods.
type Trace interface {
	// BeginStep is called when q reaches the handler of a directive, which is that step
	// of q's chain, and EndStep whenever the handler has done a part of its work: with
	// its verdict, with Done after Resolve, and with Next after FinishDNS. There is no
	// EndStep after a panic.
	BeginStep(q *Query, step int, directive string)
	EndStep(q *Query, step int, v Verdict)
	// ExchangeObserver sees the queries that were sent to other servers for q.
	ExchangeObserver
}

// Trace returns the trace that follows q, or nil.
func (q *Query) Trace() Trace { return q.trace }

// follow returns the chain to use in place of c for q, a client's query, if c's tracer
// follows it.
func (q *Query) follow(c *Chain) *Chain {
	if q.trace = c.tracer.TraceDNS(q); q.trace == nil {
		return c
	}
	return c.traced
}

// addTraced sets c.traced, a copy of c for queries that a trace follows: other queries cost
// no more than in a chain without a tracer.
func (c *Chain) addTraced() {
	traced := *c
	traced.tracer, traced.traced = nil, nil
	if c.tracer != nil {
		traced.observers = append(slices.Clip(c.observers), c.tracer)
	}

	traced.steps = make([]step, len(c.steps))
	for i := range c.steps {
		t := &tracedStep{&c.steps[i], i}
		s := c.steps[i] // with t in place of each interface that the handler implements
		if s.handler != nil {
			s.handler = t
		}
		if s.resolver != nil {
			s.resolver = t
		}
		if s.awaiter != nil {
			s.awaiter = t
		}
		if s.finisher != nil {
			s.finisher = t
		}
		if s.completer != nil {
			s.completer = t
		}
		if s.interceptor != nil {
			s.interceptor = t
		}

		traced.steps[i] = s
	}
	c.traced = &traced
}

// A tracedStep calls the handler of a step, and records the call in the query's trace. A
// query made by Refresh has no trace.
type tracedStep struct {
	*step
	index int
}

func (t *tracedStep) begin(q *Query) {
	if q.trace != nil {
		q.trace.BeginStep(q, t.index, t.name)
	}
}

func (t *tracedStep) end(q *Query, v Verdict) {
	if q.trace != nil {
		q.trace.EndStep(q, t.index, v)
	}
}

func (t *tracedStep) ServeDNS(q *Query) Verdict {
	t.begin(q)
	v := t.handler.ServeDNS(q)
	t.end(q, v)
	return v
}

func (t *tracedStep) AwaitDNS(q *Query, wake func()) bool { return t.awaiter.AwaitDNS(q, wake) }

func (t *tracedStep) Resolve(ctx context.Context, q *Query) error {
	if t.handler == nil { // ServeDNS has not begun the step
		t.begin(q)
	}
	err := t.resolver.Resolve(ctx, q)
	t.end(q, Done)
	return err
}

func (t *tracedStep) InterceptDNS(q *Query, below int) Verdict {
	v := t.interceptor.InterceptDNS(q, below)
	if v != Next {
		t.end(q, v)
	}
	return v
}

func (t *tracedStep) FinishDNS(q *Query) {
	t.finisher.FinishDNS(q)
	t.end(q, Next)
}

func (t *tracedStep) CompleteDNS(q *Query) Verdict {
	v := t.completer.CompleteDNS(q)
	t.end(q, v)
	return v
}
