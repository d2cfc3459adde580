package policy

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/wire"
)

// A folderCluster is a stubCluster whose other objects are in a folder.
type folderCluster struct {
	stubCluster
	dir  string
	more []wire.Name // zones of the cluster beside those of a stubCluster
}

func (f *folderCluster) AuthoritativeZones() []wire.Name {
	return append(f.stubCluster.AuthoritativeZones(), f.more...)
}

func (f *folderCluster) ClusterOptions() cluster.Options { return cluster.Options{Manifests: f.dir} }

// put replaces the objects of a file. It is as a writer does it that no reader sees half of it.
func (f *folderCluster) put(t testing.TB, file, text string) {
	t.Helper()
	old := filepath.Join(f.dir, "."+file)
	if err := os.WriteFile(old, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(old, filepath.Join(f.dir, file)); err != nil {
		t.Fatal(err)
	}
}

// serveFolder serves a policy, above a handler that answers everything, once its objects have been read.
func serveFolder(t testing.TB, options string, c *folderCluster, old *chaintest.Block) (*chaintest.Block, *Policy) {
	t.Helper()
	b := planFolder(t, options, c)
	s, p := chaintest.Run(t, b, old), config.Find[*Policy](b)[0]
	chaintest.Eventually(t, "the objects are read", p.Ready)
	return s, p
}

func planFolder(t testing.TB, options string, c *folderCluster) *config.Block {
	t.Helper()
	text := ".:53 {\npolicy {\n" + strings.ReplaceAll(options, "DIR", c.dir) + "\n}\n}\n"
	setup := func(b *config.Block, uses []corefile.Directive) error {
		b.Shared = new(config.Shared) // has the conditions
		return Setup(b, uses)
	}
	b, err := chaintest.Setup(text, chaintest.QuietLog(), config.Directive{Name: "policy", Setup: setup})
	if err == nil {
		b.Offer(c)
		b.SetDirective("whoami")
		b.Handle(answerer{})
		err = corefile.Sorted(b.Planned()...)
	}
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// rcode returns the code of the answer for a client.
func rcode(s *chaintest.Block, client, name string) string {
	s.Prepare = func(q *dns.Query) { q.Peer = netip.AddrPortFrom(netip.MustParseAddr(client), 53000) }
	return mdns.RcodeToString[s.Ask(chaintest.Query(name, "A"), dns.UDP).Rcode]
}

func namespaceText(name string, labels string) string {
	return fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {name: %s, labels: {%s}}}\n", name, labels)
}

func configMapText(namespace, name string, created int, lines ...string) string {
	return fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {namespace: %s, name: %s, labels: {seamark.io/dns: policy}, creationTimestamp: \"2026-01-01T00:00:%02dZ\"}, data: {policy: %q}}\n",
		namespace, name, created, strings.Join(lines, "\n"))
}

// What objects say decides from the first query on: before the functions run that are called once the plan
// serves. The server waits for it when it takes over from another process.
func TestObjectsBeforeFirstQuery(t *testing.T) {
	c := &folderCluster{dir: t.TempDir()}
	c.add("10.1.0.1", pod("a", "one"))
	c.put(t, "a.yaml", namespaceText("a", "tenant: agents")+"---\n"+configMapText("a", "lines", 1, "deny line.test"))
	b := planFolder(t, "objects {\n manifests DIR\n delegate * .\n}\n group agents {\n namespace_labels tenant=agents\n deny label.test\n}", c)
	p := config.Find[*Policy](b)[0]

	start := config.NewStart(t.Context(), nil)
	defer start.Stop()
	if err := b.Started(start); err != nil {
		t.Fatal(err)
	}
	chaintest.Eventually(t, "the objects are read", p.Ready)
	s := &chaintest.Block{Plan: b, Start: start}
	s.Server = chaintest.NewServer(t, map[string]*dns.Chain{".": b.Chain.CopyFor("dns://:53", ".")})
	for name, want := range map[string]string{"line.test": "NXDOMAIN", "label.test": "NXDOMAIN", "other.test": "NOERROR"} {
		if got := rcode(s, "10.1.0.1", name); got != want {
			t.Errorf("%s before the plan serves: got %s, want %s", name, got, want)
		}
	}
}

// Groups select pods by the labels of their namespaces, as these are now. A pod of a namespace whose labels
// are not known is an unknown client.
func TestNamespaceLabels(t *testing.T) {
	c := &folderCluster{dir: t.TempDir()}
	c.add("10.1.0.1", pod("a", "one", "app", "web"))
	c.add("10.1.0.2", pod("b", "two"))
	c.add("10.1.0.3", pod("none", "three"))
	c.put(t, "a.yaml", namespaceText("a", "tenant: agents"))
	c.put(t, "b.yaml", namespaceText("b", ""))
	options := "group early {\n namespaces b\n pods app=db\n deny early.test\n}\n" +
		"group agents {\n namespace_labels tenant in (agents,robots)\n pods !db\n deny agents.test\n}\n" +
		"group named {\n namespaces a b\n deny named.test\n}\n" +
		"group strict {\n namespace_labels tenant=strict\n deny strict.test\n}\n" +
		"group others {\n unknown\n deny others.test\n}"
	s, _ := serveFolder(t, options, c, nil)

	denied := func(client string) (names string) {
		for _, name := range []string{"early.test", "agents.test", "named.test", "strict.test"} {
			if rcode(s, client, name) == "NXDOMAIN" {
				names += name
			}
		}
		return names
	}
	for client, want := range map[string]string{"10.1.0.1": "agents.test", "10.1.0.2": "named.test", "10.1.0.3": ""} {
		if got := denied(client); got != want {
			t.Errorf("%s: got the denied names %q, want %q", client, got, want)
		}
	}
	if got := rcode(s, "10.1.0.3", "others.test"); got != "NXDOMAIN" {
		t.Errorf("a pod of an unknown namespace: got %s, want the answer for unknown clients", got)
	}

	c.put(t, "b.yaml", namespaceText("b", "tenant: robots"))
	chaintest.Eventually(t, "the new labels of b decide", func() bool { return denied("10.1.0.2") == "agents.test" })
	c.put(t, "a.yaml", namespaceText("a", "tenant: strict"))
	chaintest.Eventually(t, "the earlier group named has a", func() bool { return denied("10.1.0.1") == "named.test" })
	c.put(t, "none.yaml", namespaceText("none", "tenant: strict"))
	chaintest.Eventually(t, "the new namespace has the group strict", func() bool { return denied("10.1.0.3") == "strict.test" })
}

// The objects of a namespace deny names to its own pods; they allow what the group denies only with widen,
// and in delegated zones.
func TestObjects(t *testing.T) {
	for _, widen := range []bool{false, true} {
		c := &folderCluster{dir: t.TempDir()}
		c.add("10.1.0.1", pod("team-a", "one"))
		c.add("10.1.0.2", pod("team-b", "two"))
		c.put(t, "a.yaml", configMapText("team-a", "names", 1, "deny *.a.test bad.test # not good", "allow x.a.test more.secret.test deep.other.test"))
		objects := "objects {\n manifests DIR\n delegate * .\n delegate team-b other.test\n"
		if widen {
			objects += " widen\n"
		}
		s, p := serveFolder(t, objects+"}\ngroup all {\n deny *.secret.test *.other.test\n}\ngroup others {\n unknown\n deny *\n}", c, nil)

		allowed := "NXDOMAIN"
		if widen {
			allowed = "NOERROR"
		}
		for _, q := range []struct{ client, name, want string }{
			{"10.1.0.1", "y.a.test", "NXDOMAIN"},
			{"10.1.0.1", "X.a.test", "NOERROR"},
			{"10.1.0.1", "a.test", "NOERROR"},
			{"10.1.0.1", "BAD.test.", "NXDOMAIN"},
			{"10.1.0.1", "www.bad.test", "NOERROR"},
			{"10.1.0.1", "more.secret.test", allowed},
			{"10.1.0.1", "less.secret.test", "NXDOMAIN"},
			{"10.1.0.1", "deep.other.test", "NXDOMAIN"}, // a zone of another namespace, even with widen
			{"10.1.0.2", "y.a.test", "NOERROR"},
			{"10.1.0.2", "bad.test", "NOERROR"},
			{"10.1.0.2", "more.secret.test", "NXDOMAIN"},
		} {
			if got := rcode(s, q.client, q.name); got != q.want {
				t.Errorf("widen %v: %s of %s: got %s, want %s", widen, q.name, q.client, got, q.want)
			}
		}
		if faults := fmt.Sprint(p.objects.Load().Faults()); !strings.Contains(faults, "deep.other.test. is in other.test., which is not delegated to namespace team-a") {
			t.Errorf("got the errors %q, want the name that is not delegated", faults)
		}

		// An error keeps the last valid state; a name of two objects is the older one's; an object that is
		// deleted denies nothing.
		c.put(t, "a.yaml", configMapText("team-a", "names", 1, "deny *.a.test"))
		chaintest.Eventually(t, "the first valid state is served", func() bool { return rcode(s, "10.1.0.1", "bad.test") == "NOERROR" })
		c.put(t, "a.yaml", configMapText("team-a", "names", 1, "deny new.test", "forbid everything"))
		c.put(t, "young.yaml", configMapText("team-a", "young", 2, "deny *.a.test young.test"))
		chaintest.Eventually(t, "the younger object is served", func() bool { return rcode(s, "10.1.0.1", "young.test") == "NXDOMAIN" })
		chaintest.Eventually(t, "the error is told", func() bool { return p.objects.Load().Counts().Faulty == 2 })
		if got := []string{rcode(s, "10.1.0.1", "new.test"), rcode(s, "10.1.0.1", "y.a.test")}; fmt.Sprint(got) != "[NOERROR NXDOMAIN]" {
			t.Errorf("with an error: got %v, want the last valid state", got)
		}
		c.put(t, "a.yaml", "")
		c.put(t, "young.yaml", "")
		chaintest.Eventually(t, "nothing is denied", func() bool {
			return rcode(s, "10.1.0.1", "y.a.test")+rcode(s, "10.1.0.1", "young.test") == "NOERRORNOERROR"
		})
	}
}

// After a reload with other zones of the cluster the names of objects are checked against these: one that is in a zone
// of the cluster no more counts, and one that is in a new zone is told.
func TestObjectsReloadZones(t *testing.T) {
	dir, s := t.TempDir(), (*chaintest.Block)(nil)
	for i, zones := range [][]string{{"one.test"}, {"two.test"}, {}, {"one.test", "two.test"}} {
		c := &folderCluster{dir: dir}
		c.add("10.1.0.1", pod("team-a", "one"))
		if i == 0 {
			c.put(t, "a.yaml", configMapText("team-a", "names", 1, "deny x.one.test", "deny x.two.test", "deny x.three.test"))
		}
		want := map[string]string{"x.one.test": "NXDOMAIN", "x.two.test": "NXDOMAIN", "x.three.test": "NXDOMAIN"}
		for _, zone := range zones {
			c.more = append(c.more, chaintest.Name(zone))
			want["x."+zone] = "NOERROR"
		}

		var p *Policy
		s, p = serveFolder(t, "objects {\n manifests DIR\n delegate * .\n}\ngroup all\ngroup others {\n unknown\n deny *\n}", c, s)
		faults := fmt.Sprint(p.objects.Load().Faults())
		for name, rc := range want {
			if got := rcode(s, "10.1.0.1", name); got != rc {
				t.Errorf("plan %d, with the zones %v: %s: got %s, want %s", i, zones, name, got, rc)
			}
			if told := strings.Contains(faults, name+" is in a zone of the cluster"); len(zones) < 2 && told != (rc == "NOERROR") {
				t.Errorf("plan %d, with the zones %v: got the errors %q", i, zones, faults)
			}
		}
	}
}

// An object that denies * allows the targets of the names that it allows.
func TestObjectsTargets(t *testing.T) {
	c := &folderCluster{dir: t.TempDir()}
	c.add("10.1.0.1", pod("team-a", "one"))
	c.put(t, "a.yaml", configMapText("team-a", "names", 1, "deny *", "allow alias.good.test"))
	s, _ := serveFolder(t, "objects {\n manifests DIR\n delegate team-a .\n}\ngroup all\ngroup others {\n unknown\n deny *\n}", c, nil)
	for name, want := range map[string]string{"alias.good.test": "NOERROR", "alias.bad.test": "NXDOMAIN", "else": "NXDOMAIN", ".": "NXDOMAIN"} {
		if got := rcode(s, "10.1.0.1", name); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
}

func TestObjectsCheck(t *testing.T) {
	c := &folderCluster{dir: t.TempDir()}
	c.put(t, "a.yaml", configMapText("team-a", "old", 1, "deny x.test")+"---\n"+configMapText("team-a", "young", 2, "allow x.test", "deny *.svc.cluster.local")+
		"---\n"+configMapText("team-b", "other", 3, "deny a..b"))
	_, p := serveFolder(t, "objects {\n manifests DIR\n delegate * .\n}\ngroup all {\n deny a.test\n}\ngroup others {\n unknown\n deny *\n}", c, nil)
	var got []string
	for _, err := range p.CheckObjects(t.Context(), cluster.Options{}) {
		got = append(got, err.Error())
	}
	want := []string{
		"Corefile:3: policy: objects: ConfigMap team-a/young: policy:2: *.svc.cluster.local is in a zone of the cluster, where namespaces decide",
		`Corefile:3: policy: objects: ConfigMap team-b/other: policy:1: want a name, *.NAME for the names below it, or *, got "a..b"`,
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %q, want %q", got, want)
	}

	c.put(t, "a.yaml", configMapText("team-a", "old", 1, "deny *.x.test")+"---\n"+configMapText("team-a", "young", 2, "allow *.x.test"))
	errs := p.CheckObjects(t.Context(), cluster.Options{})
	if want := "ConfigMap team-a/young: *.x.test is in ConfigMap team-a/old, which is older"; len(errs) != 1 || !strings.HasSuffix(errs[0].Error(), want) {
		t.Errorf("two objects with one name: got %v, want %s", errs, want)
	}
}

func TestObjectsExplain(t *testing.T) {
	c := &folderCluster{dir: t.TempDir()}
	c.add("10.1.0.1", pod("team-a", "one"))
	c.put(t, "a.yaml", configMapText("team-a", "names", 1, "deny *.a.test", "allow b.test"))
	s, p := serveFolder(t, "objects {\n manifests DIR\n delegate * .\n widen\n}\ngroup all {\n deny *.test\n allow *.a.test\n}\ngroup others {\n unknown\n deny *\n}", c, nil)
	for name, want := range map[string]string{
		"x.a.test": "the client is pod one of namespace team-a, which group all selects: deny *.a.test of ConfigMap team-a/names decides; ConfigMap team-a/names has this line",
		"b.test":   "the client is pod one of namespace team-a, which group all selects: allow b.test of ConfigMap team-a/names decides; ConfigMap team-a/names has this line",
		"c.test":   "the client is pod one of namespace team-a, which group all selects: deny *.test. decides",
	} {
		var texts []string
		s.Prepare = func(q *dns.Query) {
			q.Peer = netip.MustParseAddrPort("10.1.0.1:53")
			if err := q.Parse(q.Packet()); err != wire.NoFault {
				t.Fatal(err)
			}
			for _, cause := range p.ExplainDNS(q, dns.Next) {
				texts = append(texts, cause.Text)
			}
		}
		s.Ask(chaintest.Query(name, "A"), dns.UDP)
		if got := strings.Join(texts, "; "); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}

// manyNamespaces writes n namespaces with a label each, and serves a group for each label and a
// ConfigMap for each namespace, with 100 lines each. The pod 10.1.0.1 is in the last one.
func manyNamespaces(t testing.TB, n int) (*chaintest.Block, *Policy) {
	t.Helper()
	c := &folderCluster{dir: t.TempDir()}
	c.add("10.1.0.1", pod(fmt.Sprint("ns-", n-1), "agent"))
	var objects, groups strings.Builder
	for ns := range n {
		name := fmt.Sprint("ns-", ns)
		objects.WriteString(namespaceText(name, fmt.Sprint("tenant: t", ns)) + "---\n")
		var lines []string
		for i := range 50 {
			lines = append(lines, fmt.Sprintf("deny *.no%d.%s.example", i, name))
		}
		objects.WriteString(configMapText(name, "names", 1, lines...) + "---\n")
		fmt.Fprintf(&groups, "group g%d {\n namespace_labels tenant=t%d\n deny *\n allow", ns, ns)
		for i := range 50 {
			fmt.Fprintf(&groups, " *.d%d.%s.example", i, name)
		}
		groups.WriteString("\n}\n")
	}
	c.put(t, "all.yaml", objects.String())
	return serveFolder(t, "objects {\n manifests DIR\n delegate * .\n}\n"+groups.String()+"group others {\n unknown\n deny *\n}", c, nil)
}

func TestObjectsAllocations(t *testing.T) {
	s, _ := manyNamespaces(t, 100)
	s.Prepare = func(q *dns.Query) { q.Peer = netip.MustParseAddrPort("10.1.0.1:53") }
	for name, want := range map[string]string{
		"www.d49.ns-99.example": "NOERROR", "www.no49.ns-99.example": "NXDOMAIN", "a.longer.name.than.others." + strings.Repeat("x", 60) + ".d49.ns-99.example": "NOERROR",
	} {
		packet := chaintest.Pack(t, chaintest.Query(name, "A"))
		if got := rcode(s, "10.1.0.1", name); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
		s.Prepare = func(q *dns.Query) { q.Peer = netip.MustParseAddrPort("10.1.0.1:53") }
		if n := testing.AllocsPerRun(100, func() { s.Serve(packet, dns.UDP) }); n != 0 {
			t.Errorf("%s: got %v allocations, want 0", name, n)
		}
	}
}

// The cost of a query that passes, with 1,000 groups by labels of namespaces, and lines of a ConfigMap in
// each namespace: 100,000 lines in all.
func BenchmarkPolicyObjects(b *testing.B) {
	s, _ := manyNamespaces(b, 1000)
	peer := netip.MustParseAddrPort("10.1.0.1:53")
	s.Prepare = func(q *dns.Query) { q.Peer = peer }
	packet := chaintest.Pack(b, chaintest.Query("www.d49.ns-999.example", "A"))
	b.ReportAllocs()
	for b.Loop() {
		s.Serve(packet, dns.UDP)
	}
}
