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
	c := p.clientOf(q)
	pod, g := c.pod, c.group
	who := "the client is not known as a pod"
	if pod != nil {
		who = fmt.Sprintf("the client is pod %s of namespace %s", pod.Name, pod.Namespace)
	}
	if g == nil {
		return []dns.Cause{{Text: who + ", which no group selects, so every name is allowed"}}
	}

	o := p.deciding(q, c)
	text := fmt.Sprintf("%s, which group %s selects: %s", who, g.name, p.describe(q, c, o))
	if g.audit && p.decide(q, c) != passes {
		text += "; audit lets the query pass"
	}
	causes := []dns.Cause{{Text: text}}
	if pod != nil {
		causes[0].Object = &dns.Object{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name}
	}
	if v := c.judge(q.Name()); o.from == nil && p.deniesByRule(q, c, v) {
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
func (p *Policy) deniesByRule(q *dns.Query, c client, v verdict) bool {
	if _, inside := p.namespaceOf(q.Name()); inside {
		return false
	}
	trusted := p.isTrusted(q, c)
	action, rule := c.group.find(q.Name())
	return v.denies(trusted) && !action.denies(len(rule), trusted)
}

// deciding returns the line of an object that decides about the query's name; the zero value if a line of
// the group does, or none.
func (p *Policy) deciding(q *dns.Query, c client) (o line) {
	if _, inside := p.namespaceOf(q.Name()); inside {
		return o
	}
	trusted := p.isTrusted(q, c)
	action, rule := c.group.find(q.Name())
	byGroup := action.denies(len(rule), trusted)
	o = p.findLine(c.pod, q.Name())
	if o.action.denies(o.length, trusted) && !byGroup || o.widens && byGroup {
		return o
	}
	return line{}
}

// describe says how the group decides about the query's name.
func (p *Policy) describe(q *dns.Query, c client, o line) string {
	why := p.decide(q, c)
	switch why {
	case byCopy:
		return "a zone transfer would show names that are denied"
	case unread:
		return "the objects that decide have not been read yet"
	}

	label, inside := p.namespaceOf(q.Name())
	switch {
	case why == bySight:
		return fmt.Sprintf("services does not have namespace %s", label)
	case inside:
		return "the name of the cluster is one that the group sees"
	}

	found, rule := c.group.find(q.Name())
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
	if c.group.names.values[wire.Name(rule)].own == 0 || string(rule) != string(q.Name()) {
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
