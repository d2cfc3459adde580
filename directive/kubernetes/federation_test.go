package kubernetes

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/directive/kubernetes/index"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/wire"
)

func planFederation(text string) (*config.Block, error) {
	b, err := chaintest.Setup(text, chaintest.QuietLog(),
		config.Directive{Name: "federation", Setup: SetupFederation}, config.Directive{Name: "kubernetes", Setup: Setup})
	if err != nil {
		return b, err
	}
	return b, corefile.Sorted(b.Planned()...)
}

func TestFederationSetupErrors(t *testing.T) {
	const one = "federation {\n prod prod.example.org\n}"
	for _, c := range []struct{ directives, want string }{
		{one, "Corefile:2: federation: needs the directive kubernetes in the same server block"},
		{one + "\n" + one + "\nkubernetes cluster.local", "Corefile:5: federation: already given at Corefile:2, and can be given once in a server block"},
		{one + "\nkubernetes cluster.local {\n noendpoints\n}", "Corefile:2: federation: needs the endpoints that noendpoints and only services of kubernetes leave out"},
		{one + "\nkubernetes clusterset.local {\n multicluster\n}", "Corefile:2: federation: kubernetes has no zone with Services"},
		{"federation", "Corefile:2: federation: want at least one line with the name and the domain of a federation, such as: prod prod.example.org"},
		{"federation {\n upstream 10.0.0.1\n}", "Corefile:2: federation: want at least one line with the name and the domain of a federation, such as: prod prod.example.org"},
		{"federation a..b {\n prod prod.example.org\n}", `Corefile:2: federation: not a zone: "a..b": empty label`},
		{"kubernetes cluster.local other.example in-addr.arpa\nfederation cluster.local in-addr.arpa example.org {\n prod prod.example.org\n}",
			"Corefile:3: federation: in-addr.arpa. is not a zone in which kubernetes has Services: want cluster.local. or other.example.\n" +
				"Corefile:3: federation: example.org. is not a zone in which kubernetes has Services: want cluster.local. or other.example."},
		{"federation {\n prod\n}", "Corefile:3: federation: prod: got no arguments, usage: prod DOMAIN"},
		{"federation {\n prod a.example b.example\n}", "Corefile:3: federation: prod: got 2 arguments, usage: prod DOMAIN"},
		{"federation {\n prod_1 a_b.example\n -prod .\n " + strings.Repeat("x", 64) + " example.org\n}",
			"Corefile:3: federation: prod_1: not the name of a federation: want a label of letters, digits and dashes\n" +
				`Corefile:3: federation: prod_1: want a domain such as prod.example.org, got "a_b.example"` + "\n" +
				"Corefile:4: federation: -prod: not the name of a federation: want a label of letters, digits and dashes\n" +
				`Corefile:4: federation: -prod: want a domain such as prod.example.org, got "."` + "\n" +
				"Corefile:5: federation: " + strings.Repeat("x", 64) + ": not the name of a federation: want a label of letters, digits and dashes"},
	} {
		_, err := planFederation(".:53 {\n" + c.directives + "\n}\n")
		if err == nil || err.Error() != c.want {
			t.Errorf("%s\ngot  %v\nwant %s", c.directives, err, c.want)
		}
	}
}

func TestFederationSetup(t *testing.T) {
	b, err := planFederation(`.:53 {
		federation {
			upstream
			Prod one.example
			prod two.example.
			upstream 10.0.0.1 10.0.0.2
			upstream three.example
			upstream 10.0.0.1:53
			upstream /etc/resolv.conf
		}
		kubernetes cluster.local clusterset.local in-addr.arpa {
			multicluster
		}
	}`)
	if err != nil {
		t.Fatal(err)
	}
	f := config.Find[*Federation](b)[0]
	if len(f.domains) != 2 || f.domains["prod"].String() != "two.example." || f.domains["upstream"].String() != "three.example." {
		t.Errorf("domains %v, want the last one of prod, and upstream's", f.domains)
	}
	if len(f.zones) != 1 || f.zones[0].name.String() != "cluster.local." {
		t.Errorf("zones %v, want those of kubernetes with Services", f.zones)
	}
}

// Nodes are watched across reloads while a directive needs them. A reload that
// begins to watch them waits for them.
func TestFederationReload(t *testing.T) {
	dir := t.TempDir()
	text := "{apiVersion: v1, kind: Node, metadata: {name: n1, labels: {topology.kubernetes.io/zone: z, topology.kubernetes.io/region: r}}}"
	if err := os.WriteFile(filepath.Join(dir, "node.yaml"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	start := config.NewStart(t.Context(), nil)
	reload := func(text string) *Federation {
		t.Helper()
		b, err := planFederation(".:53 {\n" + strings.ReplaceAll(text, "DIR", dir) + "\n}\n")
		if err != nil {
			t.Fatal(err)
		}
		next := config.NewStart(t.Context(), start)
		if err := b.Started(next); err != nil {
			t.Fatal(err)
		}
		next.Commit()
		start = next
		if all := config.Find[*Federation](b); len(all) > 0 {
			return all[0]
		}
		return nil
	}
	defer func() { start.Stop() }()
	reload("kubernetes cluster.local {\n manifests DIR\n}")
	one := reload("kubernetes cluster.local {\n manifests DIR\n}\nfederation {\n prod prod.example.org\n}")
	if labels, err := one.nodes.location(); labels != "\x01z\x01r" {
		t.Errorf("location after the reload: got %q, error %v, want %q", labels, err, "\x01z\x01r")
	}
	two := reload("kubernetes cluster.local other.example {\n manifests DIR\n ttl 30\n pods verified\n namespaces shop\n}\nfederation {\n other example.org\n}")
	if two.nodes != one.nodes {
		t.Error("reload with other options of kubernetes: got a new watch of Nodes, want the old one")
	}
	reload("kubernetes cluster.local {\n manifests DIR\n}")
}

// A federated runs the directive federation for single queries.
type federated struct {
	*server
	index  *index.Index
	places *nodeLocations
	seen   error // q.Err of the last query
}

// FinishDNS replaces an observer: q.Err is not in the reply.
func (f *federated) FinishDNS(q *dns.Query)            { f.seen = q.Err }
func (f *federated) ServeDNS(q *dns.Query) dns.Verdict { return dns.Next }

// federate starts a server with federation above kubernetes, before any list.
func federate(t testing.TB, domain string) *federated {
	t.Helper()
	d := defaultOptions()
	f := &federated{index: d.newIndex(), places: newNodeLocations()}
	k := d.handler(t, f.index)
	h := &Federation{kubernetes: k, domains: map[string]wire.Name{"prod": names(t, []string{domain})[0]}, nodes: f.places}
	for _, z := range k.zones {
		if !z.reverse {
			h.zones = append(h.zones, z)
		}
	}
	chain := chaintest.NewChain("seen", f, "federation", h, "kubernetes", k, "world", otherZones{})
	f.server = serveChain(t, chain, d.zones...)
	return f
}

// Names that depend on a missing list are SERVFAIL, and not a CNAME to another
// cluster.
func TestFederationNotSynced(t *testing.T) {
	f := federate(t, "prod.example.org")
	fails := func(name string, want error) {
		t.Helper()
		f.check(t, name, "CNAME", "SERVFAIL")
		if !errors.Is(f.seen, want) {
			t.Errorf("%s: %v, want %v", name, f.seen, want)
		}
	}
	const (
		api, db, web, none = "api.shop.prod.svc.cluster.local.", "db.shop.prod.svc.cluster.local.", "web.shop.prod.svc.cluster.local.", "none.shop.prod.svc.cluster.local."
		hidden             = "api.hidden.prod.svc.cluster.local."
	)
	all := []string{api, db, web, none, hidden}
	for _, name := range all {
		fails(name, nil)
	}
	relist(f.index, cluster.Namespaces, []cluster.Object{namespaceObject("shop")})
	relist(f.index, cluster.Services, []cluster.Object{
		clusterIP("shop", "api", "http 80/tcp", "10.96.0.1"), headless("shop", "db"), external("shop", "web", "www.example.com"), clusterIP("hidden", "api", "", "10.96.0.2"),
	})
	fails(api, nil)
	fails(db, nil)
	fails(none, errNoNodes)
	f.check(t, web, "CNAME", "NOERROR aa\n"+web+" 5 IN CNAME web.shop.svc.cluster.local.")
	f.places.Put(cluster.Nodes, &cluster.Node{Name: "n", Zone: "z", Region: "r"})
	fails(none, errNoNodes) // a later Node may sort before that one
	f.places.Listed(cluster.Nodes, func(cluster.Key) bool { return true })
	fails(api, nil)
	f.check(t, none, "CNAME", "NOERROR aa\n"+none+" 5 IN CNAME none.shop.prod.svc.z.r.prod.example.org.")
	relist(f.index, cluster.Slices, []cluster.Object{slice("shop", "api-1", "api", "", "!10.0.0.1"), slice("shop", "db-1", "db", "", "!10.0.0.2"), slice("hidden", "api-1", "api", "", "10.0.0.3")})
	f.check(t, api, "CNAME", "NOERROR aa\n"+api+" 5 IN CNAME api.shop.svc.cluster.local.")
	f.check(t, db, "CNAME", "NOERROR aa\n"+db+" 5 IN CNAME db.shop.prod.svc.z.r.prod.example.org.")
	f.check(t, hidden, "CNAME", "NOERROR aa\n"+hidden+" 5 IN CNAME api.hidden.prod.svc.z.r.prod.example.org.")
	f.places.Listed(cluster.Nodes, func(cluster.Key) bool { return false })
	fails(none, errNoLabels)
	f.check(t, api, "CNAME", "NOERROR aa\n"+api+" 5 IN CNAME api.shop.svc.cluster.local.")
	for _, qtype := range []string{"AXFR", "IXFR"} {
		f.check(t, api, qtype, "REFUSED")
	}
}

// Endpoints of merged slices count, too.
func TestFederationMergedSlices(t *testing.T) {
	f := federate(t, "prod.example.org")
	load(f.index, namespaceObject("shop"), clusterIP("shop", "api", "http 80/tcp", "10.96.0.1"),
		slice("shop", "api-1", "api", "", "!10.0.0.1"), slice("shop", "api-2", "api", "", "!10.0.0.1"))
	const api = "api.shop.prod.svc.cluster.local."
	f.check(t, api, "CNAME", "NOERROR aa\n"+api+" 5 IN CNAME api.shop.svc.cluster.local.")
}

// A name in the other cluster has at most 255 bytes. A longer one is SERVFAIL.
func TestFederationTooLong(t *testing.T) {
	long := strings.Repeat("a.", 59) + strings.Repeat("b", 63) + "." + strings.Repeat("c", 50) + "."
	for length, want := range map[int]string{wire.MaxName: "NOERROR", wire.MaxName + 1: "SERVFAIL"} {
		f := federate(t, long)
		load(f.index, namespaceObject("shop"))
		f.places.Put(cluster.Nodes, &cluster.Node{Name: "n", Zone: "z", Region: "r"})
		f.places.Listed(cluster.Nodes, func(cluster.Key) bool { return true })
		name := strings.Repeat("s", length-len("\x04shop\x04prod\x03svc\x01z\x01r")-1-len(names(t, []string{long})[0]))
		m := f.ask(t, name+".shop.prod.svc.cluster.local.", "CNAME")
		if got := strings.Fields(digest(m))[0]; got != want || (want == "SERVFAIL") != errors.Is(f.seen, errTooLong) {
			t.Errorf("name of %d bytes: got %s, error %v, want %s", length, digest(m), f.seen, want)
		}
	}
}

// The zone and region follow the Nodes. kube-dns reads the labels of one Node
// once.
func TestFederationFollowsNodes(t *testing.T) {
	p := newNodeLocations()
	is := func(want string) {
		t.Helper()
		got, err := p.location()
		if want == "" && !errors.Is(err, errNoLabels) || want != "" && (err != nil || got != string(index.AppendLabels(nil, want))) {
			t.Errorf("%q, %v; want %s", got, err, want)
		}
	}
	node := func(name, zone, region string) cluster.Object {
		return &cluster.Node{Name: name, Zone: zone, Region: region}
	}
	p.Put(cluster.Nodes, node("b", "b", "r"), node("c", "c", "r"))
	p.Listed(cluster.Nodes, func(cluster.Key) bool { return true })
	is("b.r")
	p.Put(cluster.Nodes, node("a", "", ""))
	is("b.r")
	p.Put(cluster.Nodes, node("a", "a", "r"))
	is("a.r")
	p.Put(cluster.Nodes, node("a", "a", "s"))
	is("a.s")
	p.Put(cluster.Nodes, node("a", "x..y", "s"))
	is("b.r")
	p.Delete(cluster.Nodes, cluster.Key{Name: "b"})
	is("c.r")
	p.Delete(cluster.Nodes, cluster.Key{Name: "b"})
	p.Put(cluster.Nodes, node("d", "d", "r.1"))
	p.Listed(cluster.Nodes, func(key cluster.Key) bool { return key.Name == "d" })
	is("d.r.1")
	p.Listed(cluster.Nodes, func(cluster.Key) bool { return false })
	is("")
	p.Put(cluster.Nodes, node("a", strings.Repeat("z", 64), "r"), node("b", "b-", "-r_"))
	is("b-.-r_")
}

// Only the sub-query allocates.
func TestFederationAllocations(t *testing.T) {
	f := federate(t, "prod.example.org")
	load(f.index, namespaceObject("shop"), clusterIP("shop", "api", "http 80/tcp", "10.96.0.1"), slice("shop", "api-1", "api", "", "10.0.0.1"))
	f.places.Put(cluster.Nodes, &cluster.Node{Name: "n", Zone: "z", Region: "r"})
	f.places.Listed(cluster.Nodes, func(cluster.Key) bool { return true })
	for _, c := range []struct {
		name string
		most float64
	}{
		{"none.shop.prod.svc.cluster.local.", 2}, // the sub-query of a name without a server block
		{"api.shop.prod.svc.cluster.local.", 1},  // the target of the CNAME
	} {
		packet := request(t, c.name, 1, 0)
		f.Serve(packet, dns.UDP)
		if n := testing.AllocsPerRun(100, func() { f.Serve(packet, dns.UDP) }); n > c.most {
			t.Errorf("%s: %v allocations, want %v", c.name, n, c.most)
		}
	}
}
