package kubetest

import (
	"fmt"
	"math/rand/v2"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seamark/seamark/test/chaintest"
)

// Two replicas with equal data have equal hashes, whatever the order and the number of the
// changes that each has received. One that has missed a change has another hash.
func TestServerRecordsHash(t *testing.T) {
	t.Parallel()
	api := start(t)
	w := writer(t, api)
	w.shop()
	proxy := must(NewProxy(api))(t)
	t.Cleanup(proxy.Close)
	const zones = `{zones="cluster.local. in-addr.arpa. ip6.arpa."}`
	hash := func(d *daemon) float64 { return d.metric("seamark_kubernetes_records_hash" + zones) }
	replicas := []*daemon{serve(t, corefileOf(kubeconfig(t, api), "pods verified")), serve(t, corefileOf("endpoint "+proxy.URL(), "pods verified"))}
	equal := func(what string) {
		t.Helper()
		for _, d := range replicas {
			d.await(shopNames()...)
		}
		chaintest.Eventually(t, "equal hashes "+what, func() bool { return hash(replicas[0]) == hash(replicas[1]) && hash(replicas[0]) > 0 })
	}
	equal("at the start")

	random := rand.New(rand.NewPCG(1, 2))
	services, slices := w.CoreV1().Services("shop"), w.DiscoveryV1().EndpointSlices("shop")
	exists := map[string]bool{}
	for i := range 200 {
		name := fmt.Sprintf("s%d", random.IntN(10))
		switch {
		case !exists[name]:
			add(t, services, service(name, fmt.Sprintf("10.0.7.%d", i)))
			add(t, slices, slice(name+"-1", name, fmt.Sprintf("10.1.7.%d", i)))
			w.pod("shop", name, fmt.Sprintf("10.2.7.%d", i))
			exists[name] = true
		case random.IntN(2) == 0:
			s := must(slices.Get(t.Context(), name+"-1", metav1.GetOptions{}))(t)
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.1.8.%d", i)}})
			must(slices.Update(t.Context(), s, metav1.UpdateOptions{}))(t)
		default:
			remove(t, services, name)
			remove(t, slices, name+"-1")
			remove(t, w.CoreV1().Pods("shop"), name)
			exists[name] = false
		}
		if i == 100 {
			proxy.Cut() // one replica resumes its watches
		}
	}
	add(t, services, service("last", "10.0.6.1"))
	for _, d := range replicas {
		d.await(lookupA("last.shop.svc.cluster.local", "NOERROR 10.0.6.1"))
	}
	equal("after changes")

	proxy.Set(Faults{Lose: "last-1"})
	add(t, slices, slice("last-1", "last", "10.1.6.1"))
	add(t, services, service("later", "10.0.6.2"))
	add(t, slices, slice("later-1", "later", "10.1.6.2"))
	for _, d := range replicas {
		d.await(lookupA("later.shop.svc.cluster.local", "NOERROR 10.0.6.2"), lookupPTR("2.6.1.10.in-addr.arpa", "NOERROR 10-1-6-2.later.shop.svc.cluster.local."))
	}
	replicas[0].check(lookupPTR("1.6.1.10.in-addr.arpa", "NOERROR 10-1-6-1.last.shop.svc.cluster.local."))
	if a, b := hash(replicas[0]), hash(replicas[1]); a == b {
		t.Errorf("hashes after a change that one replica has missed: both %v, want different ones", a)
	}
	proxy.Set(Faults{})
	remove(t, slices, "last-1")
	remove(t, services, "later")
	for _, d := range replicas {
		d.await(lookupA("later.shop.svc.cluster.local", "NXDOMAIN"))
	}
	equal("after the missed object's deletion")
}
