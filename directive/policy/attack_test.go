package policy

import (
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/test/chaintest"
)

// A zone transfer shows all names of a zone, so clients that are denied some get none.
func TestTransfers(t *testing.T) {
	c := &folderCluster{dir: t.TempDir()}
	for ip, ns := range map[string]string{"10.1.0.1": "lines", "10.1.0.2": "services", "10.1.0.3": "maps", "10.1.0.4": "policies", "10.1.0.5": "free"} {
		c.add(ip, pod(ns, "agent"))
	}
	var objects strings.Builder
	for _, ns := range []string{"lines", "services", "maps", "policies", "free"} {
		objects.WriteString(namespaceText(ns, "name: "+ns) + "---\n")
	}
	objects.WriteString(configMapText("maps", "names", 1, "deny hidden.corp.test") + "---\n" +
		networkPolicyText("names", "Admin", "1", "{namespaces: {matchLabels: {name: policies}}}", "{action: Deny, to: [{domainNames: [hidden.corp.test]}]}"))
	c.put(t, "all.yaml", objects.String())
	s, _ := serveFolder(t, "cluster_network_policies\nobjects {\n manifests DIR\n delegate * .\n}\n"+
		"group lines {\n namespaces lines\n allow corp.test\n deny *\n}\ngroup services {\n namespaces services\n services own\n}\n"+
		"group all {\n allow corp.test\n}\ngroup others {\n unknown\n}", c, nil)

	for client, want := range map[string]string{
		"10.1.0.1": "REFUSED", "10.1.0.2": "REFUSED", "10.1.0.3": "REFUSED", "10.1.0.4": "REFUSED", "10.1.0.5": "NOERROR", "10.1.0.9": "NOERROR",
	} {
		s.Prepare = func(q *dns.Query) { q.Peer = netip.AddrPortFrom(netip.MustParseAddr(client), 53000) }
		for _, kind := range []string{"AXFR", "IXFR"} {
			if got := mdns.RcodeToString[s.Ask(chaintest.Query("corp.test", kind), dns.TCP).Rcode]; got != want {
				t.Errorf("%s from %s: got %s, want %s", kind, client, got, want)
			}
		}
		if got := rcode(s, client, "corp.test"); got != "NOERROR" {
			t.Errorf("A from %s: got %s, want NOERROR", client, got)
		}
	}
}

// A pod that gets the address of another one within a minute is waited for, too.
func TestAddressReused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := new(stubCluster)
		s := start(t, "group a {\n namespaces a\n allow a.test\n deny *\n}\ngroup b {\n namespaces b\n allow b.test\n deny *\n}\n"+
			"group others {\n unknown\n deny *\n}", c, "10.1.0.1")
		for _, ns := range []string{"a", "b", "a"} {
			c.remove("10.1.0.1")
			time.AfterFunc(300*time.Millisecond, func() { c.add("10.1.0.1", pod(ns, "new")) })
			begun := time.Now()
			if got := s.Ask(chaintest.Query(ns+".test", "A"), dns.UDP).Rcode; got != mdns.RcodeSuccess {
				t.Errorf("the first query of a pod of namespace %s: got %s, want NOERROR", ns, mdns.RcodeToString[got])
			}
			if waited := time.Since(begun); waited < 300*time.Millisecond || waited > 400*time.Millisecond {
				t.Errorf("the first query of a pod of namespace %s: got an answer after %v, want 300 ms", ns, waited)
			}
			other := map[string]string{"a": "b", "b": "a"}[ns]
			if got := s.Ask(chaintest.Query(other+".test", "A"), dns.UDP).Rcode; got != mdns.RcodeNameError {
				t.Errorf("the name of the other namespace: got %s, want NXDOMAIN", mdns.RcodeToString[got])
			}
			time.Sleep(10 * time.Second)
		}
	})
}

// Until the ClusterNetworkPolicies have been listed, pods get no answer for names outside: one could deny it.
func TestUnreadNetworkPolicies(t *testing.T) {
	c := new(stubCluster)
	c.add("10.1.0.1", pod("a", "agent"))
	c.add("10.1.0.2", pod("b", "agent"))
	b, err := plan("group a {\n namespaces a\n}\ngroup trial {\n namespaces b\n audit\n}\ngroup others {\n unknown\n deny *\n}", c)
	if err != nil {
		t.Fatal(err)
	}
	s, p := chaintest.Run(t, b, nil), policyOf(b)
	n := newNamespaces(b, cluster.Options{Published: cluster.SetOf(cluster.Namespaces) | cluster.SetOf(cluster.NetworkPolicies)}, nil)
	p.groups.namespaces.Store(n)
	for _, ns := range []string{"a", "b"} {
		n.Put(cluster.Namespaces, &cluster.Namespace{Name: ns, Labels: cluster.NewLabels(nil)})
	}
	n.Listed(cluster.Namespaces, func(cluster.Key) bool { return true })

	check := func(what, client, name, want string) {
		t.Helper()
		if got := rcode(s, client, name); got != want {
			t.Errorf("%s, %s from %s: got %s, want %s", what, name, client, got, want)
		}
	}
	check("before the list", "10.1.0.1", "x.test", "SERVFAIL")
	check("before the list", "10.1.0.1", "api.a.svc.cluster.local", "NOERROR")
	check("before the list", "10.1.0.2", "x.test", "NOERROR") // audit denies nothing
	n.Listed(cluster.NetworkPolicies, func(cluster.Key) bool { return true })
	check("after the list", "10.1.0.1", "x.test", "NOERROR")
}
