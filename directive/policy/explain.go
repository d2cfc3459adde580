package policy

import (
	"fmt"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/dns"
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

	text := fmt.Sprintf("%s, which group %s selects: %s", who, g.name, p.describe(q, g, pod))
	if g.audit && p.decide(q, g, pod) != passes {
		text += "; audit lets the query pass"
	}
	causes := []dns.Cause{{Text: text}}
	if pod != nil {
		causes[0].Object = &dns.Object{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name}
	}
	return causes
}

// describe says how the group decides about the query's name.
func (p *Policy) describe(q *dns.Query, g *group, pod *cluster.Pod) string {
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

	found, line := g.names.find(q.Name())
	switch {
	case found == 0:
		return "no line has the name, so it is allowed"
	case found == deny && why == passes:
		return "the name is the target of one that is allowed, so deny * does not apply"
	}
	word := wire.Name(line).String()
	if g.names[wire.Name(line)].own == 0 || string(line) != string(q.Name()) {
		word = "*." + word
	}
	if len(line) == 1 {
		word = "*"
	}
	return fmt.Sprintf("%s %s decides", map[action]string{allow: "allow", deny: "deny"}[found], word)
}
