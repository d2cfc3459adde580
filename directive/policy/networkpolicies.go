package policy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/directive/internal/objects"
	"github.com/seamark/seamark/observe/audit"
)

// A networkPolicy is what the egress rules of a ClusterNetworkPolicy say about names. It is immutable.
type networkPolicy struct {
	*cluster.NetworkPolicy
	rules  []cluster.EgressRule
	names  names  // the numbers of the first rules that have them, from 1 on
	all    int    // that of the first rule for all addresses; 0 if there is none
	reason string // why rules do not decide about names; ""
}

// The actions of rules.
const (
	acceptAction = "Accept"
	denyAction   = "Deny"
	passAction   = "Pass"
)

// newNetworkPolicy reads the rules of a ClusterNetworkPolicy that decide about names: those with
// domainNames, and those for all addresses, which are the rest of all names.
func newNetworkPolicy(n *cluster.NetworkPolicy) *networkPolicy {
	p := &networkPolicy{NetworkPolicy: n, rules: n.Rules}
	named := slices.ContainsFunc(n.Rules, func(r cluster.EgressRule) bool { return len(r.Domains) > 0 })
	if n.Tier != "Admin" {
		if named {
			p.reason = "its domainNames do not decide: NetworkPolicies, which are not read, precede the tier " + n.Tier
		}
		p.rules = nil
		return p
	}

	var wrong []string
	for i, r := range n.Rules {
		why := p.add(i+1, r)
		if why != "" && named {
			wrong = append(wrong, fmt.Sprintf("the rule %s %s", cmp.Or(r.Name, fmt.Sprint("number ", i+1)), why))
		}
	}
	p.reason = strings.Join(wrong, "; ")
	return p
}

// add adds a rule, and returns why it does not decide about names as it does about packets, or "".
func (p *networkPolicy) add(number int, r cluster.EgressRule) (why string) {
	v4, v6 := slices.Contains(r.Networks, "0.0.0.0/0"), slices.Contains(r.Networks, "::/0")
	matters := len(r.Domains) > 0 || v4 || v6
	if matters && r.Protocols && r.Action != acceptAction {
		return "does not decide about names: it is for some protocols, and names have none"
	}

	if v4 && v6 && p.all == 0 {
		p.all = number
	}
	for _, text := range r.Domains {
		name, isBelow, err := audit.ParseWord(strings.ToLower(text))
		if err != nil {
			return fmt.Sprintf("has %q, which is not a name", text)
		}
		p.names.set(name, isBelow, number)
	}
	if v4 != v6 {
		return "does not decide about all names: it has all addresses of one family; add 0.0.0.0/0 or ::/0"
	}
	return ""
}

// isNamed reports whether the policy has domainNames.
func (p *networkPolicy) isNamed() bool { return len(p.names.values) > 0 }

// find returns the first rule that decides about a name, in wire form and in lower case; nil if there is none.
func (p *networkPolicy) find(name []byte) *cluster.EgressRule {
	first := p.all
	p.names.walk(name, func(number int, _ []byte) bool {
		if first == 0 || number < first {
			first = number
		}
		return true
	})
	if first == 0 {
		return nil
	}
	return &p.rules[first-1]
}

// A verdict of ClusterNetworkPolicies about a name. The zero value is none.
type verdict struct {
	action string
	rule   *cluster.EgressRule
	by     *networkPolicy
}

// denies reports whether a name is denied. A rule for all addresses does not deny the target of a name that
// is accepted.
func (v verdict) denies(trusted bool) bool {
	return v.action == denyAction && !(trusted && len(v.rule.Domains) == 0)
}

// judge returns what ClusterNetworkPolicies say about a name. Rules for all addresses count for pods that a
// policy with domainNames selects: otherwise no one has spoken of names.
func (c client) judge(name []byte) (v verdict) {
	named := false
	for _, one := range c.policies {
		if !one.Pods.Matches(c.pod.Labels) {
			continue
		}
		named = named || one.isNamed()
		if v.rule != nil {
			continue
		}
		if r := one.find(name); r != nil {
			v = verdict{r.Action, r, one}
		}
	}
	if !named {
		return verdict{}
	}
	return v
}

// isNamed reports whether a ClusterNetworkPolicy with domainNames selects the client.
func (c client) isNamed() bool {
	return slices.ContainsFunc(c.policies, func(one *networkPolicy) bool {
		return one.isNamed() && one.Pods.Matches(c.pod.Labels)
	})
}

// A policyChange is the difference between two sets of policies. gone has the policies that were replaced or
// deleted, and nil if there are new ones; now has the policies that were added or changed.
type policyChange struct {
	gone map[*networkPolicy]bool
	now  map[cluster.Key]*networkPolicy
}

// putPolicies puts policies in place of those with the same keys. n.mu is held.
func (n *namespaces) putPolicies(all ...*networkPolicy) {
	c := policyChange{map[*networkPolicy]bool{}, map[cluster.Key]*networkPolicy{}}
	for _, one := range all { // of several with one key the last one counts
		c.now[one.Key()] = one
	}
	for key, one := range c.now {
		c.gone[n.policies[key]] = true
		n.policies[key] = one
	}
	n.applyPolicies(c)
}

// removePolicies removes the policies with some keys. n.mu is held.
func (n *namespaces) removePolicies(keys ...cluster.Key) {
	c := policyChange{gone: map[*networkPolicy]bool{}}
	for _, key := range keys {
		c.gone[n.policies[key]] = true
		delete(n.policies, key)
	}
	n.applyPolicies(c)
}

// applyPolicies has the namespaces have the policies that select them. The other policies are left alone: a change
// of one costs one match for each namespace, and not one for each pair of both.
func (n *namespaces) applyPolicies(c policyChange) {
	n.sorted, _ = c.apply(n.sorted, func(*networkPolicy) bool { return true })
	for name, m := range n.byName.All() {
		policies, differ := c.apply(m.policies, func(one *networkPolicy) bool { return one.Namespaces.Matches(m.labels) })
		if differ {
			n.byName.Set(name, &matched{m.labels, m.groups, policies})
		}
	}

	isFaulty := func(one *networkPolicy) bool { return one != nil && one.reason != "" }
	all := slices.Concat(slices.Collect(maps.Keys(c.gone)), slices.Collect(maps.Values(c.now)))
	if slices.ContainsFunc(all, isFaulty) {
		n.reportPolicies()
	}
}

// apply applies the change to policies in the order of their precedence, and reports whether it makes a difference.
// It adds those of c.now that decide about names and that selects selects.
func (c policyChange) apply(before []*networkPolicy, selects func(*networkPolicy) bool) (after []*networkPolicy, differ bool) {
	isGone := func(one *networkPolicy) bool { return c.gone[one] }
	differ = slices.ContainsFunc(before, isGone)
	after = before
	if differ {
		after = slices.DeleteFunc(slices.Clone(before), isGone)
	}

	for _, one := range c.now {
		if !one.decides() || !selects(one) {
			continue
		}
		if !differ { // queries read before
			after, differ = slices.Clone(before), true
		}
		at, _ := slices.BinarySearchFunc(after, one, func(a, b *networkPolicy) int {
			return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.Name, b.Name))
		})
		after = slices.Insert(after, at, one)
	}
	return after, differ
}

// decides reports whether the policy may decide about a name.
func (p *networkPolicy) decides() bool { return p.isNamed() || p.all > 0 }

// reportPolicies reports the policies with an error. n.mu is held.
func (n *namespaces) reportPolicies() {
	faults := map[objects.ID]string{}
	for key, one := range n.policies {
		if one.reason != "" {
			faults[objects.ID{Kind: cluster.NetworkPolicies, Key: key}] = one.reason
		}
	}
	n.report.Set(faults)
}

// policiesOf returns the policies that select a namespace with these labels.
func (n *namespaces) policiesOf(labels *cluster.Labels) (all []*networkPolicy) {
	for _, one := range n.sorted {
		if one.Namespaces.Matches(labels) {
			all = append(all, one)
		}
	}
	return all
}
