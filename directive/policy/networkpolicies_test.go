package policy

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/test/chaintest"
)

func networkPolicyText(name, tier string, priority string, subject string, rules ...string) string {
	return "{apiVersion: policy.networking.k8s.io/v1beta1, kind: ClusterNetworkPolicy, metadata: {name: " + name + "}, spec: {tier: " + tier +
		", priority: " + priority + ", subject: " + subject + ", egress: [" + strings.Join(rules, ", ") + "]}}\n---\n"
}

const everywhere = "{networks: [0.0.0.0/0, '::/0']}"

// ClusterNetworkPolicies decide by priority and by the order of their rules, for the pods that they select.
func TestNetworkPolicies(t *testing.T) {
	c := &folderCluster{dir: t.TempDir()}
	c.add("10.1.0.1", pod("a", "agent", "app", "agent"))
	c.add("10.1.0.2", pod("a", "web", "app", "web"))
	c.add("10.1.0.3", pod("b", "agent", "app", "agent"))
	c.put(t, "namespaces.yaml", namespaceText("a", "tenant: agents")+"---\n"+namespaceText("b", "tenant: others"))
	agents := "{pods: {namespaceSelector: {matchExpressions: [{key: tenant, operator: In, values: [agents]}]}, podSelector: {matchLabels: {app: agent}}}}"
	c.put(t, "policies.yaml", networkPolicyText("late", "Admin", "20", agents,
		"{name: named, action: Accept, to: [{domainNames: ['*.Good.test', 'good.test.', '*.denied.test', alias.shop.test]}]}",
		"{name: rest, action: Deny, to: ["+everywhere+"]}")+
		networkPolicyText("early", "Admin", "10", agents,
			"{name: first, action: Accept, to: [{domainNames: [x.denied.test]}]}",
			"{name: denied, action: Deny, to: [{domainNames: ['*.denied.test']}]}",
			"{name: passed, action: Pass, to: [{domainNames: [passed.test]}]}")+
		networkPolicyText("addresses", "Admin", "1", "{namespaces: {matchLabels: {tenant: others}}}", "{action: Deny, to: ["+everywhere+"]}")+
		networkPolicyText("base", "Baseline", "1", "{namespaces: {}}", "{action: Deny, to: [{domainNames: [base.test]}]}")+
		networkPolicyText("ports", "Admin", "1", "{namespaces: {}}", "{name: web, action: Deny, protocols: [{tcp: {destinationPort: {number: 80}}}], to: [{domainNames: [ports.test]}]}",
			"{action: Accept, to: [{domainNames: [half.test]}]}", "{name: half, action: Deny, to: [{networks: [0.0.0.0/0]}]}"))
	s, p := serveFolder(t, "cluster_network_policies\ngroup all {\n deny no.good.test\n}\ngroup others {\n unknown\n deny *\n}", c, nil)

	for _, q := range []struct{ client, name, want string }{
		{"10.1.0.1", "www.GOOD.test", "NOERROR"},
		{"10.1.0.1", "good.test", "NOERROR"},
		{"10.1.0.1", "no.good.test", "NXDOMAIN"}, // by the group
		{"10.1.0.1", "x.denied.test", "NOERROR"},
		{"10.1.0.1", "y.denied.test", "NXDOMAIN"},
		{"10.1.0.1", "passed.test", "NOERROR"},
		{"10.1.0.1", "other.test", "NXDOMAIN"},
		{"10.1.0.1", "alias.shop.test", "NOERROR"}, // and its target
		{"10.1.0.1", "api.a.svc.cluster.local", "NOERROR"},
		{"10.1.0.2", "other.test", "NOERROR"},
		{"10.1.0.3", "other.test", "NXDOMAIN"}, // one policy has names, and another one denies all addresses
		{"10.1.0.2", "base.test", "NOERROR"},
		{"10.1.0.2", "ports.test", "NOERROR"},
	} {
		if got := rcode(s, q.client, q.name); got != q.want {
			t.Errorf("%s of %s: got %s, want %s", q.name, q.client, got, q.want)
		}
	}
	packet := chaintest.Pack(t, chaintest.Query("y.denied.test", "A"))
	s.Prepare = func(q *dns.Query) { q.Peer = netip.MustParseAddrPort("10.1.0.1:53") }
	if n := testing.AllocsPerRun(100, func() { s.Serve(packet, dns.UDP) }); n != 0 {
		t.Errorf("got %v allocations, want 0", n)
	}

	n := p.groups.namespaces.Load()
	if n.report.Count() != 2 {
		t.Errorf("got %d policies with a fault, want base and ports", n.report.Count())
	}
	for name, want := range map[string]string{
		"base":  "its domainNames do not decide: NetworkPolicies, which are not read, precede the tier Baseline",
		"ports": "the rule web does not decide about names: it is for some protocols, and names have none; the rule half does not decide about all names: it has all addresses of one family; add 0.0.0.0/0 or ::/0",
	} {
		n.mu.Lock()
		got := ""
		for key, one := range n.policies {
			if key.Name == name {
				got = one.reason
			}
		}
		n.mu.Unlock()
		if got != want {
			t.Errorf("%s: got the fault %q, want %q", name, got, want)
		}
	}

	want := []string{
		"Corefile:2: policy: ClusterNetworkPolicy base: its domainNames do not decide: NetworkPolicies, which are not read, precede the tier Baseline",
		"Corefile:2: policy: ClusterNetworkPolicy ports: the rule web does not decide about names: it is for some protocols, and names have none; " +
			"the rule half does not decide about all names: it has all addresses of one family; add 0.0.0.0/0 or ::/0",
	}
	if got := p.CheckObjects(t.Context(), cluster.Options{}); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("check: got %v, want %v", got, want)
	}
	if got := chaintest.Metric(s.Plan.Metrics, "seamark_policy_network_policies_faulty"); got != "2" {
		t.Errorf("the metric: got %s faulty policies, want 2", got)
	}
	if got := s.Plan.Health().Conditions(); len(got) != 1 || !strings.Contains(got[0].Text, "ClusterNetworkPolicy ") || !strings.HasSuffix(got[0].Text, "(and 1 more objects)") {
		t.Errorf("got the conditions %+v, want one about two policies", got)
	}

	c.put(t, "policies.yaml", networkPolicyText("new", "Admin", "1", agents, "{action: Deny, to: [{domainNames: [www.good.test]}]}"))
	eventually(t, "the new policy decides", func() bool {
		return rcode(s, "10.1.0.1", "www.good.test") == "NXDOMAIN" && rcode(s, "10.1.0.1", "other.test") == "NOERROR"
	})
	c.put(t, "policies.yaml", "")
	eventually(t, "no policy decides", func() bool { return rcode(s, "10.1.0.1", "www.good.test") == "NOERROR" })
	if got := rcode(s, "10.1.0.3", "other.test"); got != "NOERROR" {
		t.Errorf("without policies: got %s, want NOERROR", got)
	}
	if n.report.Count() != 0 {
		t.Errorf("without policies: got %d faults, want none", n.report.Count())
	}
}
