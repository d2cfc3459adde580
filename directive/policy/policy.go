// Package policy decides which names a pod may resolve: the directive policy.
//
// A query is decided in three steps. The client's address gives the pod, which the directive
// kubernetes knows. The first group that selects the pod decides. A name in a zone of kubernetes
// belongs to a namespace, and is decided by the line services; every other name is decided by the
// longest of the lines allow and deny. The answer of a query that passes is read on its way up, since
// its CNAME records may lead to a name that is denied.
package policy

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/wire"
)

// A Policy is the directive policy of one server block. Its reference page is
// docs/reference/directives/policy.md.
type Policy struct {
	groups        groups
	clusters      []clusterNames
	federate      []federation
	probers       []probing
	zones         wire.ZoneMap[bool] // of the clusters, without reverse zones
	rcode         wire.RCode         // of denied names; NXDOMAIN or REFUSED
	outcome       dns.StateKey       // a *group that denies a query, or would without audit, or a *passed
	answered      *group             // stands for the group of a query whose answer waits for the client's pod
	newcomer      newcomers
	metrics       *metrics.Registry
	rooms         *sync.Pool // of *targetRoom
	audit         auditor
	directive     corefile.Directive
	readsPolicies bool                         // the option cluster_network_policies
	settings      *settings                    // of objects; nil without the option
	objects       *atomic.Pointer[objectLines] // nil in it before the start, and without the option
	series        []series                     // by group, of the chain passed to BindChain
}

// A clusterNames is a handler that knows pods and namespaces: the directive kubernetes.
type clusterNames interface {
	// NeedClientLabels makes the cluster index pods by address, with their labels.
	NeedClientLabels() error
	// Client returns the pod with an address; nil if no pod or several have it.
	Client(ip netip.Addr) *cluster.Pod
	// HasNamespace reports whether a namespace exists. label is its name with the length before it.
	HasNamespace(label []byte) bool
	// ClusterOptions returns where the cluster is.
	ClusterOptions() cluster.Options
	// AuthoritativeZones returns the zones of the cluster, with reverse zones.
	AuthoritativeZones() []wire.Name
}

// A federation is a handler of names SVC.NS.FEDERATION.svc.ZONE: the directive federation.
type federation interface {
	// NamespaceOf returns the label of the namespace in such a name, in wire form and in lower case; nil
	// for other names.
	NamespaceOf(name []byte) []byte
}

// A probing handler sends queries that may come back to the server: the directive loop.
type probing interface{ IsProbe(q *dns.Query) bool }

// A targetRoom has room for the name of a target, and for the same name in lower case.
type targetRoom [2][wire.MaxName]byte

// A reason says why a name is not answered.
type reason uint8

const (
	passes   reason = iota
	byLine          // a line deny
	bySight         // the line services
	byCopy          // a zone transfer would show names that are denied
	byTarget        // a record of the answer leads to a denied name
	unread          // it is not known yet what objects say of the name
)

// A client is what is known of the client of a query.
type client struct {
	pod      *cluster.Pod     // nil if none is known
	group    *group           // the first that selects it; nil if there is none
	policies []*networkPolicy // ClusterNetworkPolicies that select its namespace
}

// clientOf returns the client of a query. Its pod is not known if it is not known which groups select its
// namespace.
func (p *Policy) clientOf(q *dns.Query) client {
	for _, c := range p.clusters {
		if pod := c.Client(q.Peer.Addr()); pod != nil {
			if m, known := p.groups.matched(pod.Namespace); known {
				return client{pod, p.groups.of(pod, m), m.policies}
			}
		}
	}
	return client{group: p.groups.unknown}
}

// namespaceOf reports whether a name, in wire form and in lower case, is in a zone of the cluster, and
// returns the label of the namespace that it belongs to, whether that exists or not; nil for names of the
// zone itself. In names with wildcards the label may be *, for several namespaces.
func (p *Policy) namespaceOf(name []byte) (label []byte, inside bool) {
	_, length := p.zones.LongestOf(name)
	if length == 0 {
		return nil, false
	}

	for _, f := range p.federate {
		if label = f.NamespaceOf(name); label != nil {
			return label, true
		}
	}

	// The last two labels in front of the zone are namespace and kind.
	var before, last []byte
	for rest := name; len(rest) > length; rest = rest[1+rest[0]:] {
		before, last = last, rest[1:1+rest[0]]
	}
	switch {
	case string(last) == "dns":
		return nil, true
	case before == nil && string(last) == "*": // all kinds, and so all namespaces
		return last, true
	}
	return before, true
}

// ServeDNS implements [dns.Handler].
func (p *Policy) ServeDNS(q *dns.Query) dns.Verdict {
	c := p.clientOf(q)
	if c.group == nil {
		return dns.Next
	}
	why := p.decide(q, c)
	if why != passes && slices.ContainsFunc(p.probers, func(from probing) bool { return from.IsProbe(q) }) {
		return dns.Next // loop answers it
	}
	if why != passes && c.mayBeNew() && p.newcomer.mayAppear(q.Peer.Addr(), q.Now()) {
		return dns.Wait
	}
	return p.apply(q, c, why)
}

// mayBeNew reports whether the client may be a pod that is not known yet, which is to be denied something.
func (c client) mayBeNew() bool { return c.pod == nil && !c.group.audit }

// decide decides about the query's own name.
func (p *Policy) decide(q *dns.Query, c client) reason {
	switch {
	case p.isUnread(q, c):
		return unread
	case q.Type.IsTransfer() && p.limits(c):
		return byCopy
	}
	return p.decideName(q.Name(), c, p.isTrusted(q, c))
}

// decideName decides about a name in wire form and in lower case. An allow line has a name that led to
// a trusted one, so that deny * does not apply to it.
func (p *Policy) decideName(name []byte, c client, trusted bool) reason {
	if label, inside := p.namespaceOf(name); inside {
		if label != nil && !c.group.sees(label, c.pod) {
			return bySight
		}
		return passes
	}

	action, rule := c.group.find(name)
	o := p.findLine(c.pod, name)
	switch {
	case action.denies(len(rule), trusted) && !o.widens, o.action.denies(o.length, trusted):
		return byLine
	case c.judge(name).denies(trusted):
		return byLine
	}
	return passes
}

// limits reports whether names are denied to a client, so that a zone transfer could show it one of them.
func (p *Policy) limits(c client) bool {
	return c.group.limitsSight || c.group.denies || c.isNamed() || p.hasLines(c.pod)
}

// denies reports whether a line with this action denies a name. length is that of the line's name.
func (a action) denies(length int, trusted bool) bool { return a == deny && !(trusted && length == 1) }

// isTrusted reports whether an allow line has the name for which this sub-query is sent. A name of the
// cluster does not make its target trusted: anyone who may create a Service can have it lead anywhere.
// The names that autopath queries after one that does not exist are no targets of that one.
func (p *Policy) isTrusted(q *dns.Query, c client) bool {
	parent := q.Parent()
	return leads(parent) && p.trusts(parent.Name(), c, p.isTrusted(parent, c))
}

// leads reports whether a sub-query of parent is for a target of its answer.
func leads(parent *dns.Query) bool {
	return parent != nil && (parent.RCode != wire.NXDomain || hasTargets(&parent.Answer))
}

// apply records the decision, and fails a query that is denied.
func (p *Policy) apply(q *dns.Query, c client, why reason) dns.Verdict {
	switch why {
	case passes:
		q.SetState(p.outcome, &c.group.passed)
		return dns.Next
	case unread:
		q.Fail(wire.ServFail)
		q.AddExtendedError(wire.EDEOther, "the objects of the directive policy have not been read yet")
		return dns.Done
	}
	p.note(q, c, why)
	return p.deny(q, c.group, why)
}

// deny counts a query that is to be denied, and fails it unless the group only audits. A search path makes
// names of namespaces that do not exist: of com, for www.example.com.svc.cluster.local. These are answered
// like others, but nobody is denied anything.
func (p *Policy) deny(q *dns.Query, g *group, why reason) dns.Verdict {
	if !p.isDenied(q) && (why != bySight || p.mayExist(q)) {
		counter := p.series[g.order].denied
		if g.audit {
			counter = p.series[g.order].audited
		}
		counter.AddTo(q.Shard(), 1)

		// The client's query is denied with its target, and is not counted again.
		q.SetState(p.outcome, g)
		for sub := q; isPart(sub); sub = sub.Parent() {
			sub.Parent().SetState(p.outcome, g)
		}
	}

	if g.audit {
		return dns.Next
	}
	p.fail(q, why)
	return dns.Done
}

// isDenied reports whether the query has been counted as one that is denied, or would be without audit.
func (p *Policy) isDenied(q *dns.Query) bool {
	_, is := q.State(p.outcome).(*group)
	return is
}

// isPart reports whether a sub-query is for a target of a query that the same Policy decides.
func isPart(q *dns.Query) bool { return leads(q.Parent()) && q.Parent().Chain() == q.Chain() }

// mayExist reports whether the namespace of the query's name exists, or the name stands for several.
func (p *Policy) mayExist(q *dns.Query) bool {
	label, _ := p.namespaceOf(q.Name())
	withLength := append([]byte{byte(len(label))}, label...)
	return string(label) == "*" ||
		slices.ContainsFunc(p.clusters, func(c clusterNames) bool { return c.HasNamespace(withLength) })
}

// DeniedBy returns the name of the group that denies a query, or would without audit; "" if none does.
// It is valid until the query has been observed.
func (p *Policy) DeniedBy(q *dns.Query) string {
	if g, ok := q.State(p.outcome).(*group); ok {
		return g.name
	}
	return ""
}

// fail makes the answer of a denied query. A name of a namespace that the client does not see is answered
// like one that does not exist, so that the search goes on with the next domain of the search path.
func (p *Policy) fail(q *dns.Query, why reason) {
	code := p.rcode
	switch why {
	case bySight:
		code = wire.NXDomain
	case byCopy:
		code = wire.Refused
	}
	q.Fail(code)
	q.AddExtendedError(wire.EDEProhibited, "")
}

// CompleteDNS implements [dns.Completer]. It denies an answer whose records lead to a name that is denied.
// A client that is not known yet may be a pod of another group, for which it waits first.
func (p *Policy) CompleteDNS(q *dns.Query) dns.Verdict {
	var c client
	if hasTargets(&q.Answer) {
		c = p.clientOf(q)
	}
	if c.group != nil && c.mayBeNew() && !p.isDenied(q) && p.leadsAstray(q, c) &&
		p.newcomer.mayAppear(q.Peer.Addr(), q.Now()) {
		q.SetState(p.outcome, p.answered)
		return dns.Wait
	}
	p.finish(q, c)
	return dns.Done
}

// finish decides about the targets in an answer, if the client has a group, and counts a query that is allowed.
func (p *Policy) finish(q *dns.Query, c client) {
	if c.group != nil && hasTargets(&q.Answer) {
		p.noteTargets(q, c)
		if !(c.group.audit && p.isDenied(q)) && p.leadsAstray(q, c) {
			p.deny(q, c.group, byTarget)
		}
	}
	if of, ok := q.State(p.outcome).(*passed); ok && !isPart(q) {
		p.series[of.order].allowed.AddTo(q.Shard(), 1)
	}
}

// isTarget reports whether records of a type lead to a name, or show one of the cluster.
func isTarget(t wire.Type) bool { return t == wire.TypeCNAME || t == wire.TypePTR }

func hasTargets(a *wire.Answer) (found bool) {
	a.Walk(func(section wire.Section, r wire.Record) bool {
		found = section == wire.Answers && isTarget(r.Type)
		return section == wire.Answers && !found
	})
	return found
}

// leadsAstray reports whether a CNAME or PTR record of the answer leads to a name that is denied. The
// records are in the order in which a resolver follows them. After a name of the cluster the next one is
// decided as if it were asked for, and after one that allow has, all but deny * apply.
func (p *Policy) leadsAstray(q *dns.Query, c client) (denied bool) {
	trusted := p.trusts(q.Name(), c, p.isTrusted(q, c))
	p.walkTargets(q, func(target []byte, t wire.Type) bool {
		// A PTR record is data that leads nowhere; it shows the name of a namespace.
		why := p.decideName(target, c, trusted)
		denied = why == bySight || why == byLine && t != wire.TypePTR
		trusted = p.trusts(target, c, trusted)
		return !denied
	})
	return denied
}

// walkTargets calls f with the targets of the answer, in wire form and in lower case, until it returns
// false. A target is valid until f returns.
func (p *Policy) walkTargets(q *dns.Query, f func(target []byte, t wire.Type) bool) {
	room := p.rooms.Get().(*targetRoom)
	defer p.rooms.Put(room)
	q.Answer.Walk(func(section wire.Section, r wire.Record) bool {
		if section != wire.Answers {
			return false
		}
		if !isTarget(r.Type) {
			return true
		}
		target, _, ok := wire.ReadName(room[0][:0], q.Answer.Buf, r.RData)
		return !ok || f(wire.AppendLower(room[1][:0], target), r.Type)
	})
}

// trusts reports whether the target of a name is trusted, if that of the name before it was or not.
func (p *Policy) trusts(name []byte, c client, before bool) bool {
	if _, inside := p.namespaceOf(name); inside {
		return false
	}
	action, _ := c.group.find(name)
	return before || action == allow || p.findLine(c.pod, name).action == allow || c.judge(name).action == acceptAction
}

// Resolve implements [dns.Resolver]. It waits for the pod of a client that is not known yet.
func (p *Policy) Resolve(ctx context.Context, q *dns.Query) error {
	ip := q.Peer.Addr()
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	c := p.clientOf(q)
	for ; c.pod == nil && p.newcomer.mayAppear(ip, time.Now()); c = p.clientOf(q) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if c.pod != nil { // the next pod with the address is new, too
		p.newcomer.forget(ip)
	}

	answered := q.State(p.outcome) == any(p.answered)
	q.SetState(p.outcome, nil)
	if c.group != nil && p.apply(q, c, p.decide(q, c)) == dns.Done {
		return nil
	}
	if !answered {
		q.Next(ctx)
	}
	p.finish(q, c)
	return nil
}

// A series is the counters of one group in one chain.
type series struct{ allowed, denied, audited *metrics.Counter }

// BindChain returns a copy of p that counts for c.
func (p *Policy) BindChain(c *dns.Chain) any {
	bound := *p
	bound.series = nil
	for _, g := range p.groups.all {
		counter := func(decision string) *metrics.Counter {
			return p.metrics.Counter("seamark_policy_decisions_total",
				"Queries of clients of a group: allowed, denied, or audited, which would have been denied.",
				"server", c.Server, "view", c.View, "group", g.name, "decision", decision)
		}
		bound.series = append(bound.series, series{counter("allowed"), counter("denied"), counter("audited")})
	}
	return &bound
}
