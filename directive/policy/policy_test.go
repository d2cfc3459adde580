package policy

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/wire"
)

// A stubCluster stands for a directive kubernetes with the zone cluster.local.
type stubCluster struct {
	mu   sync.Mutex
	pods map[netip.Addr]*cluster.Pod
}

func (*stubCluster) NeedClientLabels() error { return nil }

func (s *stubCluster) Client(ip netip.Addr) *cluster.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pods[ip]
}

func (s *stubCluster) add(ip string, pod *cluster.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pods == nil {
		s.pods = map[netip.Addr]*cluster.Pod{}
	}
	s.pods[netip.MustParseAddr(ip)] = pod
}

func (s *stubCluster) remove(ip string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pods, netip.MustParseAddr(ip))
}

func (*stubCluster) HasNamespace(label []byte) bool { return string(label) == "\x04prod" }

func (*stubCluster) ClusterOptions() cluster.Options { return cluster.Options{} }

func (*stubCluster) AuthoritativeZones() []wire.Name {
	return []wire.Name{chaintest.Name("cluster.local"), chaintest.Name("10.in-addr.arpa")}
}

// An answerer answers every query, with a record of its name, or an alias for names that begin with alias.
type answerer struct{}

func (answerer) ServeDNS(q *dns.Query) dns.Verdict {
	if bytes.HasPrefix(q.Name(), []byte("\x05alias")) {
		q.Answer.AppendString(wire.Answers, wire.OwnerIsQuestion+"\x00\x05\x00\x01\x00\x00\x00\x3c\x00\x06\x04else\x00", 1)
		return dns.Done
	}
	q.Answer.AppendString(wire.Answers, wire.OwnerIsQuestion+"\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04\x0a\x00\x00\x01", 1)
	return dns.Done
}

func pod(namespace, name string, labels ...string) *cluster.Pod {
	all := map[string]string{}
	for pair := range slices.Chunk(labels, 2) {
		all[pair[0]] = pair[1]
	}
	return &cluster.Pod{Namespace: namespace, Name: name, Labels: cluster.NewLabels(all)}
}

// plan sets up the directive policy with options, above c and a handler that answers everything.
func plan(options string, c any) (*config.Block, error) {
	b, err := chaintest.Setup(".:53 {\npolicy {\n"+options+"\n}\n}\n", chaintest.QuietLog(), config.Directive{Name: "policy", Setup: Setup})
	if err != nil {
		return nil, err
	}
	if c != nil {
		b.Offer(c)
	}
	b.SetDirective("whoami")
	b.Handle(answerer{})
	return b, corefile.Sorted(b.Planned()...)
}

func policyOf(b *config.Block) *Policy { return config.Find[*Policy](b)[0] }

// start is plan, and serves the block for a client.
func start(t testing.TB, options string, c *stubCluster, client string) *chaintest.Block {
	t.Helper()
	b, err := plan(options, c)
	if err != nil {
		t.Fatal(err)
	}
	r := chaintest.Run(t, b, nil)
	r.Prepare = func(q *dns.Query) { q.Peer = netip.AddrPortFrom(netip.MustParseAddr(client), 53000) }
	return r
}

func TestSetupErrors(t *testing.T) {
	for _, c := range []struct{ options, want string }{
		{"", "Corefile:2: policy: want group NAME in braces: without a group every name is allowed"},
		{"group", "Corefile:3: policy: group: got no arguments, usage: group NAME"},
		{"group a\ngroup a", "Corefile:4: policy: group: group a is already given on line 3"},
		{"group a {\n namespaces Team\n}", `Corefile:4: policy: group: namespaces: want the name of a namespace, or the beginning of names and *, got "Team"`},
		{"group a {\n namespaces *-a\n}", `Corefile:4: policy: group: namespaces: want the name of a namespace, or the beginning of names and *, got "*-a"`},
		{"group a {\n services own team.x\n}", `Corefile:4: policy: group: services: want the name of a namespace, or the beginning of names and *, got "team.x"`},
		{"group a {\n allow a..b\n}", `Corefile:4: policy: group: allow: want a name, *.NAME for the names below it, or *, got "a..b"`},
		{"group a {\n deny x.*.test\n}", `Corefile:4: policy: group: deny: want a name, *.NAME for the names below it, or *, got "x.*.test"`},
		{"group a {\n allow a.test\n deny A.test.\n}", "Corefile:5: policy: group: deny: A.test. is allowed and denied in the same group"},
		{"group a {\n deny db.shop.svc.cluster.local\n}", "Corefile:2: policy: group a: db.shop.svc.cluster.local. is in a zone of the directive kubernetes: " +
			"services decides about its names, by their namespaces"},
		{"group a {\n deny *\n}\nrcode drop", `Corefile:6: policy: rcode: want nxdomain or refused, got "drop"`},
	} {
		if _, err := plan(c.options, new(stubCluster)); err == nil || err.Error() != c.want {
			t.Errorf("%s\ngot  %v\nwant %s", c.options, err, c.want)
		}
	}

	want := "Corefile:2: policy: requires the directive kubernetes in the same server block, which knows the pods"
	if _, err := plan("group a {\n deny *\n}", nil); err == nil || err.Error() != want {
		t.Errorf("without kubernetes: got %v, want %s", err, want)
	}
	if _, err := plan("group a {\n pods app in\n}", new(stubCluster)); err == nil || !strings.HasPrefix(err.Error(), "Corefile:4: policy: group: pods: ") {
		t.Errorf("a selector that cannot be parsed: got %v, want an error with its line", err)
	}
}

func TestWarnings(t *testing.T) {
	for _, c := range []struct {
		options string
		want    []string
	}{
		{"group a {\n deny *\n}\ngroup b {\n unknown\n deny *\n}", nil},
		{"group a {\n deny *\n audit\n}", nil},
		{"audit\ngroup a {\n deny *\n}", nil},
		{"group a {\n deny *\n}", []string{"no group is for unknown clients"}},
		{"group a {\n unknown\n}", []string{"group a denies nothing"}},
	} {
		b, err := plan(c.options, new(stubCluster))
		if err != nil {
			t.Fatal(err)
		}
		got := b.Warnings()
		if len(got) != len(c.want) {
			t.Errorf("%s\ngot %q, want %q", c.options, got, c.want)
			continue
		}
		for i, w := range got {
			if !strings.Contains(w.Error(), c.want[i]) {
				t.Errorf("%s\ngot %q, want %q in it", c.options, w, c.want[i])
			}
		}
	}
}

// The decisions of random groups about random pods and names are those of the sentences of the
// reference page, read one by one.
func TestDecisionsRandom(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	word := func() string { return string("abc"[r.IntN(3)]) }
	name := func() string {
		labels := make([]string, 1+r.IntN(4))
		for i := range labels {
			labels[i] = word()
		}
		return strings.Join(labels, ".") + "."
	}

	decided := map[string]int{}
	for range 2000 {
		var all []*group
		lines := map[*group]map[string]action{}
		for i := range 1 + r.IntN(4) {
			g := &group{name: fmt.Sprint(i), names: names{}, isPods: true}
			for range r.IntN(3) {
				g.namespaces = append(g.namespaces, pattern(word()+[]string{"", "*", word(), word() + "*"}[r.IntN(4)]))
			}
			if r.IntN(2) == 0 {
				g.pods, _ = cluster.ParseSelector("app=" + word())
			}
			lines[g] = map[string]action{}
			for range r.IntN(5) {
				text, a := name(), allow+action(r.IntN(2))
				if r.IntN(2) == 0 {
					text = "*." + text
				}
				if r.IntN(4) == 0 {
					text = "*"
				}
				if lines[g][text] == 0 {
					lines[g][text] = a
					option := corefile.Directive{Path: "allow"}
					option.Args = []corefile.Token{{Text: text}}
					if err := g.addNames(option, a); err != nil {
						t.Fatal(err)
					}
				}
			}
			all = append(all, g)
		}
		gs := newGroups(all)

		for range 20 {
			p := pod(word()+[]string{"", word()}[r.IntN(2)], "x", "app", word())
			want := naiveGroup(all, p)
			if got := gs.of(p, matched{}); got != want {
				t.Fatalf("pod %v: got group %v, want %v of %v", p, got, want, all)
			}
			if want == nil {
				decided["no group"]++
				continue
			}
			text := name()
			got, _ := want.find([]byte(chaintest.Name(text)))
			if naive := naiveAction(lines[want], text); got != naive {
				t.Fatalf("name %s: got %d, want %d by %v", text, got, naive, lines[want])
			}
			decided[fmt.Sprint(got)]++
		}
	}
	for _, kind := range []string{"no group", "0", "1", "2"} {
		if decided[kind] < 100 {
			t.Errorf("decision %s: got %d of them, want at least 100: the test shows nothing", kind, decided[kind])
		}
	}
}

func naiveGroup(all []*group, p *cluster.Pod) *group {
	for _, g := range all {
		in := len(g.namespaces) == 0
		for _, ns := range g.namespaces {
			before, isPrefix := strings.CutSuffix(string(ns), "*")
			in = in || isPrefix && strings.HasPrefix(p.Namespace, before) || string(ns) == p.Namespace
		}
		if in && g.pods.Matches(p.Labels) {
			return g
		}
	}
	return nil
}

func naiveAction(lines map[string]action, name string) (a action) {
	longest := -1
	for text, of := range lines {
		below, isBelow := strings.CutPrefix(text, "*")
		switch {
		case text == name:
			return of
		case text == "*" && longest < 0:
			a, longest = of, 0
		case isBelow && below != "" && strings.HasSuffix(name, below) && len(below) > longest:
			a, longest = of, len(below)
		}
	}
	return a
}

// A denied query of a client that no pod has waits for the pod, which has the decisions of its own group.
func TestNewPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := new(stubCluster)
		s := start(t, "group agents {\n namespaces sandbox\n allow *.good.test\n deny *\n}\ngroup others {\n unknown\n deny *\n}", c, "10.1.0.1")
		began := time.Now()
		ask := func(name string) string { return mdns.RcodeToString[s.Ask(chaintest.Query(name, "A"), dns.UDP).Rcode] }

		time.AfterFunc(500*time.Millisecond, func() { c.add("10.1.0.1", pod("sandbox", "new")) })
		if got := ask("www.good.test"); got != "NOERROR" {
			t.Errorf("the first query of a new pod: got %s, want NOERROR", got)
		}
		if waited := time.Since(began); waited < 500*time.Millisecond || waited > 600*time.Millisecond {
			t.Errorf("got an answer after %v, want it when the pod has appeared, after 500 ms", waited)
		}
		if got := ask("www.bad.test"); got != "NXDOMAIN" {
			t.Errorf("a name that the pod's group denies: got %s, want NXDOMAIN", got)
		}
	})
}

// An answer that leads an unknown client to a denied name waits for the pod, too, whose group decides.
func TestNewPodTarget(t *testing.T) {
	for group, want := range map[string]string{"allow else": "NOERROR", "deny else": "NXDOMAIN", "deny alias.test": "NXDOMAIN", "deny else\naudit": "NOERROR"} {
		synctest.Test(t, func(t *testing.T) {
			c := new(stubCluster)
			s := start(t, "group agents {\n namespaces sandbox\n"+group+"\n}\ngroup others {\n unknown\n deny else\n}", c, "10.1.0.1")
			began := time.Now()
			time.AfterFunc(500*time.Millisecond, func() { c.add("10.1.0.1", pod("sandbox", "new")) })
			if got := mdns.RcodeToString[s.Ask(chaintest.Query("alias.test", "A"), dns.UDP).Rcode]; got != want {
				t.Errorf("%s: got %s, want %s", group, got, want)
			}
			if waited := time.Since(began); waited < 500*time.Millisecond || waited > 600*time.Millisecond {
				t.Errorf("%s: got an answer after %v, want it when the pod has appeared, after 500 ms", group, waited)
			}
		})
	}

	synctest.Test(t, func(t *testing.T) {
		s := start(t, "group others {\n unknown\n deny else\n}", new(stubCluster), "10.1.0.1")
		for _, want := range []time.Duration{appearance, 0} {
			began := time.Now()
			if got := s.Ask(chaintest.Query("alias.test", "A"), dns.UDP).Rcode; got != mdns.RcodeNameError {
				t.Errorf("a client that is no pod: got %s, want NXDOMAIN", mdns.RcodeToString[got])
			}
			if waited := time.Since(began).Round(100 * time.Millisecond); waited != want {
				t.Errorf("a client that is no pod: got an answer after %v, want %v", waited, want)
			}
		}
	})
}

// Queries of a machine that is no pod wait once a minute.
func TestUnknownClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, "group others {\n unknown\n allow good.test\n deny *\n}", new(stubCluster), "10.1.0.1")
		ask := func(name string) (rcode string, waited time.Duration) {
			began := time.Now()
			rcode = mdns.RcodeToString[s.Ask(chaintest.Query(name, "A"), dns.UDP).Rcode]
			return rcode, time.Since(began).Round(100 * time.Millisecond)
		}

		for _, c := range []struct {
			after time.Duration
			name  string
			rcode string
			wait  time.Duration
		}{
			{0, "good.test", "NOERROR", 0},
			{0, "bad.test", "NXDOMAIN", appearance},
			{0, "bad.test", "NXDOMAIN", 0},
			{forgotten - 5*time.Second, "bad.test", "NXDOMAIN", 0},
			{6 * time.Second, "bad.test", "NXDOMAIN", appearance},
		} {
			time.Sleep(c.after)
			if rcode, waited := ask(c.name); rcode != c.rcode || waited != c.wait {
				t.Errorf("%s %v later: got %s after %v, want %s after %v", c.name, c.after, rcode, waited, c.rcode, c.wait)
			}
		}
	})
}

func TestMetrics(t *testing.T) {
	c := new(stubCluster)
	c.add("10.1.0.1", pod("sandbox", "agent"))
	s := start(t, "group agents {\n deny bad.test\n services own\n}\ngroup trial {\n unknown\n deny *\n audit\n}", c, "10.1.0.1")
	for _, name := range []string{"good.test", "bad.test", "api.prod.svc.cluster.local", "api.sandbox.svc.cluster.local", "bad.test", "www.example.com.svc.cluster.local"} {
		s.Ask(chaintest.Query(name, "A"), dns.UDP)
	}
	s.Prepare = func(q *dns.Query) { q.Peer = netip.MustParseAddrPort("10.9.9.9:53") }
	if got := s.Ask(chaintest.Query("bad.test", "A"), dns.UDP); got.Rcode != mdns.RcodeSuccess {
		t.Errorf("audit: got %s, want NOERROR", mdns.RcodeToString[got.Rcode])
	}

	for series, want := range map[string]string{
		`group="agents",decision="allowed"`: "2",
		`group="agents",decision="denied"`:  "3",
		`group="trial",decision="audited"`:  "1",
		`group="trial",decision="denied"`:   "0",
	} {
		full := `seamark_policy_decisions_total{server="dns://:53",view="",` + series + `}`
		if got := chaintest.Metric(s.Plan.Metrics, full); got != want {
			t.Errorf("%s: got %s, want %s", full, got, want)
		}
	}
}

func TestExplain(t *testing.T) {
	c := new(stubCluster)
	c.add("10.1.0.1", pod("sandbox", "agent"))
	b, err := plan("group agents {\n namespaces sandbox\n allow *.good.test\n deny * bad.good.test\n services own\n}\ngroup trial {\n unknown\n deny *\n audit\n}", c)
	if err != nil {
		t.Fatal(err)
	}
	p := policyOf(b)
	s := chaintest.Run(t, b, nil)

	for _, c := range []struct{ client, name, want string }{
		{"10.1.0.1", "www.good.test", "the client is pod agent of namespace sandbox, which group agents selects: allow *.good.test. decides"},
		{"10.1.0.1", "bad.good.test", "the client is pod agent of namespace sandbox, which group agents selects: deny bad.good.test. decides"},
		{"10.1.0.1", "x.test", "the client is pod agent of namespace sandbox, which group agents selects: deny * decides"},
		{"10.1.0.1", "api.prod.svc.cluster.local", "the client is pod agent of namespace sandbox, which group agents selects: services does not have namespace prod"},
		{"10.1.0.1", "api.sandbox.svc.cluster.local", "the client is pod agent of namespace sandbox, which group agents selects: the name of the cluster is one that the group sees"},
		{"10.1.0.2", "x.test", "the client is not known as a pod, which group trial selects: deny * decides; audit lets the query pass"},
	} {
		var got []dns.Cause
		s.Prepare = func(q *dns.Query) {
			q.Peer = netip.AddrPortFrom(netip.MustParseAddr(c.client), 53)
			if err := q.Parse(q.Packet()); err != wire.NoFault {
				t.Fatal(err)
			}
			got = p.ExplainDNS(q, dns.Next)
		}
		s.Ask(chaintest.Query(c.name, "A"), dns.UDP)
		if len(got) != 1 || got[0].Text != c.want {
			t.Errorf("%s from %s: got %+v, want %s", c.name, c.client, got, c.want)
		}
	}
}

// manyRules has a group for each of 1,000 namespaces, with 100 lines each.
func manyRules() string {
	var text strings.Builder
	for ns := range 1000 {
		fmt.Fprintf(&text, "group g%d {\n namespaces ns-%d\n services own shared\n deny *\n allow", ns, ns)
		for i := range 100 {
			fmt.Fprintf(&text, " *.d%d.ns-%d.example", i, ns)
		}
		text.WriteString("\n}\n")
	}
	return text.String()
}

func TestAllocations(t *testing.T) {
	c := new(stubCluster)
	c.add("10.1.0.1", pod("ns-999", "agent"))
	s := start(t, manyRules(), c, "10.1.0.1")
	for _, name := range []string{"www.d50.ns-999.example", "www.d50.ns-998.example", "alias.d50.ns-999.example"} {
		packet := chaintest.Pack(t, chaintest.Query(name, "A"))
		s.Serve(packet, dns.UDP)
		if n := testing.AllocsPerRun(100, func() { s.Serve(packet, dns.UDP) }); n != 0 {
			t.Errorf("%s: got %v allocations, want 0", name, n)
		}
	}
}

// The cost of a query that passes, with 1,000 groups and 100,000 lines, and without policy.
func BenchmarkPolicy(b *testing.B) {
	c := new(stubCluster)
	c.add("10.1.0.1", pod("ns-999", "agent"))
	with := start(b, manyRules(), c, "10.1.0.1").Server
	without := chaintest.NewServer(b, map[string]*dns.Chain{".": chaintest.NewChain("whoami", answerer{})})
	packet := chaintest.Pack(b, chaintest.Query("www.d50.ns-999.example", "A"))
	for name, s := range map[string]*chaintest.Server{"with": with, "without": without} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s.Serve(packet, dns.UDP)
			}
		})
	}
}
