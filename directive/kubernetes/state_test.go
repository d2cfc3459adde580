package kubernetes

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/directive/kubernetes/index"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/sys/follow"
	"github.com/seamark/seamark/test/chaintest"
)

// The metrics tell which kinds have been received, and how many objects there are, until
// the watch ends.
func TestExportState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kinds := []cluster.Kind{cluster.Namespaces, cluster.Services, cluster.Slices, cluster.Pods}
		w := watchedCluster{Index: index.New(index.Settings{}, kinds, chaintest.QuietLog())}
		var reg metrics.Registry
		w.Task = follow.Go(func(ctx context.Context) { w.exportState(ctx, &reg, "z.", kinds) })
		synctest.Wait()
		check := func(want ...string) {
			t.Helper()
			var text strings.Builder
			if err := reg.WriteText(&text); err != nil {
				t.Fatal(err)
			}
			for _, line := range want {
				if !strings.Contains(text.String(), line+"\n") {
					t.Errorf("got\n%s\nwant %s", &text, line)
				}
			}
		}
		check(`seamark_kubernetes_synced{zones="z.",resource="services"} 0`, `seamark_kubernetes_objects{zones="z.",resource="services"} 0`)
		w.Put(cluster.Namespaces, namespaceObject("shop"))
		w.Put(cluster.Services, headless("shop", "web"), headless("shop", "api"), headless("hidden", "api"))
		w.Listed(cluster.Services, func(cluster.Key) bool { return true })
		w.Put(cluster.Slices, slice("shop", "web-1", "web", "", "10.1.0.1"), slice("shop", "web-2", "web", "", "10.1.0.2", "10.1.0.3"))
		check(`seamark_kubernetes_synced{zones="z.",resource="namespaces"} 0`, `seamark_kubernetes_synced{zones="z.",resource="services"} 1`,
			`seamark_kubernetes_objects{zones="z.",resource="namespaces"} 1`, `seamark_kubernetes_objects{zones="z.",resource="services"} 3`,
			`seamark_kubernetes_objects{zones="z.",resource="endpointslices"} 2`, `seamark_kubernetes_objects{zones="z.",resource="pods"} 0`)
		w.Put(cluster.Services, headless("shop", "web")) // as before
		w.Delete(cluster.Services, cluster.Key{Namespace: "shop", Name: "api"})
		w.Delete(cluster.Slices, cluster.Key{Namespace: "shop", Name: "web-2"})
		w.Delete(cluster.Namespaces, cluster.Key{Name: "shop"})
		w.Put(cluster.Pods, &cluster.Pod{Namespace: "shop", Name: "web-1"})
		check(`seamark_kubernetes_objects{zones="z.",resource="namespaces"} 0`, `seamark_kubernetes_objects{zones="z.",resource="services"} 2`,
			`seamark_kubernetes_objects{zones="z.",resource="endpointslices"} 1`, `seamark_kubernetes_objects{zones="z.",resource="pods"} 1`)
		w.Stop()
		var text strings.Builder
		if err := reg.WriteText(&text); err != nil || text.Len() != 0 {
			t.Errorf("after the end: got\n%s, error %v, want no series", &text, err)
		}
	})
}

// After a reload with other zones and the same objects the metrics have the zones of the new plan, and no others.
func TestMetricsOfReloadedZones(t *testing.T) {
	dir, reg, s := t.TempDir(), new(metrics.Registry), (*chaintest.Block)(nil)
	for _, zones := range []string{"one.test.", "two.test.", "one.test. two.test.", "one.test. two.test."} {
		b, err := plan(".:53 {\nkubernetes " + zones + " {\nmanifests " + dir + "\n}\n}\n")
		if err != nil {
			t.Fatal(err)
		}
		b.Metrics = reg
		s = chaintest.Run(t, b, s)

		// Those of the plan before end with it, and the new ones begin in goroutines.
		chaintest.Within(t, time.Minute, func() string {
			all := map[string]bool{}
			for series := range reg.Values(func(string) bool { return true }) {
				name, labels, _ := strings.Cut(series, "{")
				if value, ok := strings.CutPrefix(labels, `zones="`); ok {
					value, _, _ = strings.Cut(value, `"`)
					all[name] = all[name] || value == zones
					if value != zones {
						return fmt.Sprintf("with the zones %s: got %s", zones, series)
					}
				}
			}
			for _, name := range []string{"synced", "objects", "stale", "records_hash", "ptr_conflicts"} {
				if !all["seamark_kubernetes_"+name] {
					return fmt.Sprintf("with the zones %s: got no seamark_kubernetes_%s of them", zones, name)
				}
			}
			return ""
		})
	}
}
