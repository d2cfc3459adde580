// Package forward implements the directives forward and grpc: it sends queries to other DNS
// servers and validates their replies. Package builtin lists its Setup; package
// server calls it. No other handler opens sockets to DNS servers.
//
// A Forward is the handler of one directive. Its upstreamSet holds the upstreams
// with their sockets and outlives a reload that does not change the options; an
// updater keeps it up to date with files and host names. For a query,
// Forward.AwaitDNS joins an exchange, which equal queries share. The exchange
// sends attempts to one upstream after the other, over UDP (socket), TCP and TLS
// (stream), HTTPS, gRPC or QUIC (quicConn), until a reply arrives. A parser drops the records of the
// reply that do not belong to the query.
package forward

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/sys/slots"
	"github.com/seamark/seamark/wire"
)

// A Forward sends queries to other DNS servers: the forward directive. Its reference page is
// docs/reference/directives/forward.md.
type Forward struct {
	from         []wire.Name
	except       []wire.Name
	limiter      limiter // max_concurrent; most is zero: no limit
	nextCodes    []wire.RCode
	nextOnNodata bool
	fallthru     config.Fallthrough // of grpc
	options      upstreamOptions
	following    []*Forward // the forwards below this one, for the option next
	stateKey     dns.StateKey
	observers    []dns.ExchangeObserver
	rejects      *metrics.Counter
	set          *upstreamSet

	// excluded has the upstreams that must not be queried, because the directive loop has found that they forward
	// to this server. It is sorted and immutable.
	excluded atomic.Pointer[[]string]
}

// upstreamOptions are the options that belong to a set of upstreams. Forwards with equal
// options share one.
type upstreamOptions struct {
	destinations  []destination
	resolvers     []netip.AddrPort // for host names of upstreams
	sourceAddress netip.Addr
	policy        string

	// The transport protocol.
	forceTCP   bool
	preferUDP  bool
	preferTCP  bool
	tls        tlsOptions
	serverName string
	plainText  bool   // without TLS: of grpc
	dohMethod  string // GET or POST
	letterCase string // of case_randomization: auto or off

	// Sockets and connections.
	expire       time.Duration
	maxAge       time.Duration // zero: no limit
	maxIdleConns int           // zero: no limit

	// Attempts for one query.
	readTimeout time.Duration
	maxSends    int
	maxAttempts int // zero: no limit; -1: depends on the number of upstreams
	failover    []wire.RCode
	unanswered  time.Duration // limit of what unansweredNames remembers; zero: nothing

	// Health.
	check    healthCheck
	maxFails int
	failfast bool
}

// A healthCheck is the value of the option health_check.
type healthCheck struct {
	interval time.Duration
	domain   wire.Name
	noRec    bool // without RD
}

// Values of the option policy.
const (
	random     = "random"
	roundRobin = "round_robin"
	sequential = "sequential"
)

var errLimit = errors.New("concurrent queries exceeded maximum")

// AnyClass reports that queries of other classes than IN are forwarded, too.
func (f *Forward) AnyClass() dns.ClassUse { return dns.ClassAnswered }

// matches reports whether q's name is forwarded.
func (f *Forward) matches(q *dns.Query) bool {
	if len(f.from) == 1 && f.from[0] == wire.Root && len(f.except) == 0 {
		return true
	}
	inside, excepted := f.zonesOf(q)
	return inside && excepted == ""
}

// zonesOf reports whether q's name is in one of the zones that are forwarded, and returns
// the longest zone of the option except that it is in, "" if there is none.
func (f *Forward) zonesOf(q *dns.Query) (inside bool, excepted wire.Name) {
	name := q.Name()
	for i := q.Labels(); i >= 0; i-- {
		suffix := name[q.LabelOffset(i):]
		for _, zone := range f.except {
			if string(suffix) == string(zone) && !(i == 0 && slices.Contains(f.from, zone)) {
				excepted = zone
			}
		}
		for _, zone := range f.from {
			inside = inside || string(suffix) == string(zone)
		}
	}
	return inside, excepted
}

// Repetition reports that answers from a cache above do not depend on f.
func (*Forward) Repetition() dns.Repetition { return dns.Repetition{} }

// ServeDNS passes queries for names outside the zones of f to the next handler. Other
// queries are parked.
func (f *Forward) ServeDNS(q *dns.Query) dns.Verdict {
	switch {
	case !f.matches(q):
		return dns.Next
	case q.Type.IsTransfer():
		q.Fail(wire.NotImp)
		return dns.Done
	case f.limiter.most > 0 && f.limiter.full(q.Peer.Addr()):
		f.refuse(q)
		return dns.Done
	}
	return dns.Wait
}

// refuse answers a query above max_concurrent.
func (f *Forward) refuse(q *dns.Query) {
	f.rejects.Add(1)
	q.Fail(wire.Refused)
	q.Err = fmt.Errorf("%w %d", errLimit, f.limiter.most)
}

// AwaitDNS sends q to the upstreams, unless an equal query has been sent.
func (f *Forward) AwaitDNS(q *dns.Query, wake func()) bool { return f.await(q, f.set, wake) }

// await is AwaitDNS for the upstreams of a set.
func (f *Forward) await(q *dns.Query, set *upstreamSet, wake func()) bool {
	if f.limiter.most == 0 {
		q.SetState(f.stateKey, f.join(q, set, wake))
		return true
	}

	w := &waiter{wake: wake, client: slots.Client(q.Peer.Addr())}
	if !f.limiter.enter(w) {
		return false
	}
	q.SetState(f.stateKey, w)
	f.limiter.joined(w, f.join(q, set, wake))
	return true
}

// join returns the exchange for q with the upstreams of a set.
func (f *Forward) join(q *dns.Query, set *upstreamSet, wake func()) *exchange {
	observed := len(f.observers) > 0 || q.Trace() != nil
	return set.join(q, *f.excluded.Load(), observed, wake)
}

// awaited returns the exchange that q has waited for, nil if q has no place.
func (f *Forward) awaited(q *dns.Query) *exchange {
	switch s := q.State(f.stateKey).(type) {
	case *exchange:
		return s
	case *waiter:
		return f.limiter.leave(s)
	}
	return nil
}

// Resolve answers q after AwaitDNS.
func (f *Forward) Resolve(ctx context.Context, q *dns.Query) error { return f.resolve(ctx, q, f.set) }

// resolve is Resolve after await with a set.
func (f *Forward) resolve(ctx context.Context, q *dns.Query, set *upstreamSet) error {
	x := f.awaited(q)
	q.SetState(f.stateKey, nil)
	if x == nil {
		f.refuse(q)
		return nil
	}

	if !x.isFinished() {
		q.AddExtendedError(wire.EDENoReachable, "no answer in time")
		return fmt.Errorf("no reply from any upstream: %w", ctx.Err())
	}
	if x.upstream != nil {
		q.SetState(f.stateKey, x.upstream)
	}
	if len(f.observers) > 0 || q.Trace() != nil {
		f.observe(q, x)
	}

	switch {
	case f.passesOn(q, x.reply):
		q.Next(ctx)
		return nil
	case x.reply == nil:
		q.AddExtendedError(x.ede, x.edeText())
		return x.err
	}
	if n := len(x.reply.records); n >= largeReply {
		if err := q.ReserveAnswer(answerCopies * n); err != nil {
			return err
		}
	}
	x.reply.write(q)
	if !set.memory.Tight() { // else with the reply itself, when the collector has run
		x.reply.claim.Release()
	}
	if target := x.reply.target; target != nil {
		f.follow(ctx, q, target)
	}
	return nil
}

// follow adds this server's answer for target, to which the last CNAME record of the answer leads.
func (f *Forward) follow(ctx context.Context, q *dns.Query, target []byte) {
	sub := q.ResolveSubQuery(ctx, target, q.Type)
	if !sub.Unanswered() {
		// A referral, and the SOA record of another zone, are no part of the answer. Proofs of wildcards are.
		proofs := []wire.Type{wire.TypeNSEC, wire.TypeNSEC3, wire.TypeRRSIG}
		q.Answer.DeleteFunc(func(s wire.Section, r wire.Record) bool {
			return s == wire.Additional || s == wire.Authority && !slices.Contains(proofs, r.Type)
		})
	}

	ra := q.RA
	served := q.FollowCNAME(sub)
	q.RA = ra || sub.RA
	q.AD = q.AD && sub.AD
	q.Cacheable = q.Cacheable && served && sub.Cacheable
}

// passesOn reports whether the reply, nil if there is none, makes the query go to the next
// forward, or directive.
func (f *Forward) passesOn(q *dns.Query, r *reply) bool {
	switch {
	case (r == nil || r.code == wire.NXDomain) && f.fallthru.Through(q.Name()):
		return true
	case r == nil:
		return false
	}
	if !slices.Contains(f.nextCodes, r.code) && !(f.nextOnNodata && r.isNODATA()) {
		return false
	}
	return slices.ContainsFunc(f.following, func(other *Forward) bool { return other.matches(q) })
}

// Metadata returns the value of forward/upstream.
func (f *Forward) Metadata(q *dns.Query, key string) (string, bool) {
	if key != "forward/upstream" {
		return "", false
	}
	if u, ok := q.State(f.stateKey).(*upstream); ok {
		return u.String(), true
	}
	return "", false
}

// Sent calls yield for each current upstream, in the order of the Corefile, with the
// number of queries sent to it since the process started, including retries, and the
// number of unanswered ones. Health checks are not included. If several forwards use an
// upstream, its numbers are the sums of all of them.
func (f *Forward) Sent(yield func(upstream string, queries, unanswered uint64)) {
	for _, u := range f.set.current.Load().all {
		yield(u.String(), u.metrics.requests.Value(), u.metrics.failed.Value())
	}
}

// From returns the zone whose names are forwarded. This and the methods below are
// for directive loop.
func (f *Forward) From() wire.Name { return f.from[0] }

// Upstreams returns the names of the current upstreams. changed is closed when
// they change.
func (f *Forward) Upstreams() (names []string, changed <-chan struct{}) {
	list := f.set.current.Load()
	for _, u := range list.all {
		names = append(names, u.String())
	}
	return names, list.changed
}

// Probe sends a query to one upstream, even if it is excluded, and waits for any
// reply.
func (f *Forward) Probe(ctx context.Context, name string, q wire.Name, t wire.Type) error {
	for _, u := range f.set.current.Load().all {
		if u.String() == name {
			return u.probe(ctx, &request{question: questionOf(q, t), flags: wire.FlagRD}, false)
		}
	}
	return errNoUpstream
}

// Exclude excludes an upstream from f's queries, or includes it again.
func (f *Forward) Exclude(name string, exclude bool) {
	for {
		old := f.excluded.Load()
		names := slices.DeleteFunc(slices.Clone(*old), func(n string) bool { return n == name })
		if exclude {
			names = append(names, name)
		}
		slices.Sort(names)
		if f.excluded.CompareAndSwap(old, &names) {
			return
		}
	}
}

// Forwards reports whether all names in a zone are forwarded. It is for directive
// kubernetes.
func (f *Forward) Forwards(zone wire.Name) bool {
	within := func(other wire.Name) bool { return wire.Within(zone, other) }
	overlaps := func(other wire.Name) bool { return within(other) || wire.Within(other, zone) }
	return slices.ContainsFunc(f.from, within) && !slices.ContainsFunc(f.except, overlaps)
}
