// Package explain answers a query on one of a server's ports and reports how the answer was
// made: the server block, each directive with its verdict, the objects of the cluster, and
// the queries to upstreams. The directive admin serves it over HTTP, and the command
// explain calls it for the servers of package local.
package explain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"

	mdns "github.com/miekg/dns"
)

// A Query is a query to explain.
type Query struct {
	Name   string     `json:"name"`             // absolute, with or without the last dot
	Type   string     `json:"type,omitempty"`   // A by default
	Client netip.Addr `json:"client,omitzero"`  // that asks; 127.0.0.1 by default
	Server string     `json:"server,omitempty"` // the listening address as metrics name it; the first one by default
}

// A Result is an answer and how it was made.
type Result struct {
	Query
	RCode     string   `json:"rcode"` // "" if no reply is sent
	Answer    []string `json:"answer"`
	Authority []string `json:"authority,omitempty"`
	// Summary is one sentence: what the answer is from, or why there is none.
	Summary string `json:"summary"`
	// Nearest are names that exist and that the client may have meant.
	Nearest  []string      `json:"nearest,omitempty"`
	Error    string        `json:"error,omitempty"` // why the answer is SERVFAIL
	Steps    []Step        `json:"steps"`           // in the order in which the query reached them
	Duration time.Duration `json:"duration"`        // in nanoseconds
	// Kernel is whether the node's kernel repeats the reply; nil on a server whose replies it never repeats.
	Kernel *dns.RepeatExplanation `json:"kernel,omitempty"`

	referral bool
}

// A Step is the work of one directive for the query, or for a sub-query of it.
type Step struct {
	Depth     int    `json:"depth"`          // 0 for the query, more for sub-queries
	Name      string `json:"name,omitempty"` // of a sub-query
	Type      string `json:"type,omitempty"`
	Zone      string `json:"zone"` // of the server block
	View      string `json:"view,omitempty"`
	Directive string `json:"directive"`
	// Verdict is passed, answered, dropped or failed; changed if the directive has passed the
	// query and changed the answer of one below; skipped if one above, such as cache, has
	// answered in its place; of the directive view, which selects a server block, matched or
	// skipped.
	Verdict   string      `json:"verdict"`
	Causes    []dns.Cause `json:"causes,omitempty"`
	Upstreams []Exchange  `json:"upstreams,omitempty"`

	index  int
	waits  bool         // the handler has returned Wait
	reader ObjectReader // of the causes; may be nil
}

// An Exchange is a query to an upstream.
type Exchange struct {
	Upstream string        `json:"upstream"`
	Protocol string        `json:"protocol"`
	RCode    string        `json:"rcode,omitempty"` // "" without a reply
	Duration time.Duration `json:"duration"`        // in nanoseconds; zero without a reply
}

// Limits of a Result: an answer may need many sub-queries and upstreams.
const (
	maxSteps     = 200
	maxExchanges = 50
	maxObjects   = 20 // whose metadata are read
	objectWait   = 2 * time.Second
)

// ErrNoServer is returned if no port has the name that a Query asks for.
var ErrNoServer = errors.New("no such server")

// loopback is the client and the server's address unless they are known.
var loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// Explain answers the query on one of the ports. It blocks until the answer is complete,
// at most as long as a client's query may take.
func Explain(ctx context.Context, ports []config.Port, q Query) (Result, error) {
	port, err := Choose(ports, q.Server)
	if err != nil {
		return Result{}, err
	}
	q.Server = port.Name

	t, ok := wire.ParseType(cmp.Or(q.Type, "A"))
	if !ok {
		return Result{}, fmt.Errorf("want a record type such as SRV or TYPE65, got %q", q.Type)
	}
	q.Type = t.String()
	name, err := wire.ParseName(q.Name)
	if err != nil {
		return Result{}, fmt.Errorf("%q is no domain name: %w", q.Name, err)
	}
	q.Name = name.String()

	if !q.Client.IsValid() {
		q.Client = loopback
	}
	local := port.Address
	if !local.Addr().IsValid() || local.Addr().IsUnspecified() {
		local = netip.AddrPortFrom(loopback, local.Port())
	}

	packet := wire.AppendRequest(nil, 0, wire.FlagRD, []byte(name), t)
	client := netip.AddrPortFrom(q.Client.Unmap(), 0)
	for proto := dns.UDP; ; proto = dns.TCP {
		r := &record{}
		e, ok := port.Port.Explain(ctx, dns.Explained{
			Packet: packet, Client: client, Local: local, Proto: proto, Trace: r, ObserveView: r.observeView,
		})
		switch {
		case !ok && ctx.Err() != nil:
			return Result{}, fmt.Errorf("no answer for %s: %w", q.Name, ctx.Err())
		case !ok:
			return Result{}, fmt.Errorf("%s cannot be queried", q.Name)
		case proto == dns.UDP && len(e.Reply) > 2 && e.Reply[2]&2 != 0: // TC: a client repeats the query over TCP
			continue
		}
		r.readObjects(ctx)
		return r.result(q, e)
	}
}

// Choose returns the port with a name or an address; the first one for "".
func Choose(ports []config.Port, server string) (config.Port, error) {
	var names []string
	for _, p := range ports {
		if server == "" || server == p.Name || server == p.Address.String() {
			return p, nil
		}
		names = append(names, p.Name)
	}
	return config.Port{}, fmt.Errorf("%w: %q; the servers are %s", ErrNoServer, server, strings.Join(names, ", "))
}

// A FinishExplainer is a [dns.Finisher] that describes how it has changed an answer.
type FinishExplainer interface {
	// ExplainFinish is called after FinishDNS has changed q's answer. It must not change q.
	ExplainFinish(q *dns.Query) []dns.Cause
}

// An ObjectReader is a [dns.Explainer] that reads the metadata of the objects that its causes
// name.
type ObjectReader interface {
	// ReadObjects sets the fields of the objects that follow the name. It is called after
	// the query has been answered. It blocks until ctx ends at most.
	ReadObjects(ctx context.Context, objects []*dns.Object)
}

// A record is the trace of one query.
type record struct {
	steps     []Step
	exchanges int
	answers   [][]string // the last contents, by depth
}

// replace notes the content of q's answer, and reports whether it was another one before.
func (r *record) replace(q *dns.Query) bool {
	for len(r.answers) <= q.Depth() {
		r.answers = append(r.answers, nil)
	}
	before, now := r.answers[q.Depth()], content(q)
	if before == nil && q.AnsweredStep() < 0 {
		before = []string{wire.ServFail.String()} // of a query that all have passed
	}
	r.answers[q.Depth()] = now
	return !slices.Equal(before, now)
}

// content returns the response code and the records of an answer without their owners and
// TTLs, in alphabetical order: what a directive that counts, caches or sorts does not change.
func content(q *dns.Query) []string {
	var records []string
	q.Answer.Walk(func(s wire.Section, r wire.Record) bool {
		if s != wire.Answers {
			return false
		}
		if rr, _, err := mdns.UnpackRR(q.Answer.Buf, r.Owner); err == nil {
			records = append(records, strings.TrimPrefix(rr.String(), rr.Header().String())+" "+r.Type.String())
		}
		return true
	})
	slices.Sort(records)
	return append(records, q.RCode.String())
}

// last returns the last step at a depth with that index, or any index if it is -1.
func (r *record) last(depth, index int) *Step {
	for i := len(r.steps) - 1; i >= 0; i-- {
		if s := &r.steps[i]; s.Depth == depth && (index < 0 || s.index == index) {
			return s
		}
	}
	return nil
}

// BeginStep implements [dns.Trace].
func (r *record) BeginStep(q *dns.Query, index int, directive string) {
	r.add(q, Step{Zone: q.Zone(), View: q.View(), Directive: directive, Verdict: "failed", index: index})
}

// add adds a step of q, unless there are too many.
func (r *record) add(q *dns.Query, s Step) {
	if len(r.steps) == maxSteps {
		return
	}
	if s.Depth = q.Depth(); s.Depth > 0 {
		s.Name, s.Type = wire.Name(q.Name()).String(), q.Type.String()
	}
	r.steps = append(r.steps, s)
}

// observeView adds a step of the directive view.
func (r *record) observeView(q *dns.Query, c *dns.Chain, met bool) {
	s := Step{Zone: c.Zone, View: c.View, Directive: "view", Verdict: "skipped", index: -1}
	if met {
		s.Verdict = "matched"
	}
	if c.ExplainMatch != nil {
		s.Causes = c.ExplainMatch(q)
	}
	r.add(q, s)
}

// EndStep implements [dns.Trace]. Next is the verdict of a handler that passes the query on, whose step is "failed"
// until then, and later the end of its FinishDNS.
func (r *record) EndStep(q *dns.Query, index int, v dns.Verdict) {
	s := r.last(q.Depth(), index)
	switch {
	case s == nil:
		return
	case v == dns.Wait: // Resolve follows, or the answer of an Interceptor above
		s.waits = true
		return
	case v == dns.Next && s.Verdict != "failed": // after FinishDNS
		if s.Verdict == "passed" && !q.Dropped() && r.replace(q) {
			s.Verdict = "changed"
			if e, ok := q.Chain().Handler(index).(FinishExplainer); ok {
				s.Causes = append(s.Causes, e.ExplainFinish(q)...)
			}
		}
		return
	case v == dns.Drop:
		s.Verdict = "dropped"
	case v == dns.Next:
		s.Verdict = "passed"
	case !r.replace(q) && q.AnsweredStep() > index: // the answer of a directive below
		s.Verdict = "passed"
	default:
		s.Verdict = "answered"
	}
	handler := q.Chain().Handler(index)
	s.reader, _ = handler.(ObjectReader)
	s.Causes = nil
	if e, ok := handler.(dns.Explainer); ok {
		s.Causes = e.ExplainDNS(q, v)
	}

	// The directives below that have to wait are not called any more.
	for i := len(r.steps) - 1; v != dns.Next && &r.steps[i] != s; i-- {
		if below := &r.steps[i]; below.Depth == s.Depth && below.waits && below.Verdict == "failed" {
			below.Verdict, below.Causes = "skipped", []dns.Cause{{Text: s.Directive + " has answered in its place"}}
		}
	}
}

// ObserveExchange implements [dns.Trace].
func (r *record) ObserveExchange(q *dns.Query, e *dns.Exchange) {
	s := r.last(q.Depth(), -1)
	if s == nil || r.exchanges == maxExchanges {
		return
	}

	r.exchanges++
	x := Exchange{Upstream: e.Upstream.String(), Protocol: e.Proto.String()}
	if !e.Received.IsZero() {
		x.Duration = e.Received.Sub(e.Sent)
	}
	if len(e.Reply) >= wire.HeaderLen {
		x.RCode = wire.RCode(e.Reply[3] & 15).String()
	}
	s.Upstreams = append(s.Upstreams, x)
}

// readObjects reads the metadata of the objects that the causes name: of each once.
func (r *record) readObjects(ctx context.Context) {
	type source struct {
		reader ObjectReader
		object dns.Object
	}
	same := map[source][]*dns.Object{}
	first := map[ObjectReader][]*dns.Object{}
	for _, s := range r.steps {
		for _, c := range s.Causes {
			if c.Object == nil || s.reader == nil {
				continue
			}

			key := source{s.reader, *c.Object}
			if same[key] == nil {
				if len(same) == maxObjects {
					c.Object.Unknown = fmt.Sprintf("the causes name more than %d objects", maxObjects)
					continue
				}
				first[s.reader] = append(first[s.reader], c.Object)
			}
			same[key] = append(same[key], c.Object)
		}
	}

	ctx, cancel := context.WithTimeout(ctx, objectWait)
	defer cancel()
	for reader, objects := range first {
		reader.ReadObjects(ctx, objects)
	}
	for _, objects := range same {
		for _, o := range objects[1:] {
			*o = *objects[0]
		}
	}
}

// result returns the result of an explained query.
func (r *record) result(q Query, e dns.Explanation) (Result, error) {
	result := Result{Query: q, Answer: []string{}, Steps: r.steps, Duration: e.Elapsed, Kernel: e.Repeat}
	if result.Steps == nil {
		result.Steps = []Step{}
	}
	if e.Err != nil {
		result.Error = e.Err.Error()
	}

	if len(e.Reply) > 0 {
		var m mdns.Msg
		if err := m.Unpack(e.Reply); err != nil {
			return Result{}, fmt.Errorf("the reply is malformed: %w", err)
		}
		result.RCode = wire.RCode(m.Rcode).String()
		for _, record := range m.Answer {
			result.Answer = append(result.Answer, record.String())
		}
		for _, record := range m.Ns {
			result.referral = record.Header().Rrtype == mdns.TypeNS && !m.Authoritative
			result.Authority = append(result.Authority, record.String())
		}
	}

	for _, s := range r.steps {
		for _, c := range s.Causes {
			if c.Nearest != "" && len(result.Answer) == 0 && !slices.Contains(result.Nearest, c.Nearest) {
				result.Nearest = append(result.Nearest, c.Nearest)
			}
		}
	}
	result.Summary = r.summary(&result, e)
	return result, nil
}

// summary returns one sentence about the result.
func (r *record) summary(result *Result, e dns.Explanation) string {
	switch {
	case !e.Served && e.Empty != "":
		return "the server block of " + e.Empty + " has no directive that handles queries, so the query is refused"
	case !e.Served && len(r.steps) == 0:
		return "no server block has a zone that the name is in, so the query is refused"
	}

	what := result.RCode
	switch {
	case what != "NOERROR" || len(result.Answer) > 0:
	case result.referral:
		what = "referral"
	default:
		what = "NODATA"
	}

	// The first such step: one above may have replaced the answer of one below.
	by := slices.IndexFunc(r.steps, func(s Step) bool {
		return s.Depth == 0 && (s.Verdict == "answered" || s.Verdict == "dropped")
	})
	switch {
	case by < 0:
		text := fmt.Sprintf("%s: no directive of the server block has an answer", what)
		if directive, causes := r.lastPassed(); len(causes) > 0 {
			text += "; " + directive + ": " + strings.Join(causes, ", and ")
		}
		return text
	case r.steps[by].Verdict == "dropped":
		return r.steps[by].Directive + " drops the query: no reply is sent"
	}

	text := r.steps[by].answered(what)
	for _, s := range r.steps {
		if s.Depth == 0 && s.Verdict == "changed" {
			text += "; " + s.Directive + " has changed the answer"
		}
	}
	return text
}

// answered returns how the step has made an answer.
func (s *Step) answered(what string) string {
	text := fmt.Sprintf("%s by %s in zone %s", what, s.Directive, s.Zone)
	if len(s.Causes) > 0 {
		text += ": " + s.Causes[0].Text
	}
	if len(s.Upstreams) > 0 {
		last, how := s.Upstreams[len(s.Upstreams)-1], ", from "
		if last.RCode == "" {
			how = ", without a reply from "
		}
		text += how + last.Upstream
	}
	return text
}

// lastPassed returns the lowest directive that has passed the query and has causes, and the
// first cause of each of its steps: a directive may be used several times in a server block.
func (r *record) lastPassed() (directive string, causes []string) {
	for _, s := range slices.Backward(r.steps) {
		if s.Depth == 0 && s.Verdict == "passed" && len(s.Causes) > 0 && (directive == "" || s.Directive == directive) {
			directive = s.Directive
			causes = append(causes, s.Causes[0].Text)
		}
	}
	slices.Reverse(causes)
	return directive, causes
}
