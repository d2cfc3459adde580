package gateway

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/sys/memory"
	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/wire"
)

// A rig has a source to which a test writes objects.
type rig struct {
	*source
	t testing.TB
}

func newRig(t testing.TB, options string) *rig {
	t.Helper()
	h, b := plan(t, options)
	h.source = h.newSource(b)
	r := &rig{h.source, t}
	for _, kind := range h.api.Kinds() {
		r.Listed(kind, func(cluster.Key) bool { return true })
	}
	return r
}

// put writes objects and publishes them.
func (r *rig) put(all ...cluster.Object) {
	for _, o := range all {
		r.Put(kindOf(o), o)
	}
	r.publishNow()
}

// answers compares the answers of names: addresses, "-" for a host without one, and "" for no host.
func (r *rig) answers(want map[string]string) {
	r.t.Helper()
	for name, text := range want {
		got := ""
		if a := r.lookup(r.t, name); a != nil {
			var addrs []string
			for _, addr := range a.addrs() {
				addrs = append(addrs, addr.String())
			}
			got = strings.Join(addrs, " ")
			if a.isEmpty() {
				got = "-"
			}
		}
		if got != text {
			r.t.Errorf("%s: got %q, want %q", name, got, text)
		}
	}
}

// faultsAre compares what is wrong with objects.
func (r *rig) faultsAre(want ...string) {
	r.t.Helper()
	if got := r.faults(); !slices.Equal(got, want) {
		r.t.Errorf("got the errors\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func gatewayObject(namespace, name string, created int64, listeners ...cluster.Listener) *cluster.Gateway {
	return &cluster.Gateway{Namespace: namespace, Name: name, Created: created, Class: "lb", Accepted: true, Listeners: listeners}
}

// listens returns a listener for HTTP that allows the Routes of namespaces.
func listens(hostname, from string) cluster.Listener {
	return cluster.Listener{Name: "web", Port: 80, Host: hostname, From: cluster.From{From: from}, Routes: cluster.SetOf(cluster.HTTPRoutes, cluster.GRPCRoutes)}
}

func routeObject(namespace, name string, created int64, gateway string, hosts ...string) *cluster.Route {
	at, in, _ := strings.Cut(gateway, "/")
	return &cluster.Route{Kind: cluster.HTTPRoutes, Namespace: namespace, Name: name, Created: created, Hosts: hosts,
		Parents: []cluster.Parent{{Key: cluster.Key{Namespace: at, Name: in}}}}
}

// frontend returns a Service for a Gateway of its namespace.
func frontend(namespace, name, gateway, ip string) *cluster.Frontend {
	f := &cluster.Frontend{Gateway: gateway, Labeled: true}
	f.Namespace, f.Name, f.ClusterIPs = namespace, name, []netip.Addr{netip.MustParseAddr(ip)}
	f.Ports = []cluster.Port{{Port: 80}}
	return f
}

// balanced returns a Service of a load balancer.
func balanced(namespace, name string, port uint16, ip string, external ...string) *cluster.Frontend {
	f := frontend(namespace, name, "", ip)
	f.Labeled, f.Balanced, f.Balancer, f.Ports[0].Port = false, true, new(cluster.External), port
	for _, text := range external {
		if addr, err := netip.ParseAddr(text); err == nil {
			f.Balancer.IPs = append(f.Balancer.IPs, addr)
		} else {
			f.Balancer.Hosts = append(f.Balancer.Hosts, text)
		}
	}
	return f
}

// A tenant has no host of another with an older object, and none of a zone that is not delegated to it; nor
// one at a Gateway that does not allow its namespace.
func TestTenants(t *testing.T) {
	for _, delegated := range []bool{false, true} {
		options := ""
		if delegated {
			options = "delegate a a.example.test\ndelegate b b.example.test"
		}
		r := newRig(t, options)
		r.put(
			frontend("a", "lb", "own", "10.0.0.1"), gatewayObject("a", "own", 5, listens("", "Same")),
			routeObject("a", "web", 5, "a/own", "web.a.example.test", "api.a.example.test"),
			// The other tenant.
			frontend("b", "lb", "own", "10.6.6.6"), gatewayObject("b", "own", 6, listens("*.a.example.test", "All"), listens("web.a.example.test", "All")),
			routeObject("b", "into", 6, "a/own", "new.a.example.test"),
			routeObject("b", "old", 1, "b/own", "api.a.example.test"),
			&cluster.Ingress{Namespace: "b", Name: "in", Created: 1, Hosts: []string{"*.a.example.test", "web.a.example.test"}, Addresses: []string{"10.6.6.7"}},
		)
		if delegated {
			r.answers(map[string]string{
				"web.a.example.test": "10.0.0.1", "api.a.example.test": "10.0.0.1", "new.a.example.test": "", "x.a.example.test": ""})
			r.faultsAre(
				"Gateway b/own: *.a.example.test. is in a.example.test., which is not delegated to namespace b",
				"HTTPRoute b/old: api.a.example.test. is in a.example.test., which is not delegated to namespace b",
				"Ingress b/in: *.a.example.test. is in a.example.test., which is not delegated to namespace b")
			continue
		}
		// Without delegations age decides.
		r.answers(map[string]string{
			"web.a.example.test": "10.6.6.7", "api.a.example.test": "10.6.6.6", "new.a.example.test": "10.6.6.7", "x.y.a.example.test": "10.6.6.6"})
		r.faultsAre(
			"Gateway b/own: *.a.example.test. is in Ingress b/in, which is older",
			"HTTPRoute a/web: web.a.example.test. is in Ingress b/in, which is older")
	}
}

// A wildcard has no names in a zone that is delegated to another namespace.
func TestWildcardAboveDelegation(t *testing.T) {
	r := newRig(t, "delegate a a.example.test\ndelegate admins example.test")
	r.put(frontend("admins", "lb", "g", "10.0.0.1"), gatewayObject("admins", "g", 1, listens("*.example.test", "Same")))
	r.answers(map[string]string{"x.example.test": "10.0.0.1", "a.example.test": "", "x.a.example.test": ""})
}

// A deleted Gateway, one without an address and one that is not accepted publish nothing; the host without
// an address is its owner's all the same.
func TestGatewayStates(t *testing.T) {
	r := newRig(t, "")
	g := gatewayObject("a", "g", 1, listens("", "All"))
	younger := gatewayObject("b", "g", 2, listens("w.example.test", "All"))
	r.put(g, routeObject("a", "r", 1, "a/g", "w.example.test"), younger, frontend("b", "lb", "g", "10.6.6.6"))
	r.answers(map[string]string{"w.example.test": "-"})

	f := frontend("a", "lb", "g", "10.0.0.1")
	r.put(f)
	r.answers(map[string]string{"w.example.test": "10.0.0.1"})
	r.faultsAre("Gateway b/g: w.example.test. is in HTTPRoute a/r, which is older")

	pending := new(*g)
	pending.Accepted = false
	r.put(pending)
	r.answers(map[string]string{"w.example.test": "10.6.6.6"})
	r.put(g)
	r.answers(map[string]string{"w.example.test": "10.0.0.1"})
	r.Delete(cluster.Gateways, g.Key())
	r.Delete(cluster.Gateways, younger.Key())
	r.publishNow()
	r.answers(map[string]string{"w.example.test": ""})
	r.faultsAre()
}

// The Service of a Gateway or an Ingress is found in the documented order.
func TestServices(t *testing.T) {
	g := func(addresses ...string) *cluster.Gateway {
		g := gatewayObject("infra", "g", 1, listens("w.example.test", "Same"))
		g.Addresses = addresses
		return g
	}
	metrics := frontend("infra", "a-metrics", "g", "10.0.0.9")
	metrics.Ports[0].Port = 9090
	owned := frontend("infra", "a-owned", "g", "10.0.0.8")
	owned.Labeled = false
	dual := frontend("infra", "dual", "", "10.0.0.7")
	dual.ClusterIPs = append(dual.ClusterIPs, netip.MustParseAddr("fd00::7"))

	for _, c := range []struct {
		name, options string
		objects       []cluster.Object
		want          string
	}{
		{"no Service", "", []cluster.Object{g()}, "-"},
		{"the status alone", "", []cluster.Object{g("192.0.2.1", "2001:db8::1")}, "192.0.2.1 2001:db8::1"},
		{"label", "", []cluster.Object{g("192.0.2.1"), frontend("infra", "lb", "g", "10.0.0.1")}, "10.0.0.1"},
		{"a label in another namespace", "", []cluster.Object{g("192.0.2.1"), frontend("thief", "lb", "g", "10.0.0.1")}, "192.0.2.1"},
		{"a metrics page", "", []cluster.Object{g(), metrics, frontend("infra", "z", "g", "10.0.0.1")}, "10.0.0.1"},
		{"an owner", "", []cluster.Object{g(), owned}, "10.0.0.8"},
		{"a label before an owner", "", []cluster.Object{g(), owned, frontend("infra", "z", "g", "10.0.0.1")}, "10.0.0.1"},
		{"a ClusterIP of the status", "", []cluster.Object{g("10.0.0.7"), dual}, "10.0.0.7 fd00::7"},
		{"a name of the status", "", []cluster.Object{g("dual.infra.svc.cluster.local"), dual}, "10.0.0.7 fd00::7"},
		{"a load balancer", "", []cluster.Object{g("192.0.2.1"), balanced("envoy", "lb", 80, "10.0.0.1", "192.0.2.1")}, "10.0.0.1"},
		{"a host name of a load balancer", "", []cluster.Object{g("lb.cloud.example.net"), balanced("envoy", "lb", 80, "10.0.0.1", "lb.cloud.example.net")}, "10.0.0.1"},
		{"one address of several load balancers", "", []cluster.Object{g("192.0.2.1"),
			balanced("envoy", "a-db", 5432, "10.0.0.2", "192.0.2.1"), balanced("envoy", "lb", 80, "10.0.0.1", "192.0.2.1")}, "10.0.0.1"},
		{"a load balancer that has a ClusterIP", "", []cluster.Object{g("10.0.0.7"), dual, balanced("thief", "a", 80, "10.6.6.6", "10.0.0.7")}, "10.0.0.7 fd00::7"},
		{"an option", "service infra/dual lb", []cluster.Object{g("192.0.2.1"), dual, frontend("infra", "lb", "g", "10.0.0.1")}, "10.0.0.7 fd00::7"},
		{"an option without its Service", "service infra/none", []cluster.Object{g("192.0.2.1"), dual}, "-"},
		{"an option for another class", "service infra/dual nginx", []cluster.Object{g("192.0.2.1"), dual}, "192.0.2.1"},
		{"another class", "gatewayClasses nginx", []cluster.Object{g("192.0.2.1")}, ""},
		{"no listeners", "resources HTTPRoute", []cluster.Object{g("192.0.2.1")}, ""},
	} {
		r := newRig(t, c.options)
		r.put(c.objects...)
		t.Run(c.name, func(t *testing.T) {
			r.t = t
			r.answers(map[string]string{"w.example.test": c.want})
		})
	}
}

// The newest objects of a namespace with too many hosts are ignored, in whatever order they arrive; other
// namespaces keep theirs.
func TestLimit(t *testing.T) {
	objects := []cluster.Object{
		frontend("infra", "lb", "g", "10.0.0.1"), gatewayObject("infra", "g", 1, listens("", "All")),
		routeObject("a", "one", 1, "infra/g", "1.example.test", "2.example.test"),
		routeObject("a", "two", 2, "infra/g", "3.example.test", "4.example.test"),
		routeObject("a", "three", 3, "infra/g", "5.example.test"),
		routeObject("b", "one", 4, "infra/g", "6.example.test"),
	}
	for range 2 {
		r := newRig(t, "max_hosts 3")
		r.put(objects...)
		r.answers(map[string]string{"1.example.test": "10.0.0.1", "2.example.test": "10.0.0.1", "3.example.test": "",
			"4.example.test": "", "5.example.test": "10.0.0.1", "6.example.test": "10.0.0.1"})
		r.faultsAre("HTTPRoute a/two: with it namespace a would have more than 3 hosts (max_hosts)")
		slices.Reverse(objects)
	}
}

// A host that several listeners, Routes and Ingresses of a namespace have counts once.
func TestLimitOfDistinctHosts(t *testing.T) {
	r := newRig(t, "max_hosts 2")
	r.put(
		frontend("a", "lb", "g", "10.0.0.1"),
		gatewayObject("a", "g", 1, listens("1.example.test", "Same"), listens("1.example.test", "Same"), listens("*.example.test", "Same")),
		routeObject("a", "one", 2, "a/g", "1.example.test"), routeObject("a", "two", 3, "a/g", "1.example.test"),
		&cluster.Ingress{Namespace: "a", Name: "in", Created: 4, Hosts: []string{"1.example.test"}, Addresses: []string{"10.0.0.1"}},
		routeObject("a", "three", 5, "a/g", "1.example.test", "3.example.test"))
	r.answers(map[string]string{"1.example.test": "10.0.0.1", "2.example.test": "10.0.0.1"})
	r.faultsAre("HTTPRoute a/three: with it namespace a would have more than 2 hosts (max_hosts)")
}

// Invalid hostnames are told, and the others of the object are published.
func TestInvalidHosts(t *testing.T) {
	r := newRig(t, "")
	r.put(frontend("a", "lb", "g", "10.0.0.1"), gatewayObject("a", "g", 1, listens("", "Same"), listens("a..example.test", "Same")),
		routeObject("a", "r", 1, "a/g", "*.*.example.test", "192.0.2.1", strings.Repeat("a", 64)+".example.test", "W.Example.Test."))
	r.answers(map[string]string{"w.example.test": "10.0.0.1"})
	r.faultsAre(
		`Gateway a/g: listeners: web: hostname "a..example.test": want a host name, or *. and a host name`,
		`HTTPRoute a/r: hostnames: "*.*.example.test": want a host name, or *. and a host name`)
}

// No answer allocates.
func TestAllocations(t *testing.T) {
	h, b := plan(t, "")
	h.source = h.newSource(b)
	r := &rig{h.source, t}
	for _, kind := range h.api.Kinds() {
		r.Listed(kind, func(cluster.Key) bool { return true })
	}
	alias := gatewayObject("a", "alias", 1, listens("alias.example.test", "Same"))
	alias.Addresses = []string{"w.example.test"}
	dual := frontend("a", "lb", "g", "10.0.0.1")
	dual.ClusterIPs = append(dual.ClusterIPs, netip.MustParseAddr("fd00::1"))
	r.put(dual, gatewayObject("a", "g", 1, listens("*.example.test", "Same"), listens("w.example.test", "Same")), alias)

	s := chaintest.NewServer(t, map[string]*dns.Chain{".": chaintest.NewChain("gateway", h)})
	for _, c := range []struct {
		name, qtype string
		records     int
	}{
		{"w.example.test.", "A", 1}, {"w.example.test.", "AAAA", 1}, {"w.example.test.", "ANY", 2}, {"W.example.test.", "HTTPS", 0},
		{"a.b.c.example.test.", "A", 1}, {"alias.example.test.", "A", 2}, {"alias.example.test.", "CNAME", 1},
	} {
		p := chaintest.Pack(t, chaintest.Query(c.name, c.qtype))
		if m := chaintest.Unpack(t, s.Serve(p, dns.UDP)); len(m.Answer) != c.records || m.Rcode != mdns.RcodeSuccess {
			t.Errorf("%s %s: got %v, want %d records", c.name, c.qtype, m, c.records)
		}
		if n := testing.AllocsPerRun(100, func() { s.Serve(p, dns.UDP) }); n != 0 {
			t.Errorf("%s %s: got %v allocations, want 0", c.name, c.qtype, n)
		}
	}
}

// A check reads a folder once, and tells what is wrong with each object.
func TestCheck(t *testing.T) {
	dir := t.TempDir()
	text := `{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: in, namespace: a}, spec: {ingressClassName: nginx, rules: [{host: "x..example.test"}, {host: w.example.test}]}}`
	if err := os.WriteFile(filepath.Join(dir, "all.yaml"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	h, _ := plan(t, "service a/nginx nginx\nmanifests "+dir)
	var got []string
	for _, err := range h.CheckObjects(t.Context(), cluster.Options{}) {
		got = append(got, err.Error())
	}
	want := []string{`Corefile:2: gateway: Ingress a/in: rules: host "x..example.test": want a host name, or *. and a host name`}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// The differences between versions of an external zone lead from each to the next, and an unchanged zone
// keeps its version.
func TestExternalVersions(t *testing.T) {
	text := "example.test:53 {\ngateway {\nexternal\napex ns1 192.0.2.53\n}\n}\n"
	b, err := chaintest.Setup(text, chaintest.QuietLog(), config.Directive{Name: "gateway", Setup: Setup})
	if err != nil {
		t.Fatal(err)
	}
	b.Memory = memory.New(64<<20, memory.FromGroup)
	x := config.Find[*External](b)[0]
	x.source = x.newSource(b)
	r := &rig{x.source, t}
	origin := wire.Name("\x07example\x04test\x00")
	if v := x.Version(origin); v != nil {
		t.Errorf("before the objects have been read: got version %v, want none", v)
	}
	for _, kind := range x.api.Kinds() {
		r.Listed(kind, func(cluster.Key) bool { return true })
	}
	g := gatewayObject("a", "g", 1, listens("", "All"))
	g.Addresses = []string{"192.0.2.1"}
	r.put(g)

	recordsOf := func() map[string]bool {
		all := map[string]bool{}
		for record := range x.Version(origin).Records {
			all[string(record)] = true
		}
		return all
	}
	before, serial := recordsOf(), serialOf(x, origin)
	if len(before) != 3 { // SOA, NS and A of the name server
		t.Errorf("got %d records, want 3", len(before))
	}
	for i, o := range []cluster.Object{
		routeObject("a", "one", 1, "a/g", "one.example.test", "*.example.test"),
		routeObject("a", "two", 1, "a/g", "two.example.test"),
		routeObject("a", "one", 1, "a/g", "three.example.test"),
	} {
		r.put(o)
		changes, ok := x.source.zones.all[0].current.Load().Since(serial)
		if !ok {
			t.Fatalf("change %d: the differences since serial number %d are not known", i, serial)
		}
		add := true
		for record := range changes {
			if isSOA(record, origin) {
				add = !add // the old one comes before what is removed, the new one before what is added
				if !add {
					for old := range before {
						if isSOA([]byte(old), origin) {
							delete(before, old)
						}
					}
					continue
				}
				before[string(record)] = true
				continue
			}
			if add {
				before[string(record)] = true
			} else if before[string(record)] {
				delete(before, string(record))
			} else {
				t.Errorf("change %d: removes a record that the zone does not have", i)
			}
		}
		now := recordsOf()
		if !sameKeys(before, now) {
			t.Errorf("change %d: the differences lead to %d records, want the %d of the zone", i, len(before), len(now))
		}
		before, serial = now, serialOf(x, origin)
	}

	journal := x.source.zones.all[0].current.Load().journal.Bytes()
	if used := b.Memory.Part(memory.Zones).Used; journal == 0 || used != int64(journal) {
		t.Errorf("%d bytes of memory are reserved for a journal of %d", used, journal)
	}

	// A name with names below it excludes the wildcard (RFC 4592), and has a negative answer with the SOA record.
	r.put(routeObject("a", "two", 1, "a/g", "two.deep.example.test"))
	server := chaintest.NewServer(t, map[string]*dns.Chain{".": chaintest.NewChain("gateway", x)})
	for name, want := range map[string]int{"three.example.test.": mdns.RcodeSuccess, "x.deep.example.test.": mdns.RcodeNameError} {
		m := chaintest.Unpack(t, server.Serve(chaintest.Pack(t, chaintest.Query(name, "A")), dns.UDP))
		if m.Rcode != want || !m.Authoritative || (want == mdns.RcodeNameError) != (len(m.Ns) == 1) {
			t.Errorf("%s: got %v, want response code %d, with a SOA record if that is NXDOMAIN", name, m, want)
		}
	}
	serial = serialOf(x, origin)

	r.put(routeObject("b", "elsewhere", 1, "b/none", "four.example.test"))
	if now := serialOf(x, origin); now != serial {
		t.Errorf("a change without a difference: got serial number %d, want %d", now, serial)
	}
	x.source.serve()
	if now := serialOf(x, origin); int32(now-serial) <= 0 {
		t.Errorf("a plan that begins to answer: got serial number %d, want one after %d", now, serial)
	}
}

// If its load balancer has no address, the first name server has the addresses that the server listens on.
func TestNameServerAddresses(t *testing.T) {
	local, given := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	ns := nameServer{service: cluster.Key{Namespace: "dns", Name: "ns1"}}
	for _, c := range []struct {
		name   string
		server nameServer
		i      int
		status []string
		want   []netip.Addr
	}{
		{"a given address", nameServer{addrs: []netip.Addr{given}, service: ns.service}, 0, []string{"192.0.2.3"}, []netip.Addr{given}},
		{"an address of the load balancer", ns, 0, []string{"192.0.2.3", "lb.example"}, []netip.Addr{netip.MustParseAddr("192.0.2.3")}},
		{"a host name of the load balancer", ns, 0, []string{"lb.example"}, []netip.Addr{local}},
		{"nothing yet", ns, 0, nil, []netip.Addr{local}},
		{"the second name server", ns, 1, []string{"lb.example"}, nil},
	} {
		objects := state{}
		objects.put(cluster.Services, balanced("dns", "ns1", 53, "10.96.0.2", c.status...))
		x := &liveZones{local: []netip.Addr{local}}
		if got := x.addrsOf(c.server, c.i, objects); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}

func serialOf(x *External, origin wire.Name) uint32 {
	serial, _ := x.Version(origin).Serial()
	return serial
}

func isSOA(record []byte, origin wire.Name) bool {
	return strings.HasPrefix(string(record), string(origin)+"\x00\x06")
}

func sameKeys(a, b map[string]bool) bool {
	for key := range a {
		if !b[key] {
			return false
		}
	}
	return len(a) == len(b)
}
