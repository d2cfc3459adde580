package index

import (
	"net/netip"
	"testing"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/test/clustertest"
)

// A client is a pod only if no other pod has the address.
func TestPodAt(t *testing.T) {
	ix := New(Settings{PodsByAddr: true}, []cluster.Kind{cluster.Namespaces, cluster.Services, cluster.Slices, cluster.Pods}, discardLog())
	at := func(ip, want string) {
		t.Helper()
		got := "no pod"
		if p := ix.PodAt(netip.MustParseAddr(ip)); p != nil {
			got = p.Name
		}
		if got != want {
			t.Errorf("%s: %s, want %s", ip, got, want)
		}
	}
	a := clustertest.Pod("shop", "a", false, "10.0.0.1", "fd00::1")
	relist(ix, cluster.Pods, []cluster.Object{a, clustertest.Pod("shop", "node", true, "192.0.2.1")})
	at("10.0.0.1", "a")
	at("fd00::1", "a")
	at("10.0.0.2", "no pod")
	at("192.0.2.1", "no pod")
	ix.Put(cluster.Pods, clustertest.Pod("other", "b", false, "10.0.0.1"))
	at("10.0.0.1", "no pod")
	at("fd00::1", "a")
	ix.Put(cluster.Pods, clustertest.Pod("shop", "a", false, "10.0.0.3")) // The pod has another address now.
	at("10.0.0.1", "b")
	at("10.0.0.3", "a")
	at("fd00::1", "no pod")
	relist(ix, cluster.Pods, []cluster.Object{clustertest.Pod("other", "b", false, "10.0.0.1")})
	at("10.0.0.1", "b")
	at("10.0.0.3", "no pod")
	ix.Delete(cluster.Pods, cluster.Key{Namespace: "other", Name: "b"})
	at("10.0.0.1", "no pod")
	if n := ix.clients.Len(); n != 0 {
		t.Errorf("after the Pods are deleted: got %d addresses, want 0", n)
	}
}

// An index without a directive that identifies clients keeps no pods.
func TestClientsNotKeptByDefault(t *testing.T) {
	ix := New(Settings{}, []cluster.Kind{cluster.Pods}, discardLog())
	relist(ix, cluster.Pods, []cluster.Object{clustertest.Pod("shop", "a", false, "10.0.0.1")})
	if ix.clients.Len() != 0 || ix.pods.Len() != 1 {
		t.Errorf("got %d clients and %d pods, want 0 and 1", ix.clients.Len(), ix.pods.Len())
	}
}
