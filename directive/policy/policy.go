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
	zones         wire.ZoneMap[bool] // of the clusters, without reverse zones
	rcode         wire.RCode         // of denied names; NXDOMAIN or REFUSED
	denied        dns.StateKey       // of the group that denies a query, or would without audit
	answered      *group             // stands for the group of a query whose answer waits for the client's pod
	newcomer      newcomers
	metrics       *metrics.Registry
	rooms         *sync.Pool // of *targetRoom
	audit         auditor
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

// A targetRoom has room for the name of a target, and for the same name in lower case.
type targetRoom [2][wire.MaxName]byte

// A reason says why a name is denied.
type reason uint8

const (
	passes   reason = iota
	byLine          // a line deny
	bySight         // the line services
	byCopy          // a zone transfer would show what services hides
	byTarget        // a record of the answer leads to a denied name
)

// client returns the pod with the query's address; nil if none is known, or if it is not known which groups
// select its namespace.
func (p *Policy) client(q *dns.Query) *cluster.Pod {
	for _, c := range p.clusters {
		if pod := c.Client(q.Peer.Addr()); pod != nil && p.groups.knows(pod.Namespace) {
			return pod
		}
	}
	return nil
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
	pod := p.client(q)
	g := p.groups.of(pod)
	if g == nil {
		return dns.Next
	}
	if p.isUnread(q, pod) {
		q.Fail(wire.ServFail)
		q.AddExtendedError(wire.EDEOther, "the objects of the directive policy have not been read yet")
		return dns.Done
	}

	why := p.decide(q, g, pod)
	p.note(q, g, pod, why)
	if why != passes && pod == nil && !g.audit && p.newcomer.mayAppear(q.Peer.Addr(), q.Now()) {
		return dns.Wait
	}
	return p.apply(q, g, why)
}

// decide decides about the query's own name.
func (p *Policy) decide(q *dns.Query, g *group, pod *cluster.Pod) reason {
	if q.Type.IsTransfer() && g.limitsSight {
		return byCopy
	}
	return p.decideName(q.Name(), g, pod, p.isTrusted(q, g, pod))
}

// decideName decides about a name in wire form and in lower case. An allow line has a name that led to
// a trusted one, so that deny * does not apply to it.
func (p *Policy) decideName(name []byte, g *group, pod *cluster.Pod, trusted bool) reason {
	if label, inside := p.namespaceOf(name); inside {
		if label != nil && !g.sees(label, pod) {
			return bySight
		}
		return passes
	}

	action, rule := g.names.find(name)
	o := p.findLine(pod, name)
	switch {
	case action.denies(len(rule), trusted) && !o.widens, o.action.denies(o.length, trusted):
		return byLine
	case p.judge(pod, name).denies(trusted):
		return byLine
	}
	return passes
}

// denies reports whether a line with this action denies a name. length is that of the line's name.
func (a action) denies(length int, trusted bool) bool { return a == deny && !(trusted && length == 1) }

// isTrusted reports whether an allow line has the name for which this sub-query is sent. A name of the
// cluster does not make its target trusted: anyone who may create a Service can have it lead anywhere.
// The names that autopath queries after one that does not exist are no targets of that one.
func (p *Policy) isTrusted(q *dns.Query, g *group, pod *cluster.Pod) bool {
	parent := q.Parent()
	return leads(parent) && p.trusts(parent.Name(), g, pod, p.isTrusted(parent, g, pod))
}

// leads reports whether a sub-query of parent is for a target of its answer.
func leads(parent *dns.Query) bool {
	return parent != nil && (parent.RCode != wire.NXDomain || hasTargets(&parent.Answer))
}

// apply counts the decision, and fails a query that is denied.
func (p *Policy) apply(q *dns.Query, g *group, why reason) dns.Verdict {
	if why == passes {
		p.series[g.order].allowed.AddTo(q.Shard(), 1)
		return dns.Next
	}
	return p.deny(q, g, why)
}

// deny counts a query that is to be denied, and fails it unless the group only audits. A search path makes
// names of namespaces that do not exist: of com, for www.example.com.svc.cluster.local. These are answered
// like others, but nobody is denied anything.
func (p *Policy) deny(q *dns.Query, g *group, why reason) dns.Verdict {
	counter := p.series[g.order].denied
	if g.audit {
		counter = p.series[g.order].audited
	}
	if why != bySight || p.mayExist(q) {
		q.SetState(p.denied, g)
		counter.AddTo(q.Shard(), 1)
	}

	if g.audit {
		return dns.Next
	}
	p.fail(q, why)
	return dns.Done
}

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
	if g, ok := q.State(p.denied).(*group); ok {
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
	if !hasTargets(&q.Answer) {
		return dns.Done
	}
	pod := p.client(q)
	g := p.groups.of(pod)
	if pod == nil && g != nil && !g.audit && q.State(p.denied) == nil && p.leadsAstray(q, g, nil) &&
		p.newcomer.mayAppear(q.Peer.Addr(), q.Now()) {
		q.SetState(p.denied, p.answered)
		return dns.Wait
	}
	p.finish(q, g, pod)
	return dns.Done
}

// finish decides about the targets in an answer.
func (p *Policy) finish(q *dns.Query, g *group, pod *cluster.Pod) {
	p.noteTargets(q, g, pod)
	if g == nil || q.State(p.denied) != nil { // an audited query has been counted already
		return
	}
	if p.leadsAstray(q, g, pod) {
		p.deny(q, g, byTarget)
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
func (p *Policy) leadsAstray(q *dns.Query, g *group, pod *cluster.Pod) (denied bool) {
	trusted := p.trusts(q.Name(), g, pod, p.isTrusted(q, g, pod))
	p.walkTargets(q, func(target []byte, t wire.Type) bool {
		// A PTR record is data that leads nowhere; it shows the name of a namespace.
		why := p.decideName(target, g, pod, trusted)
		denied = why == bySight || why == byLine && t != wire.TypePTR
		trusted = p.trusts(target, g, pod, trusted)
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
func (p *Policy) trusts(name []byte, g *group, pod *cluster.Pod, before bool) bool {
	if _, inside := p.namespaceOf(name); inside {
		return false
	}
	action, _ := g.names.find(name)
	return before || action == allow || p.findLine(pod, name).action == allow ||
		p.judge(pod, name).action == acceptAction
}

// Resolve implements [dns.Resolver]. It waits for the pod of a client that is not known yet.
func (p *Policy) Resolve(ctx context.Context, q *dns.Query) error {
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	for p.client(q) == nil && p.newcomer.mayAppear(q.Peer.Addr(), time.Now()) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}

	pod := p.client(q)
	g := p.groups.of(pod)
	if q.State(p.denied) == any(p.answered) {
		q.SetState(p.denied, nil)
		if g == nil {
			return nil
		}
		if why := p.decide(q, g, pod); why != passes && p.deny(q, g, why) == dns.Done {
			return nil
		}
		p.finish(q, g, pod)
		return nil
	}

	if g != nil && p.apply(q, g, p.decide(q, g, pod)) == dns.Done {
		return nil
	}
	q.Next(ctx)
	if hasTargets(&q.Answer) {
		p.finish(q, g, pod)
	}
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
