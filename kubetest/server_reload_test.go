package kubetest

import (
	"fmt"
	"net"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/seamark/seamark/test/chaintest"
)

// A reload that leaves the kubernetes directive unchanged keeps its watches and
// its data, and loses no query.
func TestServerReloadKeepsWatch(t *testing.T) {
	t.Parallel()
	api := start(t)
	w := writer(t, api)
	w.shop()
	text := corefileOf(kubeconfig(t, api))
	d := serve(t, text)
	d.await(shopNames()...)
	resources := []string{"namespaces", "services", "endpointslices"}
	load := d.startLoad(shopNames()...)
	for i := range 10 {
		d.reload(text + fmt.Sprintf("zone-%d.test {\n whoami\n}\n", i))
		d.check(lookupA(fmt.Sprintf("zone-%d.test", i), "NOERROR"))
	}
	for _, r := range resources {
		if n := d.count("relists", r); n != 1 {
			t.Errorf("%d lists of %s, want the first alone", n, r)
		}
	}
	add(t, w.CoreV1().Services("shop"), service("late", "10.0.6.1"))
	d.awaitChange("a Service after the reloads", lookupA("late.shop.svc.cluster.local", "NOERROR 10.0.6.1"))

	// The same without an API server.
	api.StopAPI()
	d.awaitFailures("services", 2)
	d.reload(text)
	d.check(shopNames()...)
	if err := api.StartAPI(t.Context()); err != nil {
		t.Fatal(err)
	}
	remove(t, w.CoreV1().Services("shop"), "late")
	d.await(lookupA("late.shop.svc.cluster.local", "NXDOMAIN"))
	load.stop()
}

// After a reload that changes the directive, the new data are complete before
// they are served: no client sees SERVFAIL or a part of the cluster.
func TestServerReloadChanges(t *testing.T) {
	t.Parallel()
	api := start(t)
	w := writer(t, api)
	w.shop()
	w.pod("shop", "web-0", "10.2.0.1")
	option := kubeconfig(t, api)
	d := serve(t, corefileOf(option))
	d.await(shopNames()...)
	load := d.startLoad(shopNames()...)
	web := lookupA("web.shop.svc.cluster.local", "")
	for i, ttl := range []uint32{30, 60, 5} {
		d.reload(corefileOf(option, fmt.Sprintf("ttl %d", ttl)))
		reply := must(exchangeUDP(web.message(), d.at))(t)
		if len(reply.Answer) != 1 || reply.Answer[0].Header().Ttl != ttl {
			t.Errorf("after the reload: got\n%s\nwant TTL %d", reply, ttl)
		}
		if n := d.count("relists", "services"); n != i+2 {
			t.Errorf("%d lists of Services, want %d", n, i+2)
		}
	}
	d.reload(corefileOf(option, "pods verified"))
	d.check(lookupA("10-2-0-1.shop.pod.cluster.local", "NOERROR 10.2.0.1"))
	d.reload(corefileOf(option))
	d.check(lookupA("10-2-0-1.shop.pod.cluster.local", "NXDOMAIN"))
	add(t, w.CoreV1().Services("shop"), service("late", "10.0.6.1"))
	d.awaitChange("a Service after the reloads", lookupA("late.shop.svc.cluster.local", "NOERROR 10.0.6.1"))
	if d.age("pods") >= 0 || d.age("services") < 0 {
		t.Errorf("age of the data: got pods %v, services %v; want none for pods, which are not watched", d.age("pods"), d.age("services"))
	}
	load.stop()
}

// A reload that fails after the new data were requested changes nothing.
func TestServerReloadFails(t *testing.T) {
	t.Parallel()
	api := start(t)
	w := writer(t, api)
	w.shop()
	option := kubeconfig(t, api)
	d := serve(t, corefileOf(option))
	d.await(shopNames()...)
	load := d.startLoad(shopNames()...)
	taken := must(net.Listen("tcp4", "127.0.0.1:0"))(t)
	defer taken.Close()
	for _, wrong := range []string{
		corefileOf(option, "ttl never"),
		corefileOf(option, "ttl 30") + "other.test {\n ready " + taken.Addr().String() + "\n whoami\n}\n",
	} {
		failed := d.logs("Reload failed")
		d.startReload(wrong)
		chaintest.Eventually(t, "a failed reload", func() bool { return d.logs("Reload failed") == failed+1 })
		d.check(lookupA("other.test", "SERVFAIL"))
	}
	if old := d.age("services"); old < 0 || old > 60 {
		t.Errorf("age of the data: got %v, want 0 to 60 seconds", old)
	}
	add(t, w.CoreV1().Services("shop"), service("late", "10.0.6.1"))
	d.awaitChange("a Service after the reloads", lookupA("late.shop.svc.cluster.local", "NOERROR 10.0.6.1"))
	load.stop()
}

// With the API server away, a reload with other options for the cluster fails,
// and the old data are served.
func TestServerReloadWithoutAPI(t *testing.T) {
	t.Parallel()
	api := start(t)
	w := writer(t, api)
	w.shop()
	option := kubeconfig(t, api)
	d := serve(t, corefileOf(option))
	d.await(shopNames()...)
	load := d.startLoad(shopNames()...)
	api.StopAPI()
	d.awaitFailures("services", 2)
	d.startReload(corefileOf(option, "ttl 30", "startup_timeout 100ms"))
	chaintest.Eventually(t, "a failed reload", func() bool {
		return d.logs("no list of namespaces, services, endpointslices within 100ms (startup_timeout)") == 1
	})
	d.check(shopNames()...)
	if err := api.StartAPI(t.Context()); err != nil {
		t.Fatal(err)
	}
	add(t, w.CoreV1().Services("shop"), service("late", "10.0.6.1"))
	d.awaitChange("a Service after the outage", lookupA("late.shop.svc.cluster.local", "NOERROR 10.0.6.1"))
	load.stop()
}

// The directive's options select the objects that make names, reverse names
// included.
func TestServerSelects(t *testing.T) {
	t.Parallel()
	api := start(t)
	w := writer(t, api)
	for i, ns := range []string{"red", "green", "blue"} {
		add(t, w.CoreV1().Namespaces(), namespace(ns, ns))
		services, slices := w.CoreV1().Services(ns), w.DiscoveryV1().EndpointSlices(ns)
		front := service("front", fmt.Sprintf("10.0.%d.1", i))
		front.Labels = map[string]string{"tier": "front"}
		add(t, services, front)
		add(t, services, service("back", fmt.Sprintf("10.0.%d.2", i)))
		pool := service("pool")
		pool.Labels = map[string]string{"tier": "front"}
		add(t, services, pool)
		members := slice("pool-1", "pool", fmt.Sprintf("10.1.%d.1", i))
		members.Labels["tier"] = "front"
		add(t, slices, members)
	}
	// names returns queries for the names of a namespace. there is true if they
	// exist.
	names := func(i int, ns string, there bool) []lookup {
		zone := ns + ".svc.cluster.local"
		all := []lookup{
			lookupA("front."+zone, fmt.Sprintf("NOERROR 10.0.%d.1", i)),
			lookupA("pool."+zone, fmt.Sprintf("NOERROR 10.1.%d.1", i)),
			lookupPTR(fmt.Sprintf("1.%d.0.10.in-addr.arpa", i), "NOERROR front."+zone+"."),
			lookupPTR(fmt.Sprintf("1.%d.1.10.in-addr.arpa", i), fmt.Sprintf("NOERROR 10-1-%d-1.pool.%s.", i, zone)),
			lookupA(zone, "NOERROR"),
		}
		for j := range all {
			if !there {
				all[j].want = "NXDOMAIN"
			}
		}
		return all
	}
	back := lookupA("back.red.svc.cluster.local", "NOERROR 10.0.0.2")
	config := kubeconfig(t, api)

	t.Run("namespaces", func(t *testing.T) {
		d := serve(t, corefileOf(config, "namespaces red blue"))
		d.await(names(0, "red", true)...)
		d.check(append(append(names(1, "green", false), names(2, "blue", true)...), back)...)
	})
	t.Run("namespace_labels", func(t *testing.T) {
		d := serve(t, corefileOf(config, "namespace_labels red"))
		d.await(names(0, "red", true)...)
		d.check(append(append(names(1, "green", false), names(2, "blue", false)...), back)...)
		mark := func(label bool) {
			edit(t, w.CoreV1().Namespaces(), "green", func(n *corev1.Namespace) {
				delete(n.Labels, "red")
				if label {
					n.Labels["red"] = "yes"
				}
			})
		}
		load := d.startLoad(names(0, "red", true)...)
		for range 3 {
			mark(true)
			d.awaitChange("a label", names(1, "green", true)[0])
			d.check(names(1, "green", true)...)
			mark(false)
			d.awaitChange("no label", names(1, "green", false)[0])
			d.check(names(1, "green", false)...)
		}
		load.stop()
	})
	t.Run("labels", func(t *testing.T) {
		d := serve(t, corefileOf(config, "labels tier=front"))
		d.await(names(0, "red", true)...)
		d.check(append(names(1, "green", true), lookupA("back.red.svc.cluster.local", "NXDOMAIN"), lookupPTR("2.0.0.10.in-addr.arpa", "NXDOMAIN"))...)
		edit(t, w.CoreV1().Services("red"), "back", func(s *corev1.Service) { s.Labels = map[string]string{"tier": "front"} })
		d.awaitChange("a label", back)
		edit(t, w.CoreV1().Services("red"), "back", func(s *corev1.Service) { s.Labels = nil })
		d.awaitChange("no label", lookupA("back.red.svc.cluster.local", "NXDOMAIN"))
	})
	t.Run("address in two namespaces", func(t *testing.T) {
		add(t, w.DiscoveryV1().EndpointSlices("green"), slice("pool-2", "pool", "10.1.0.1"))
		q := lookupPTR("1.0.1.10.in-addr.arpa", "NOERROR 10-1-0-1.pool.green.svc.cluster.local. 10-1-0-1.pool.red.svc.cluster.local.")
		all := serve(t, corefileOf(config))
		all.await(q)
		red := serve(t, corefileOf(config, "namespace_labels red"))
		q.want = "NOERROR 10-1-0-1.pool.red.svc.cluster.local."
		red.await(q)
	})
}

// The server uses TLS with the directive's files.
func TestServerEndpointTLS(t *testing.T) {
	t.Parallel()
	api := start(t)
	writer(t, api).shop()
	cert, key := certificate(t, api)
	d := serve(t, corefileOf("endpoint "+api.URL(), strings.Join([]string{"tls", cert, key, api.CAFile()}, " ")))
	d.await(shopNames()...)
}
