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
	"github.com/seamark/seamark/metrics"
)

// withTargets returns sl with the flag Target set in each endpoint.
func withTargets(sl *cluster.Slice) *cluster.Slice {
	var packed []byte
	for ep := range sl.Endpoints.All() {
		ep.Target = true
		packed = cluster.AppendEndpoint(packed, ep)
	}
	out := *sl
	out.Endpoints = cluster.Endpoints(packed)
	return &out
}

// syncedIndex returns an index that has received empty lists.
func syncedIndex() *Index {
	ix := defaultOptions().newIndex()
	for _, kind := range defaultOptions().kinds() {
		relist(ix, kind, nil)
	}
	return ix
}

// Conflicts are counted by address. Endpoints that a targetRef identifies share addresses
// without a conflict, as Pods in their node's network do.
func TestClaimConflicts(t *testing.T) {
	ix := syncedIndex()
	for _, ns := range []string{"a", "b", "c"} {
		ix.Put(cluster.Namespaces, namespaceObject(ns))
		ix.Put(cluster.Services, headless(ns, "s"), headless(ns, "t"))
	}
	check := func(what string, want int) {
		t.Helper()
		if got, first := ix.conflicts(); got != want || (first.other == nil) != (want == 0) {
			t.Errorf("%s: got %d conflicts, first %+v, want %d", what, got, first, want)
		}
	}
	ix.Put(cluster.Slices, withTargets(slice("a", "s-1", "s", "", "10.1.0.1", "10.1.0.2", "fd00::1")))
	ix.Put(cluster.Slices, withTargets(slice("b", "s-1", "s", "", "10.1.0.1")))
	check("identified endpoints of two namespaces", 0)
	ix.Put(cluster.Slices, slice("a", "t-1", "t", "", "10.1.0.2", "10.9.0.1"))
	check("a claim of the same namespace", 0)
	ix.Put(cluster.Slices, slice("c", "s-1", "s", "", "10.1.0.1", "10.1.0.2", "8.8.8.8", "fd00::1"))
	check("a claim of another namespace", 3)
	ix.Put(cluster.Slices, slice("c", "t-1", "t", "", "10.1.0.1", "10.9.0.1"))
	check("two claims of an address", 4)
	ix.Delete(cluster.Slices, cluster.Key{Namespace: "c", Name: "s-1"})
	check("a claim is deleted", 2)
	ix.Put(cluster.Slices, withTargets(slice("c", "t-1", "t", "", "10.1.0.1", "10.9.0.1")))
	check("a targetRef identifies the endpoints", 1)
	ix.Delete(cluster.Namespaces, cluster.Key{Name: "a"})
	check("a namespace is hidden", 0)
}

// A rejected claim costs little, however many Services of one namespace make it.
func TestPTRVerifiedManyClaims(t *testing.T) {
	ix := syncedIndex()
	ix.Put(cluster.Namespaces, namespaceObject("evil"), namespaceObject("shop"))
	ix.Put(cluster.Services, headless("shop", "web"))
	ix.Put(cluster.Slices, slice("shop", "web-1", "web", "", "10.1.0.1"))
	for i := range 2000 {
		name := fmt.Sprint("s", i)
		ix.Put(cluster.Services, headless("evil", name))
		ix.Put(cluster.Slices, slice("evil", name+"-1", name, "", "10.1.0.1"))
	}
	if n, first := ix.conflicts(); n != 1 || first.claim.namespace == first.other.namespace {
		t.Errorf("got %d conflicts, first %+v, want 1 of two namespaces", n, first)
	}
	steps := 0
	prefix, _ := reverseOf(t, "1.0.1.10.in-addr.arpa.")
	for c := ix.claims.within(prefix); c.advance(); c.skipNamespace(&ix.claims) {
		steps++
	}
	if steps != 2 {
		t.Errorf("2,001 claims of two namespaces: got %d steps, want 2", steps)
	}
}

// A conflict is logged once and counted by the metric.
func TestClaimConflictsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ix := syncedIndex()
		ix.Put(cluster.Namespaces, namespaceObject("shop"), namespaceObject("evil"))
		ix.Put(cluster.Services, headless("shop", "web"), headless("evil", "s"))
		ix.Put(cluster.Slices, withTargets(slice("shop", "web-1", "web", "", "10.1.0.1")))
		var log bytes.Buffer
		var reg metrics.Registry
		ctx, cancel := context.WithCancel(t.Context())
		r := watchedCluster{Index: ix}
		r.tasks.Go(func() { r.watchClaims(ctx, slog.New(slog.NewTextHandler(&log, nil)), &reg, "cluster.local.") })
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
		cancel()
		r.tasks.Wait()
		want := "namespace=evil service=s other_namespace=shop other_service=web count=1"
		if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, want) {
			t.Errorf("log: got\n%s\nwant one line with %s", got, want)
		}
	})
}
