package kubetest

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/seamark/seamark/test/chaintest"
)

// A step changes one object, or none if do is nil, and has a query whose answer
// shows the change.
type step struct {
	what string
	do   func()
	show lookup
}

// Objects of every kind are created, changed and deleted, and each change is
// answered within a second, under a load of queries for unrelated names.
func TestServerChanges(t *testing.T) {
	t.Parallel()
	api := start(t)
	w := writer(t, api)
	w.shop()
	w.pod("shop", "web-0", "10.2.0.1")
	w.serviceImport("shop", "web", clusterSetIP("10.9.0.1"))
	d := serve(t, ". {\n kubernetes cluster.local clusterset.local in-addr.arpa ip6.arpa {\n"+
		kubeconfig(t, api)+"\n pods verified\n multicluster clusterset.local\n }\n}\n")
	unchanged := append(shopNames(),
		lookupA("10-2-0-1.shop.pod.cluster.local", "NOERROR 10.2.0.1"),
		lookupA("10-2-0-2.shop.pod.cluster.local", "NXDOMAIN"),
		lookupA("web.shop.svc.clusterset.local", "NOERROR 10.9.0.1"),
		lookupA("db.shop.svc.clusterset.local", "NXDOMAIN"),
	)
	d.await(unchanged...)
	d.startLoad(unchanged...)

	var all latencies
	for round := range 3 {
		for _, steps := range [][]step{
			namespaceSteps(w), serviceSteps(w), sliceSteps(w), podSteps(w, round), importSteps(w),
		} {
			for _, s := range steps {
				old := d.ask("udp", s.show)
				if s.do != nil {
					s.do()
				}
				if took := d.awaitChange(s.what, s.show); s.do != nil && old != s.show.want {
					all = append(all, took)
				}
			}
		}
	}
	t.Logf("from a change's acknowledgement to its answer: %s", all)
	if n := d.logs("WARNING") + d.logs("ERROR"); n > 0 {
		t.Errorf("warnings in the log: got %d, want none", n)
	}
}

func namespaceSteps(w clusterWriter) []step {
	namespaces, services := w.CoreV1().Namespaces(), w.CoreV1().Services("late")
	const name = "web.late.svc.cluster.local"
	return []step{
		{"a Service without its Namespace", func() { add(w.T, services, service("web", "10.0.1.1")) }, lookupA(name, "NXDOMAIN")},
		{"a Namespace", func() { add(w.T, namespaces, namespace("late")) }, lookupA(name, "NOERROR 10.0.1.1")},
		{"a Namespace's labels", func() {
			edit(w.T, namespaces, "late", func(n *corev1.Namespace) { n.Labels["some"] = "label" })
		}, lookupA("late.svc.cluster.local", "NOERROR")},
		{"no Namespace", func() { remove(w.T, namespaces, "late") }, lookupA("late.svc.cluster.local", "NXDOMAIN")},
		{"no Namespace, other names", nil, lookupPTR("1.1.0.10.in-addr.arpa", "NXDOMAIN")},
		{"the Namespace again", func() { add(w.T, namespaces, namespace("late")) }, lookupPTR("1.1.0.10.in-addr.arpa", "NOERROR "+name+".")},
		{"no Service", func() { remove(w.T, services, "web") }, lookupA(name, "NXDOMAIN")},
		{"no Namespace again", func() { remove(w.T, namespaces, "late") }, lookupA("late.svc.cluster.local", "NXDOMAIN")},
	}
}

func serviceSteps(w clusterWriter) []step {
	services := w.CoreV1().Services("shop")
	const name = "new.shop.svc.cluster.local"
	change := func(f func(*corev1.ServiceSpec)) func() {
		return func() { edit(w.T, services, "new", func(s *corev1.Service) { f(&s.Spec) }) }
	}
	var steps []step
	for _, kind := range []corev1.ServiceType{corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer} {
		steps = append(steps, []step{
			{"a Service of type " + string(kind), func() {
				s := service("new", "10.0.2.1")
				s.Spec.Type = kind
				add(w.T, services, s)
			}, lookupA(name, "NOERROR 10.0.2.1")},
			{"another ClusterIP", change(func(s *corev1.ServiceSpec) { s.ClusterIP = "10.0.2.2" }), lookupA(name, "NOERROR 10.0.2.2")},
			{"the new ClusterIP's name", nil, lookupPTR("2.2.0.10.in-addr.arpa", "NOERROR "+name+".")},
			{"the old ClusterIP's name", nil, lookupPTR("1.2.0.10.in-addr.arpa", "NXDOMAIN")},
			{"a second family", change(func(s *corev1.ServiceSpec) {
				s.ClusterIPs, s.IPFamilies, s.IPFamilyPolicy = []string{"10.0.2.2", "fd00::2"}, nil, nil
			}), lookupAAAA(name, "NOERROR fd00::2")},
			{"another port", change(func(s *corev1.ServiceSpec) { s.Ports[0].Port = 81 }), lookupSRV(name, "NOERROR 0 100 81 "+name+".")},
			{"no Service of type " + string(kind), func() { remove(w.T, services, "new") }, lookupA(name, "NXDOMAIN")},
		}...)
	}
	return append(steps,
		step{"an ExternalName", func() { add(w.T, services, external("new", "here.example")) }, lookupA(name, "NOERROR here.example.")},
		step{"another target", change(func(s *corev1.ServiceSpec) { s.ExternalName = "there.example" }), lookupA(name, "NOERROR there.example.")},
		step{"no ExternalName", func() { remove(w.T, services, "new") }, lookupA(name, "NXDOMAIN")},
	)
}

func sliceSteps(w clusterWriter) []step {
	services, slices := w.CoreV1().Services("shop"), w.DiscoveryV1().EndpointSlices("shop")
	const name = "new.shop.svc.cluster.local"
	change := func(f func(*discoveryv1.EndpointSlice)) func() {
		return func() { edit(w.T, slices, "new-1", f) }
	}
	return []step{
		{"a headless Service", func() { add(w.T, services, service("new")) }, lookupA(name, "NXDOMAIN")},
		{"a slice", func() { add(w.T, slices, slice("new-1", "new", "10.1.2.1")) }, lookupA(name, "NOERROR 10.1.2.1")},
		{"an endpoint's name", nil, lookupPTR("1.2.1.10.in-addr.arpa", "NOERROR 10-1-2-1."+name+".")},
		{"a second endpoint", change(func(s *discoveryv1.EndpointSlice) {
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{"10.1.2.2"}})
		}), lookupA(name, "NOERROR 10.1.2.1 10.1.2.2")},
		{"a hostname", change(func(s *discoveryv1.EndpointSlice) { s.Endpoints[1].Hostname = new("two") }), lookupA("two."+name, "NOERROR 10.1.2.2")},
		{"another port", change(func(s *discoveryv1.EndpointSlice) { s.Ports[0].Port = new(int32(8081)) }), lookupSRV("_http._tcp.two."+name, "NXDOMAIN")},
		{"the same port", nil, lookupSRV("two."+name, "NOERROR 0 100 8081 two."+name+".")},
		{"one that is not ready", change(func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Conditions.Ready = new(false) }), lookupA(name, "NOERROR 10.1.2.2")},
		{"a second slice", func() { add(w.T, slices, slice("new-2", "new", "fd00:1::1")) }, lookupAAAA(name, "NOERROR fd00:1::1")},
		{"no first slice", func() { remove(w.T, slices, "new-1") }, lookupA(name, "NOERROR")},
		{"no slice", func() { remove(w.T, slices, "new-2") }, lookupA(name, "NXDOMAIN")},
		{"no headless Service", func() { remove(w.T, services, "new") }, lookupSRV(name, "NXDOMAIN")},
	}
}

// podSteps also changes the pod that the load queries, but not its address.
func podSteps(w clusterWriter, round int) []step {
	pods := w.CoreV1().Pods("shop")
	status := func(s corev1.PodStatus) func() {
		return func() { w.podStatus(must(pods.Get(w.Context(), "new", metav1.GetOptions{}))(w.T), s) }
	}
	return []step{
		{"a pod's labels", func() {
			edit(w.T, pods, "web-0", func(p *corev1.Pod) { p.Labels = map[string]string{"round": fmt.Sprint(round)} })
		}, lookupA("10-2-0-1.shop.pod.cluster.local", "NOERROR 10.2.0.1")},
		{"a pod", func() { w.pod("shop", "new", "10.2.1.1") }, lookupA("10-2-1-1.shop.pod.cluster.local", "NOERROR 10.2.1.1")},
		{"another address", status(corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.2.1.2"}), lookupA("10-2-1-2.shop.pod.cluster.local", "NOERROR 10.2.1.2")},
		{"not the old address", nil, lookupA("10-2-1-1.shop.pod.cluster.local", "NXDOMAIN")},
		{"a pod that has ended", status(corev1.PodStatus{Phase: corev1.PodSucceeded, PodIP: "10.2.1.2"}), lookupA("10-2-1-2.shop.pod.cluster.local", "NXDOMAIN")},
		{"a pod that runs again", status(corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.2.1.2"}), lookupA("10-2-1-2.shop.pod.cluster.local", "NOERROR 10.2.1.2")},
		{"no pod", func() { remove(w.T, pods, "new") }, lookupA("10-2-1-2.shop.pod.cluster.local", "NXDOMAIN")},
	}
}

func clusterSetIP(ip string) map[string]any {
	return map[string]any{"type": "ClusterSetIP", "ips": []any{ip}, "ports": []any{map[string]any{"name": "http", "port": int64(80)}}}
}

func importSteps(w clusterWriter) []step {
	imports, slices := w.imports.Namespace("shop"), w.DiscoveryV1().EndpointSlices("shop")
	const name = "new.shop.svc.clusterset.local"
	change := func(spec map[string]any) func() {
		return func() {
			i := must(imports.Get(w.Context(), "new", metav1.GetOptions{}))(w.T)
			if err := unstructured.SetNestedMap(i.Object, spec, "spec"); err != nil {
				w.Fatal(err)
			}
			must(imports.Update(w.Context(), i, metav1.UpdateOptions{}))(w.T)
		}
	}
	return []step{
		{"a ServiceImport", func() { w.serviceImport("shop", "new", clusterSetIP("10.9.1.1")) }, lookupA(name, "NOERROR 10.9.1.1")},
		{"another clusterset IP", change(clusterSetIP("10.9.1.2")), lookupA(name, "NOERROR 10.9.1.2")},
		{"a headless ServiceImport", change(map[string]any{"type": "Headless", "ports": []any{}}), lookupA(name, "NXDOMAIN")},
		{"an imported slice", func() {
			add(w.T, slices, imported(slice("new-east", "", "10.3.0.1"), "new", "east.example"))
		}, lookupA(name, "NOERROR 10.3.0.1")},
		{"its endpoint", nil, lookupA("10-3-0-1.east.example."+name, "NOERROR 10.3.0.1")},
		{"not in the cluster's own zone", nil, lookupA("new.shop.svc.cluster.local", "NXDOMAIN")},
		{"another address", func() {
			edit(w.T, slices, "new-east", func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Addresses[0] = "10.3.0.2" })
		}, lookupA(name, "NOERROR 10.3.0.2")},
		{"no imported slice", func() { remove(w.T, slices, "new-east") }, lookupA(name, "NXDOMAIN")},
		{"no ServiceImport", func() {
			if err := imports.Delete(w.Context(), "new", metav1.DeleteOptions{}); err != nil {
				w.Fatal(err)
			}
		}, lookupSRV(name, "NXDOMAIN")},
	}
}

// Slices may exist before their Service: there is no name until it exists, and
// then all of its names at once.
func TestServerSlicesFirst(t *testing.T) {
	t.Parallel()
	api := start(t)
	w := writer(t, api)
	w.shop()
	d := serve(t, corefileOf(kubeconfig(t, api)))
	d.await(shopNames()...)
	services, slices := w.CoreV1().Services("shop"), w.DiscoveryV1().EndpointSlices("shop")
	const name = "early.shop.svc.cluster.local"

	before := d.count("events", "endpointslices")
	add(t, slices, slice("early-1", "early", "10.1.3.1"))
	add(t, slices, slice("early-2", "early", "10.1.3.2"))
	chaintest.Eventually(t, "the slices", func() bool { return d.count("events", "endpointslices") == before+2 })
	d.check(lookupA(name, "NXDOMAIN"), lookupSRV("_http._tcp."+name, "NXDOMAIN"), lookupPTR("1.3.1.10.in-addr.arpa", "NXDOMAIN"), lookupPTR("3.1.10.in-addr.arpa", "NXDOMAIN"))
	load := d.startLoad(shopNames()...)
	add(t, services, service("early"))
	took := d.awaitChange("the Service", lookupA(name, "NOERROR 10.1.3.1 10.1.3.2"))
	t.Logf("both slices' addresses after %v", took)
	d.await(lookupSRV("_http._tcp."+name, "NOERROR 0 50 8080 10-1-3-1."+name+". 0 50 8080 10-1-3-2."+name+"."),
		lookupPTR("1.3.1.10.in-addr.arpa", "NOERROR 10-1-3-1."+name+"."), lookupPTR("3.1.10.in-addr.arpa", "NOERROR"))

	// The Service is deleted and created with another type; its slices stay.
	for _, again := range []struct {
		service *corev1.Service
		shows   []lookup
	}{
		{service("early", "10.0.3.1"), []lookup{lookupA(name, "NOERROR 10.0.3.1"), lookupPTR("1.3.0.10.in-addr.arpa", "NOERROR "+name+"."), lookupPTR("1.3.1.10.in-addr.arpa", "NOERROR 10-1-3-1."+name+".")}},
		{external("early", "else.example"), []lookup{lookupA(name, "NOERROR else.example."), lookupPTR("1.3.1.10.in-addr.arpa", "NXDOMAIN"), lookupPTR("1.3.0.10.in-addr.arpa", "NXDOMAIN")}},
		{service("early"), []lookup{lookupA(name, "NOERROR 10.1.3.1 10.1.3.2"), lookupPTR("1.3.1.10.in-addr.arpa", "NOERROR 10-1-3-1."+name+".")}},
	} {
		remove(t, services, "early")
		d.awaitChange("no Service", lookupA(name, "NXDOMAIN"))
		d.await(lookupPTR("1.3.1.10.in-addr.arpa", "NXDOMAIN"))
		add(t, services, again.service)
		d.awaitChange("the Service again", again.shows[0])
		d.await(again.shows...)
	}
	load.stop()
}

// A slice is moved to another Service.
func TestServerSliceMoves(t *testing.T) {
	t.Parallel()
	api := start(t)
	w := writer(t, api)
	w.shop()
	services, slices := w.CoreV1().Services("shop"), w.DiscoveryV1().EndpointSlices("shop")
	for _, name := range []string{"one", "two"} {
		add(t, services, service(name))
	}
	add(t, slices, slice("moves", "one", "10.1.4.1"))
	add(t, slices, slice("stays", "two", "10.1.4.2"))
	d := serve(t, corefileOf(kubeconfig(t, api)))
	const one, two = "one.shop.svc.cluster.local", "two.shop.svc.cluster.local"
	d.await(append(shopNames(), lookupA(one, "NOERROR 10.1.4.1"), lookupA(two, "NOERROR 10.1.4.2"))...)
	d.startLoad(append(shopNames(), lookupPTR("2.4.1.10.in-addr.arpa", "NOERROR 10-1-4-2."+two+"."))...)
	began := time.Now()
	for range 5 {
		edit(t, slices, "moves", func(s *discoveryv1.EndpointSlice) { s.Labels[discoveryv1.LabelServiceName] = "two" })
		d.awaitChange("the slice goes", lookupA(one, "NXDOMAIN"))
		d.await(lookupA(two, "NOERROR 10.1.4.1 10.1.4.2"), lookupPTR("1.4.1.10.in-addr.arpa", "NOERROR 10-1-4-1."+two+"."))
		edit(t, slices, "moves", func(s *discoveryv1.EndpointSlice) { s.Labels[discoveryv1.LabelServiceName] = "one" })
		d.awaitChange("the slice comes back", lookupA(one, "NOERROR 10.1.4.1"))
		d.await(lookupA(two, "NOERROR 10.1.4.2"), lookupPTR("1.4.1.10.in-addr.arpa", "NOERROR 10-1-4-1."+one+"."))
	}
	edit(t, slices, "moves", func(s *discoveryv1.EndpointSlice) { delete(s.Labels, discoveryv1.LabelServiceName) })
	d.awaitChange("a slice of no Service", lookupA(one, "NXDOMAIN"))
	d.await(lookupPTR("1.4.1.10.in-addr.arpa", "NXDOMAIN"))
	t.Logf("eleven moves in %v", time.Since(began))
}
