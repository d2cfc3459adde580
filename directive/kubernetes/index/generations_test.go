package index

import (
	"net/netip"
	"sync/atomic"
	"testing"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/sys/generation"
	"github.com/seamark/seamark/test/clustertest"
)

// Each change counts for its keys, and for no other: the labels of the Service, unless only endpoints of a
// ClusterIP change, its EndpointsKey, the label of the namespace, the key of the pod's address, and all
// keys when a kind is listed for the first time. What changes no answer does not count.
func TestChangesCounted(t *testing.T) {
	ix := New(Settings{TTL: 5}, cluster.Options{Pods: true, Multicluster: true}.Kinds(), discardLog())
	g := generation.New(make([]atomic.Uint64, generation.MaxCells))
	ix.CountChanges(g)
	pod := string(PodKey(nil, "\x04shop", netip.MustParseAddr("10.0.0.1")))
	keys := map[string]string{
		"everything": "", "api": "\x03api\x04shop", "db": "\x02db\x04shop", "shop": "\x04shop", "pod": pod,
		"below api": string(EndpointsKey(nil, "\x03api\x04shop")), "below db": string(EndpointsKey(nil, "\x02db\x04shop")),
	}

	counted := func(what string, change func(), want ...string) {
		t.Helper()
		before, wanted := map[string]generation.Stamp{}, map[string]bool{}
		for name, key := range keys {
			before[name], _ = g.Read([]byte(key), nil)
		}
		for _, name := range want {
			wanted[name] = true
		}
		change()
		for name, s := range before {
			if got := !g.Current(s); got != (wanted[name] || wanted["everything"]) {
				t.Errorf("%s: counted for %s: got %t, want %t", what, name, got, !got)
			}
		}
	}
	put := func(kind cluster.Kind, o cluster.Object) func() { return func() { ix.Put(kind, o) } }

	counted("a Namespace", put(cluster.Namespaces, namespaceObject("shop")), "shop")
	counted("a ClusterIP", put(cluster.Services, clusterIP("shop", "api", "", "10.96.0.1")), "api", "below api")
	counted("the same again", put(cluster.Services, clusterIP("shop", "api", "", "10.96.0.1")))
	counted("another address", put(cluster.Services, clusterIP("shop", "api", "", "10.96.0.2")), "api", "below api")
	counted("an EndpointSlice of it", put(cluster.Slices, slice("shop", "api-x", "api", "", "10.0.0.1")), "below api")
	counted("another endpoint", put(cluster.Slices, slice("shop", "api-x", "api", "", "10.0.0.9")), "below api")
	counted("another port", put(cluster.Services, clusterIP("shop", "api", "http 80/tcp", "10.96.0.2")), "api", "below api")
	counted("a headless Service", put(cluster.Services, headless("shop", "api")), "api", "below api")
	counted("its endpoints", put(cluster.Slices, slice("shop", "api-x", "api", "", "10.0.0.8")), "api", "below api")
	counted("a ClusterIP again", put(cluster.Services, clusterIP("shop", "api", "", "10.96.0.2")), "api", "below api")
	counted("an EndpointSlice", put(cluster.Slices, slice("shop", "db-x", "db", "", "10.0.0.1")), "db", "below db")
	counted("a ServiceImport", put(cluster.Imports, headless("shop", "db")), "db", "below db")
	counted("a slice of it", put(cluster.ImportSlices, slice("shop", "db-y", "db", "", "10.0.0.2")), "db", "below db")
	counted("a Pod", put(cluster.Pods, clustertest.Pod("shop", "p", false, "10.0.0.1")), "pod")
	counted("a hidden Namespace", func() { ix.Delete(cluster.Namespaces, cluster.Key{Name: "shop"}) }, "shop")
	counted("a deleted Service", func() {
		ix.Delete(cluster.Services, cluster.Key{Namespace: "shop", Name: "api"})
	}, "api", "below api")
	counted("a deleted Pod", func() { ix.Delete(cluster.Pods, cluster.Key{Namespace: "shop", Name: "p"}) }, "pod")
	list := func() { ix.Listed(cluster.Services, func(cluster.Key) bool { return true }) }
	counted("the first list", list, "everything")
	counted("the second list", list)
}
