package trace

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"strings"
	"time"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

const (
	// maxSteps and maxExchanges bound the spans of one trace. A query has many only if
	// it follows CNAME records, or if many upstreams fail.
	maxSteps, maxExchanges = 256, 32
	// maxError bounds the text of an error in bytes.
	maxError = 512
)

// A record holds the events of one query, until they are turned into spans. It implements
// [dns.Trace].
type record struct {
	id        [16]byte
	root      [8]byte // ID of the span of the client's query
	parent    [8]byte // its parent; zero if there is none
	shared    bool    // the root is the client's span, too
	debug     bool
	steps     []step
	exchanges []upstreamQuery
}

// A step is the work of a handler.
type step struct {
	depth, index int // of the query, and in its chain
	parent       int // index of the step that made the sub-query; -1 for the client's query
	directive    string
	name, typ    string // of a sub-query
	begin, end   time.Time
}

// An upstreamQuery is a query to an upstream, and its reply.
type upstreamQuery struct {
	step           int // index of the step that sent it; -1 if it is not recorded
	upstream       netip.AddrPort
	proto          dns.Proto
	sent, received time.Time
	rcode          string // "" if it is unknown
}

// newRecord returns a record of a query whose client has the span p, unless that is zero. If
// shared is set the client's span is the root.
func newRecord(p parent, shared bool) *record {
	r := &record{steps: make([]step, 0, 16), id: p.trace, debug: p.sampling == debugged}
	switch {
	case !p.valid():
		r.root = newSpanID()
		binary.BigEndian.PutUint64(r.id[:], rand.Uint64())
		binary.BigEndian.PutUint64(r.id[8:], rand.Uint64()|1) // zero is not an ID
	case shared:
		r.root, r.parent, r.shared = p.id, p.above, true
	default:
		r.root, r.parent = newSpanID(), p.id
	}
	return r
}

func newSpanID() (id [8]byte) {
	for id == [8]byte{} {
		binary.BigEndian.PutUint64(id[:], rand.Uint64())
	}
	return id
}

// last returns the index of the last step at a depth that has a number in its chain, or any
// if index is -1. It returns -1 if there is none.
func (r *record) last(depth, index int) int {
	for i := len(r.steps) - 1; i >= 0; i-- {
		if s := &r.steps[i]; s.depth == depth && (index < 0 || s.index == index) {
			return i
		}
	}
	return -1
}

// BeginStep implements [dns.Trace].
func (r *record) BeginStep(q *dns.Query, index int, directive string) {
	if len(r.steps) == maxSteps {
		return
	}

	now := time.Now()
	s := step{depth: q.Depth(), index: index, parent: -1, directive: directive, begin: now, end: now}
	if s.depth > 0 {
		// The handler that was reached last has made the sub-query.
		for depth := s.depth - 1; depth >= 0 && s.parent < 0; depth-- {
			s.parent = r.last(depth, -1)
		}
		s.name, s.typ = text(q.Name()), q.Type.String()
	}
	r.steps = append(r.steps, s)
}

// EndStep implements [dns.Trace].
func (r *record) EndStep(q *dns.Query, index int, _ dns.Verdict) {
	if i := r.last(q.Depth(), index); i >= 0 {
		r.steps[i].end = time.Now()
	}
}

// ObserveExchange implements [dns.Trace].
func (r *record) ObserveExchange(q *dns.Query, e *dns.Exchange) {
	if len(r.exchanges) == maxExchanges {
		return
	}
	x := upstreamQuery{
		step: r.last(q.Depth(), -1), upstream: e.Upstream, proto: e.Proto, sent: e.Sent, received: e.Received,
	}
	if len(e.Reply) >= wire.HeaderLen {
		x.rcode = wire.RCode(e.Reply[3] & 15).String()
	}
	r.exchanges = append(r.exchanges, x)
}

// Kinds of spans, with OpenTelemetry's numbers.
const (
	internal = 1
	server   = 2
	client   = 3
)

// A span is a part of a trace.
type span struct {
	trace         [16]byte
	id, parent    [8]byte // parent is zero for the span of the client's query
	name          string
	kind          int
	start         time.Time
	duration      time.Duration
	local, remote netip.AddrPort // zero if unknown
	tags          []tag
	err           string // "" if the work succeeded
	shared, debug bool   // as in Zipkin's interface
}

type tag struct{ key, value string }

// spans returns the spans of q, which has been answered or dropped. The span of the
// client's query is the first.
func (r *record) spans(q *dns.Query) []span {
	all := make([]span, 0, 1+len(r.steps)+len(r.exchanges))
	add := func(s span, parent int) { // -1 is none, 0 the first span
		s.trace, s.debug = r.id, r.debug
		if parent >= 0 {
			s.id, s.parent = newSpanID(), all[parent].id
		} else {
			s.id, s.parent, s.shared = r.root, r.parent, r.shared
		}
		all = append(all, s)
	}

	add(root(q), -1)
	for _, s := range r.steps {
		step := span{name: s.directive, kind: internal, start: s.begin, duration: s.end.Sub(s.begin)}
		if s.depth > 0 {
			step.tags = []tag{{"coredns.io/name", s.name}, {"coredns.io/type", s.typ}}
		}
		add(step, 1+s.parent)
	}

	for _, x := range r.exchanges {
		s := span{
			name: "connect", kind: client, start: x.sent, duration: x.received.Sub(x.sent), remote: x.upstream,
			tags: []tag{{"peer.address", x.upstream.String()}, {"coredns.io/proto", x.proto.String()}},
		}
		switch {
		case x.received.IsZero():
			s.err = "no reply"
			s.duration = q.Start.Add(q.Elapsed).Sub(x.sent)
			if x.step >= 0 {
				s.duration = r.steps[x.step].end.Sub(x.sent)
			}
		case x.rcode != "":
			s.tags = append(s.tags, tag{"coredns.io/rcode", x.rcode})
		}
		add(s, 1+x.step)
	}
	return all
}

// root returns the span of a client's query.
func root(q *dns.Query) span {
	s := span{
		name: "servedns", kind: server, start: q.Start, duration: q.Elapsed, local: q.Local, remote: q.Peer,
		tags: []tag{
			{"coredns.io/name", text(q.Name())}, {"coredns.io/type", q.Type.String()},
			{"coredns.io/proto", q.Network().String()}, {"coredns.io/remote", q.Peer.Addr().String()},
			{"seamark.io/server", q.Chain().Server}, {"seamark.io/zone", q.Chain().Zone},
		},
	}
	for _, t := range []tag{{"seamark.io/view", q.Chain().View}, {"seamark.io/directive", q.AnsweredBy()}} {
		if t.value != "" {
			s.tags = append(s.tags, t)
		}
	}
	if !q.Dropped() {
		s.tags = append(s.tags, tag{"coredns.io/rcode", q.RCode.String()})
	}

	switch {
	case q.Err != nil:
		s.err = q.Err.Error()
		s.err = strings.ToValidUTF8(s.err[:min(len(s.err), maxError)], "?")
	case q.Dropped():
		s.err = "dropped"
	case q.RCode == wire.ServFail:
		s.err = "SERVFAIL"
	}
	return s
}

// text returns a name, given in wire form, with its final dot.
func text(name []byte) string {
	var buf [wire.MaxName]byte
	return string(wire.AppendText(buf[:0], name))
}
