package kubetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/seamark/seamark/test/bound"
	"github.com/seamark/seamark/test/chaintest"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/miekg/dns"
)

// The API server crashes: known names are answered and the server stays ready.
// Changes after the API server's return are seen.
func TestServerOutage(t *testing.T) {
	t.Parallel()
	api := start(t)
	w := writer(t, api)
	w.shop()
	d := serve(t, ". {\n ready $READY\n prometheus 127.0.0.1:0\n kubernetes cluster.local in-addr.arpa ip6.arpa {\n"+kubeconfig(t, api)+"\n }\n}\n")
	d.await(shopNames()...)
	d.checkReady(true)
	load := d.startLoad(shopNames()...)
	for i := range 2 {
		api.StopAPI()
		chaintest.Eventually(t, "a log line", func() bool { return d.logs("API server unreachable") == i+1 })
		young := d.age("services")
		chaintest.Eventually(t, "old data", func() bool { return d.age("services") > 1 })
		old := d.age("services")
		d.checkReady(true)
		d.check(shopNames()...)

		if err := api.StartAPI(t.Context()); err != nil {
			t.Fatal(err)
		}
		name, ip := fmt.Sprintf("new-%d", i), fmt.Sprintf("10.0.4.%d", i)
		add(t, w.CoreV1().Services("shop"), service(name, ip))
		took := d.await(lookupA(name+".shop.svc.cluster.local", "NOERROR "+ip))
		now := d.age("services")
		t.Logf("the data were %.2f s old at first, then %.2f s, and %.2f s when a new Service showed, %v after it was made", young, old, now, took)
		if young > old || now > old {
			t.Errorf("the age of the data was %.2f s, then %.2f s, and %.2f s after a change: want it to grow and then to fall", young, old, now)
		}
		bound.AtMost(t, "the change", took, 10*time.Second)
		d.checkReady(true)
	}
	load.stop()
}

// The API server is not there at the start: the cluster's names and reverse names
// do not fall through meanwhile, other zones are answered, and all names are
// answered soon after the API server's start.
func TestServerStartsBeforeAPI(t *testing.T) {
	t.Parallel()
	api := start(t)
	w := writer(t, api)
	w.shop()
	api.StopAPI()
	d := serve(t, ". {\n ready $READY\n prometheus 127.0.0.1:0\n errors\n"+
		" kubernetes cluster.local in-addr.arpa ip6.arpa {\n"+kubeconfig(t, api)+"\n fallthrough\n }\n whoami\n}\n"+
		"other.test {\n whoami\n}\n")
	below := `coredns_dns_responses_total{server="dns://127.0.0.1:0",zone=".",view="",rcode="NOERROR",plugin="whoami"}`
	chaintest.Eventually(t, "a log line", func() bool { return d.logs("API server unreachable") == 1 })
	var unknown []lookup
	for _, q := range append(shopNames(), lookupA("cluster.local", ""), lookupA("any.thing.cluster.local", ""), lookupPTR("8.b.d.0.1.0.0.2.ip6.arpa", "")) {
		q.want = "SERVFAIL"
		unknown = append(unknown, q)
	}
	d.check(unknown...)
	if n := d.metric(below); n > 0 {
		t.Errorf("queries for the next handler: got %v, want none", n)
	}
	d.checkReady(false)
	d.check(lookup{"other.test", dns.TypeA, "NOERROR"}, lookupA("example.org", "NOERROR"))
	if n := d.metric(below); n != 2 {
		t.Errorf("queries for the next handler: got %v, want 2, for example.org", n)
	}

	began := time.Now()
	if err := api.StartAPI(t.Context()); err != nil {
		t.Fatal(err)
	}
	up := time.Now()
	d.await(lookupA("web.shop.svc.cluster.local", "NOERROR 10.0.0.1"))
	t.Logf("the API server took %v to start, the first answer %v more", up.Sub(began), time.Since(up))
	for _, q := range shopNames() {
		if q.want == "NXDOMAIN" {
			q.want = "NOERROR" // The name falls through now.
		}
		d.await(q)
	}
	d.checkReady(true)
}

// A watchGap is a time without watches in which objects change.
type watchGap struct {
	t     *testing.T
	api   *Server
	proxy *Proxy
	w     clusterWriter
	d     *daemon
}

// openGap starts a server that follows the API server through a proxy, and
// interrupts its watches.
func openGap(t *testing.T) *watchGap {
	t.Helper()
	api := start(t)
	g := &watchGap{t: t, api: api, w: writer(t, api), proxy: must(NewProxy(api))(t)}
	t.Cleanup(g.proxy.Close)
	g.w.shop()
	g.d = serve(t, corefileOf("endpoint "+g.proxy.URL(), "pods verified"))
	g.d.await(shopNames()...)
	// The reflector lists again after a watch that ended within a second without
	// events.
	services, slices := g.w.CoreV1().Services("shop"), g.w.DiscoveryV1().EndpointSlices("shop")
	add(t, services, service("old", "10.0.5.1"))
	add(t, services, service("turns", "10.0.5.2"))
	add(t, services, service("grows"))
	add(t, slices, slice("grows-1", "grows", "10.1.5.1"))
	g.w.pod("shop", "old", "10.2.5.1")
	g.w.pod("shop", "stays", "10.2.5.2")
	g.d.await(g.unchanged()...)
	g.d.await(g.before()...)
	g.d.startLoad(g.unchanged()...)

	g.proxy.Set(Faults{Stall: true})
	g.proxy.Cut()
	return g
}

// change adds, changes and deletes objects.
func (g *watchGap) change() {
	g.t.Helper()
	services, slices, pods := g.w.CoreV1().Services("shop"), g.w.DiscoveryV1().EndpointSlices("shop"), g.w.CoreV1().Pods("shop")
	remove(g.t, services, "old")
	add(g.t, services, service("new", "10.0.5.1")) // the address belongs to another Service now
	edit(g.t, services, "turns", func(s *corev1.Service) {
		s.Spec.Type, s.Spec.ExternalName = corev1.ServiceTypeExternalName, "else.example"
	})
	edit(g.t, slices, "grows-1", func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Addresses[0] = "10.1.5.9" })
	add(g.t, slices, slice("grows-2", "grows", "10.1.5.2"))
	remove(g.t, pods, "old")
	g.w.pod("shop", "new", "10.2.5.3")
	g.d.check(g.before()...)
}

func (g *watchGap) unchanged() []lookup {
	return append(shopNames(), lookupA("10-2-5-2.shop.pod.cluster.local", "NOERROR 10.2.5.2"))
}

func (g *watchGap) before() []lookup {
	return []lookup{
		lookupA("old.shop.svc.cluster.local", "NOERROR 10.0.5.1"),
		lookupPTR("1.5.0.10.in-addr.arpa", "NOERROR old.shop.svc.cluster.local."),
		lookupA("new.shop.svc.cluster.local", "NXDOMAIN"),
		lookupA("turns.shop.svc.cluster.local", "NOERROR 10.0.5.2"),
		lookupA("grows.shop.svc.cluster.local", "NOERROR 10.1.5.1"),
		lookupA("10-2-5-1.shop.pod.cluster.local", "NOERROR 10.2.5.1"),
		lookupA("10-2-5-3.shop.pod.cluster.local", "NXDOMAIN"),
	}
}

func (g *watchGap) after() []lookup {
	return []lookup{
		lookupA("old.shop.svc.cluster.local", "NXDOMAIN"),
		lookupPTR("1.5.0.10.in-addr.arpa", "NOERROR new.shop.svc.cluster.local."),
		lookupA("new.shop.svc.cluster.local", "NOERROR 10.0.5.1"),
		lookupA("turns.shop.svc.cluster.local", "NOERROR else.example."),
		lookupPTR("2.5.0.10.in-addr.arpa", "NXDOMAIN"),
		lookupA("grows.shop.svc.cluster.local", "NOERROR 10.1.5.2 10.1.5.9"),
		lookupPTR("1.5.1.10.in-addr.arpa", "NXDOMAIN"),
		lookupA("10-2-5-1.shop.pod.cluster.local", "NXDOMAIN"),
		lookupA("10-2-5-3.shop.pod.cluster.local", "NOERROR 10.2.5.3"),
	}
}

// The resumed watch has the changes of a gap that the API server remembers.
func TestServerWatchResumes(t *testing.T) {
	t.Parallel()
	g := openGap(t)
	g.change()
	g.proxy.Set(Faults{})
	g.d.await(g.after()...)
	for _, resource := range []string{"services", "endpointslices", "pods"} {
		if n := g.d.count("relists", resource); n != 1 {
			t.Errorf("lists of %s: got %d, want 1, since the watch is resumed", resource, n)
		}
	}
}

// The same with a compacted history: the watch gets 410 Expired, and a list
// detects the deletions.
func TestServerWatchExpired(t *testing.T) {
	t.Parallel()
	g := openGap(t)
	g.change()
	g.forget()
	g.proxy.Set(Faults{})
	g.proxy.Cut()
	g.d.await(g.after()...)
	for _, resource := range []string{"services", "endpointslices", "pods"} {
		if n := g.d.count("relists", resource); n < 2 {
			t.Errorf("lists of %s: got %d, want at least 2, since the watch gets 410 Gone", resource, n)
		}
	}
	g.d.await(g.unchanged()...)
}

// forget deletes the API server's history, as compaction does after some minutes.
func (g *watchGap) forget() {
	g.t.Helper()
	if err := g.api.Compact(g.t.Context()); err != nil {
		g.t.Fatal(err)
	}
	g.api.StopAPI()
	if err := g.api.StartAPI(g.t.Context()); err != nil {
		g.t.Fatal(err)
	}
}
