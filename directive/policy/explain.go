package policy

import (
	"fmt"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/observe/audit"
	"github.com/seamark/seamark/wire"
)

// ExplainDNS implements [dns.Explainer].
func (p *Policy) ExplainDNS(q *dns.Query, _ dns.Verdict) []dns.Cause {
	pod := p.client(q)
	who := "the client is not known as a pod"
	if pod != nil {
		who = fmt.Sprintf("the client is pod %s of namespace %s", pod.Name, pod.Namespace)
	}
	g := p.groups.of(pod)
	if g == nil {
		return []dns.Cause{{Text: who + ", which no group selects, so every name is allowed"}}
	}

	o := p.deciding(q, g, pod)
	text := fmt.Sprintf("%s, which group %s selects: %s", who, g.name, p.describe(q, g, pod, o))
	if g.audit && p.decide(q, g, pod) != passes {
		text += "; audit lets the query pass"
	}
	causes := []dns.Cause{{Text: text}}
	if pod != nil {
		causes[0].Object = &dns.Object{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name}
	}
	if v := p.judge(pod, q.Name()); o.from == nil && p.deniesByRule(q, g, pod, v) {
		causes[0].Text = fmt.Sprintf("%s, which group %s selects: the rule %s of ClusterNetworkPolicy %s denies the name", who, g.name, v.rule.Name, v.by.Name)
		causes = append(causes, dns.Cause{Text: "ClusterNetworkPolicy " + v.by.Name + " selects the pod", Object: &dns.Object{
			Kind: cluster.NetworkPolicies.ObjectKind(), Name: v.by.Name}})
	}
	if o.from != nil {
		key := o.from.Key()
		causes = append(causes, dns.Cause{Text: o.from.String() + " has this line", Object: &dns.Object{
			Kind: o.from.Kind().ObjectKind(), Namespace: key.Namespace, Name: key.Name}})
	}
	return causes
}

// deniesByRule reports whether a ClusterNetworkPolicy denies the query's name, and nothing else does.
func (p *Policy) deniesByRule(q *dns.Query, g *group, pod *cluster.Pod, v verdict) bool {
	if _, inside := p.namespaceOf(q.Name()); inside {
		return false
	}
	trusted := p.isTrusted(q, g, pod)
	action, rule := g.names.find(q.Name())
	return v.denies(trusted) && !action.denies(len(rule), trusted)
}

// deciding returns the line of an object that decides about the query's name; the zero value if a line of
// the group does, or none.
func (p *Policy) deciding(q *dns.Query, g *group, pod *cluster.Pod) (o line) {
	if _, inside := p.namespaceOf(q.Name()); inside {
		return o
	}
	trusted := p.isTrusted(q, g, pod)
	action, rule := g.names.find(q.Name())
	byGroup := action.denies(len(rule), trusted)
	o = p.findLine(pod, q.Name())
	if o.action.denies(o.length, trusted) && !byGroup || o.widens && byGroup {
		return o
	}
	return line{}
}

// describe says how the group decides about the query's name.
func (p *Policy) describe(q *dns.Query, g *group, pod *cluster.Pod, o line) string {
	why := p.decide(q, g, pod)
	if why == byCopy {
		return "a zone transfer would show names of namespaces that the group does not see"
	}

	label, inside := p.namespaceOf(q.Name())
	switch {
	case why == bySight:
		return fmt.Sprintf("services does not have namespace %s", label)
	case inside:
		return "the name of the cluster is one that the group sees"
	}

	found, rule := g.names.find(q.Name())
	switch {
	case o.from != nil:
		name := q.Name()
		return fmt.Sprintf("%s %s of %s decides", o.action.verb(), audit.Word(wire.Name(name[len(name)-o.length:]), o.below), o.from)
	case found == 0:
		return "no line has the name, so it is allowed"
	case found == deny && why == passes:
		return "the name is the target of one that is allowed, so deny * does not apply"
	}
	word := wire.Name(rule).String()
	if g.names[wire.Name(rule)].own == 0 || string(rule) != string(q.Name()) {
		word = "*." + word
	}
	if len(rule) == 1 {
		word = "*"
	}
	return fmt.Sprintf("%s %s decides", found.verb(), word)
}

// verb returns the word that begins a line.
func (a action) verb() string {
	if a == allow {
		return "allow"
	}
	return "deny"
}
