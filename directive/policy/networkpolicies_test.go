package policy

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
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
	chaintest.Eventually(t, "the new policy decides", func() bool {
		return rcode(s, "10.1.0.1", "www.good.test") == "NXDOMAIN" && rcode(s, "10.1.0.1", "other.test") == "NOERROR"
	})
	c.put(t, "policies.yaml", "")
	chaintest.Eventually(t, "no policy decides", func() bool { return rcode(s, "10.1.0.1", "www.good.test") == "NOERROR" })
	if got := rcode(s, "10.1.0.3", "other.test"); got != "NOERROR" {
		t.Errorf("without policies: got %s, want NOERROR", got)
	}
	if n.report.Count() != 0 {
		t.Errorf("without policies: got %d faults, want none", n.report.Count())
	}
}

// selector returns a label selector; "" selects all.
func selector(t testing.TB, text string) cluster.Selector {
	t.Helper()
	s, err := cluster.ParseSelector(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// newWatched returns Namespaces of a cluster with ClusterNetworkPolicies, that are not watched.
func newWatched(t testing.TB) *namespaces {
	t.Helper()
	b, err := plan("group others {\n unknown\n}", new(stubCluster))
	if err != nil {
		t.Fatal(err)
	}
	return newNamespaces(b, cluster.Options{Published: cluster.SetOf(cluster.Namespaces) | cluster.SetOf(cluster.NetworkPolicies)}, nil)
}

// After any changes, several at once too, each namespace has the policies that select it, by precedence, and the
// policies with an error are reported.
func TestNetworkPolicyChanges(t *testing.T) {
	for seed := range uint64(50) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		n := newWatched(t)
		labels, policies := map[string]string{}, map[string]*cluster.NetworkPolicy{}
		namespace := func() *cluster.Namespace {
			name, tenant := fmt.Sprint("ns-", rnd.IntN(5)), fmt.Sprint("t", rnd.IntN(3))
			labels[name] = tenant
			return &cluster.Namespace{Name: name, Labels: cluster.NewLabels(map[string]string{"tenant": tenant})}
		}
		policy := func() *cluster.NetworkPolicy {
			one := &cluster.NetworkPolicy{Name: fmt.Sprint("p", rnd.IntN(6)), Tier: []string{"Admin", "Admin", "Baseline"}[rnd.IntN(3)],
				Priority: int32(rnd.IntN(3)), Namespaces: selector(t, []string{"", "tenant=t1", "tenant!=t1", "tenant in (t0,t2)"}[rnd.IntN(4)]),
				Rules: []cluster.EgressRule{{Action: denyAction, Domains: [][]string{{"a.test"}, nil}[rnd.IntN(2)]}}}
			policies[one.Name] = one
			return one
		}

		for range 100 {
			switch rnd.IntN(6) {
			case 0:
				n.Put(cluster.Namespaces, namespace())
			case 1, 2:
				n.Put(cluster.NetworkPolicies, policy())
			case 3: // a group may have a policy twice
				n.Put(cluster.NetworkPolicies, policy(), policy(), policy())
			case 4:
				name := fmt.Sprint("p", rnd.IntN(6))
				delete(policies, name)
				n.Delete(cluster.NetworkPolicies, cluster.Key{Name: name})
			case 5:
				stays := func(key cluster.Key) bool { return key.Name != "p0" && key.Name != "p3" }
				delete(policies, "p0")
				delete(policies, "p3")
				n.Listed(cluster.NetworkPolicies, stays)
			}

			faulty := 0
			for _, one := range policies {
				if newNetworkPolicy(one).reason != "" {
					faulty++
				}
			}
			if got := n.report.Count(); got != faulty {
				t.Fatalf("seed %d: got %d policies with an error, want %d", seed, got, faulty)
			}
			for name, tenant := range labels {
				var want []string
				for _, one := range policies {
					decides := one.Tier == "Admin" && one.Rules[0].Domains != nil
					if decides && one.Namespaces.Matches(cluster.NewLabels(map[string]string{"tenant": tenant})) {
						want = append(want, fmt.Sprint(one.Priority, " ", one.Name))
					}
				}
				slices.Sort(want)
				var got []string
				for _, one := range n.find(name).policies {
					got = append(got, fmt.Sprint(one.Priority, " ", one.Name))
					if one.NetworkPolicy != policies[one.Name] {
						t.Fatalf("seed %d, %s: got an earlier state of %s", seed, name, one.Name)
					}
				}
				if !slices.Equal(got, want) {
					t.Fatalf("seed %d, %s: got %v, want %v", seed, name, got, want)
				}
			}
		}
	}
}

// Objects with 10,000 names decide about each of them, in any case. What is wrong with 10,000 names is told in one short
// text, and the other names of such an object decide.
func TestManyNames(t *testing.T) {
	const many = 10_000
	c := &folderCluster{dir: t.TempDir()}
	c.add("10.1.0.1", pod("maps", "agent"))
	c.add("10.1.0.2", pod("policies", "agent"))
	var lines, wrong, domains, rules []string
	for i := range many {
		lines = append(lines, fmt.Sprintf("deny n%d.Test", i))
		wrong = append(wrong, fmt.Sprintf("deny w%d..test", i))
		domains = append(domains, fmt.Sprintf("n%d.test", i))
		rules = append(rules, fmt.Sprintf("{action: Deny, to: [{domainNames: ['w%d..test']}]}", i))
	}
	policies := func(name string) string { return "{namespaces: {matchLabels: {name: " + name + "}}}" }
	c.put(t, "all.yaml", namespaceText("maps", "name: maps")+"---\n"+namespaceText("policies", "name: policies")+"---\n"+
		configMapText("maps", "names", 1, lines...)+"---\n"+configMapText("maps", "wrong", 2, append(wrong, "deny right.test")...)+"---\n"+
		networkPolicyText("names", "Admin", "1", policies("policies"), "{action: Deny, to: [{domainNames: ["+strings.Join(domains, ", ")+"]}]}")+
		networkPolicyText("wrong", "Admin", "2", policies("policies"), append(rules, "{action: Deny, to: [{domainNames: [right.test]}]}")...))
	s, p := serveFolder(t, "cluster_network_policies\nobjects {\n manifests DIR\n delegate * .\n max_names 50000\n}\ngroup all {\n}\ngroup others {\n unknown\n}", c, nil)

	for _, client := range []string{"10.1.0.1", "10.1.0.2"} {
		for name, want := range map[string]string{
			"n0.test": "NXDOMAIN", "N9999.TEST": "NXDOMAIN", "n5000.test": "NXDOMAIN", "n10000.test": "NOERROR", "x.n0.test": "NOERROR",
			"right.test": "NXDOMAIN", "w1.test": "NOERROR",
		} {
			if got := rcode(s, client, name); got != want {
				t.Errorf("%s of %s: got %s, want %s", name, client, got, want)
			}
		}
	}

	n := p.groups.namespaces.Load()
	if got := n.report.Text(); got == "" || len(got) > 1000 {
		t.Errorf("the policy with 10,000 wrong names: got a text of %d bytes, want one of at most 1,000: %.2000s", len(got), got)
	}
	conditions := s.Plan.Health().Conditions()
	if len(conditions) != 2 {
		t.Errorf("got %d conditions, want one about each object: %.2000v", len(conditions), conditions)
	}
	for _, c := range conditions {
		if len(c.Text) > 1000 {
			t.Errorf("got a condition of %d bytes, want at most 1,000: %.2000s", len(c.Text), c.Text)
		}
	}
}
