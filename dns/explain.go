package dns

import (
	"context"
	"net/netip"
	"time"

	"github.com/seamark/seamark/wire"
)

// An Explainer is a handler that describes how it has handled a query: which object,
// entry or rule the answer is from, or why it has none.
type Explainer interface {
	// ExplainDNS is called after the handler has returned v for q, by the goroutine that
	// has q, before any handler below is called. It may take some time, and must not
	// change q.
	ExplainDNS(q *Query, v Verdict) []Cause
}

// A Cause is one reason for a handler's decision about a query.
type Cause struct {
	Text string `json:"text"` // one sentence
	// Object is the object of the cluster that the answer is from or that decides it.
	Object *Object `json:"object,omitempty"`
	// Nearest is a name that exists, and that the client may have meant.
	Nearest string `json:"nearest,omitempty"`
}

// FallthroughCauses returns a cause for each of the texts, of which there is at least one, and
// another one if v is Next. nearest is the name that the client may have meant, or "".
func FallthroughCauses(v Verdict, texts []string, nearest wire.Name) (causes []Cause) {
	if v == Next {
		texts = append(texts, "fallthrough passes the name on")
	}
	for _, text := range texts {
		causes = append(causes, Cause{Text: text})
	}
	if nearest != "" {
		causes[0].Nearest = nearest.String()
	}
	return causes
}

// An Object identifies an object of the Kubernetes API.
type Object struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`

	// The other fields are the present state at the object's source. An answer may be from an
	// earlier version.
	ResourceVersion string    `json:"resourceVersion,omitempty"`
	Created         time.Time `json:"created,omitzero"`
	File            string    `json:"file,omitempty"`    // FILE:LINE of an object in a folder
	Unknown         string    `json:"unknown,omitempty"` // why there is no resourceVersion
}

// Zone returns the zone of the server block that q's name is in, and View the view of
// the block. Server returns the address as metrics name it.
func (q *Query) Zone() string   { return q.chain.Zone }
func (q *Query) View() string   { return q.chain.View }
func (q *Query) Server() string { return q.chain.Server }

// An Explanation is the answer to an explained query.
type Explanation struct {
	Reply  []byte // in wire form; nil if the query was dropped
	Err    error  // why the answer is SERVFAIL; may be nil
	Served bool   // a server block has answered or failed the query
	// Empty is the zone of the server block that has the name, if the block has no directive
	// that handles or observes queries.
	Empty   string
	Elapsed time.Duration // from the query to its answer
	// Repeat is nil where no replies are repeated, and no directive is the reason for it.
	Repeat *RepeatExplanation
}

// An Explained is a query for Explain.
type Explained struct {
	Packet        []byte
	Client, Local netip.AddrPort
	Proto         Proto
	Trace         Trace // follows the query and its sub-queries
	// ObserveView, if not nil, is called when the condition of a server block has been
	// evaluated for q, which has no chain yet.
	ObserveView func(q *Query, c *Chain, met bool)
}

// Explain answers a query as Serve does, and blocks until the answer is complete. Observers
// do not see the query. It returns false if the packet is not a query, or ctx has ended.
func (p *Port) Explain(ctx context.Context, e Explained) (Explanation, bool) {
	mux := p.mux.Load()
	if mux == nil {
		return Explanation{}, false
	}

	done := make(chan Explanation, 1)
	mux = mux.traced(e.ObserveView) // before the time of the answer begins
	q := NewQuery(explanationSender(done))
	q.Reset(e.Packet, e.Proto, time.Now())
	q.Peer, q.Local, q.trace = e.Client, e.Local, e.Trace

	switch p.explain(q, mux) {
	case Ignored:
		return Explanation{}, false
	case Parked:
	default:
		q.Sender.Send(q)
		q.Observe(time.Now())
	}

	select {
	case e := <-done:
		return e, true
	case <-ctx.Done():
		return Explanation{}, false
	}
}

// explain calls serve, and recovers from a panic of a handler as a reader does.
func (p *Port) explain(q *Query, mux *Mux) (o Outcome) {
	defer func() {
		if cause := recover(); cause != nil {
			o = p.Recover(q, nil, cause)
		}
	}()
	return p.serve(q, nil, mux)
}

// An explanationSender receives the reply of an explained query.
type explanationSender chan<- Explanation

// Send implements [Sender].
func (s explanationSender) Send(q *Query) {
	e := Explanation{Err: q.Err, Served: q.chain != nil, Elapsed: time.Since(q.Start), Repeat: q.explainRepeat()}
	if q.chain == nil && q.Class == wire.ClassIN {
		q.trace = nil // it has seen the choice
		if c := q.mux.find(q); c != nil {
			e.Empty = c.Zone
		}
	}
	if reply := q.Reply(); len(reply) > 0 {
		e.Reply = append([]byte(nil), reply...)
	}
	s <- e
}

// Explained reports whether the query is one of Explain, whose answer no client gets.
func (q *Query) Explained() bool { return q.chain != nil && q.chain.silent }

// traced returns a copy of m whose chains report to the trace of a query, and have no
// observers. observeView may be nil.
func (m *Mux) traced(observeView func(q *Query, c *Chain, met bool)) *Mux {
	t := *m
	t.keep, t.forget = nil, nil // but handlers say what may be repeated
	t.Unserved, t.zones = nil, wire.ZoneMap[[]*Chain]{}

	for zone, chains := range m.zones.All() {
		for _, c := range chains {
			silent := *c
			silent.silent = !c.empty()
			silent.observers, silent.tracer = nil, nil
			silent.addTraced()

			if c.Match != nil && observeView != nil {
				silent.traced.Match = func(q *Query) bool {
					met := c.Match(q)
					if q.trace != nil {
						observeView(q, c, met)
					}
					return met
				}
			}
			t.zones.Set(zone, append(t.zones.Get(zone), silent.traced))
		}
	}
	return &t
}
