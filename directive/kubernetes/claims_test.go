package kubernetes

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/directive/kubernetes/index"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/sys/follow"
	"github.com/seamark/seamark/test/clustertest"
)

// syncedIndex returns an index that has received empty lists.
func syncedIndex() *index.Index {
	ix := defaultOptions().newIndex()
	for _, kind := range defaultOptions().kinds() {
		relist(ix, kind, nil)
	}
	return ix
}

// A conflict is logged once and counted by the metric.
func TestClaimConflictsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ix := syncedIndex()
		ix.Put(cluster.Namespaces, namespaceObject("shop"), namespaceObject("evil"))
		ix.Put(cluster.Services, headless("shop", "web"), headless("evil", "s"))
		ix.Put(cluster.Slices, clustertest.WithTargets(slice("shop", "web-1", "web", "", "10.1.0.1")))
		var log bytes.Buffer
		var reg metrics.Registry
		r := watchedCluster{Index: ix}
		r.Task = follow.Go(func(ctx context.Context) {
			r.watchClaims(ctx, slog.New(slog.NewTextHandler(&log, nil)), &reg, "cluster.local.")
		})
		synctest.Wait()
		metric := func(want int) {
			t.Helper()
			var text strings.Builder
			if err := reg.WriteText(&text); err != nil {
				t.Fatal(err)
			}
			if line := fmt.Sprintf("seamark_kubernetes_ptr_conflicts{zones=\"cluster.local.\"} %d\n", want); !strings.Contains(text.String(), line) {
				t.Errorf("got\n%s\nwant %s", &text, line)
			}
		}
		metric(0)
		ix.Put(cluster.Slices, slice("evil", "s-1", "s", "", "10.1.0.1", "8.8.8.8"))
		time.Sleep(2 * claimInterval)
		synctest.Wait()
		metric(1)
		time.Sleep(2 * claimWarnings)
		r.Stop()
		want := "namespace=evil service=s other_namespace=shop other_service=web count=1"
		if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, want) {
			t.Errorf("log: got\n%s\nwant one line with %s", got, want)
		}
	})
}
