package kubetest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/seamark/seamark/test/chaintest"
)

// A server starts from its snapshot while the API server is away: it is ready and answers
// every name. The first lists correct what has changed since.
func TestServerStartsFromSnapshot(t *testing.T) {
	t.Parallel()
	api := start(t)
	w := writer(t, api)
	w.shop()
	file := filepath.Join(t.TempDir(), "snapshot")
	corefile := corefileOf(kubeconfig(t, api), "pods verified", "snapshot "+file)
	const stale = `seamark_kubernetes_stale{zones="cluster.local. in-addr.arpa. ip6.arpa."}`

	t.Run("first", func(t *testing.T) {
		d := serve(t, corefile)
		d.await(shopNames()...)
		add(t, w.CoreV1().Services("shop"), service("old", "10.0.5.1"))
		add(t, w.DiscoveryV1().EndpointSlices("shop"), slice("old-1", "old", "10.1.5.1"))
		w.pod("shop", "old", "10.2.5.1")
		d.await(lookupA("old.shop.svc.cluster.local", "NOERROR 10.0.5.1"), lookupPTR("1.5.1.10.in-addr.arpa", "NOERROR 10-1-5-1.old.shop.svc.cluster.local."),
			lookupA("10-2-5-1.shop.pod.cluster.local", "NOERROR 10.2.5.1"))
	}) // This stops the server and writes the file.
	if _, err := os.Stat(file); err != nil {
		t.Fatal(err)
	}
	api.StopAPI()

	d := serve(t, corefile)
	d.check(shopNames()...)
	d.check(lookupA("old.shop.svc.cluster.local", "NOERROR 10.0.5.1"), lookupPTR("1.5.1.10.in-addr.arpa", "NOERROR 10-1-5-1.old.shop.svc.cluster.local."),
		lookupA("10-2-5-1.shop.pod.cluster.local", "NOERROR 10.2.5.1"))
	d.checkReady(true)
	if d.metric(stale) != 1 || d.logs("[WARNING]", "Answering from a snapshot until all objects are received", file) != 1 {
		t.Errorf("stale: got %v, want 1 and a warning", d.metric(stale))
	}
	load := d.startLoad(shopNames()...)
	if err := api.StartAPI(t.Context()); err != nil {
		t.Fatal(err)
	}
	remove(t, w.CoreV1().Services("shop"), "old")
	remove(t, w.DiscoveryV1().EndpointSlices("shop"), "old-1")
	remove(t, w.CoreV1().Pods("shop"), "old")
	add(t, w.CoreV1().Services("shop"), service("new", "10.0.5.1"))
	d.await(lookupA("old.shop.svc.cluster.local", "NXDOMAIN"), lookupA("new.shop.svc.cluster.local", "NOERROR 10.0.5.1"),
		lookupPTR("1.5.1.10.in-addr.arpa", "NXDOMAIN"), lookupA("10-2-5-1.shop.pod.cluster.local", "NXDOMAIN"))
	chaintest.Eventually(t, "all lists", func() bool { return d.metric(stale) == 0 })
	d.checkReady(true)
	load.stop()
}
