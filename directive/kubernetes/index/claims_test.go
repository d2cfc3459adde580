package index

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/test/clustertest"
)

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
		if got, first := ix.Conflicts(); got != want || (first.Other == nil) != (want == 0) {
			t.Errorf("%s: got %d conflicts, first %+v, want %d", what, got, first, want)
		}
	}
	ix.Put(cluster.Slices, clustertest.WithTargets(slice("a", "s-1", "s", "", "10.1.0.1", "10.1.0.2", "fd00::1")))
	ix.Put(cluster.Slices, clustertest.WithTargets(slice("b", "s-1", "s", "", "10.1.0.1")))
	check("identified endpoints of two namespaces", 0)
	ix.Put(cluster.Slices, slice("a", "t-1", "t", "", "10.1.0.2", "10.9.0.1"))
	check("a claim of the same namespace", 0)
	ix.Put(cluster.Slices, slice("c", "s-1", "s", "", "10.1.0.1", "10.1.0.2", "8.8.8.8", "fd00::1"))
	check("a claim of another namespace", 3)
	ix.Put(cluster.Slices, slice("c", "t-1", "t", "", "10.1.0.1", "10.9.0.1"))
	check("two claims of an address", 4)
	ix.Delete(cluster.Slices, cluster.Key{Namespace: "c", Name: "s-1"})
	check("a claim is deleted", 2)
	ix.Put(cluster.Slices, clustertest.WithTargets(slice("c", "t-1", "t", "", "10.1.0.1", "10.9.0.1")))
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
	if n, first := ix.Conflicts(); n != 1 || first.Claim.Namespace == first.Other.Namespace {
		t.Errorf("got %d conflicts, first %+v, want 1 of two namespaces", n, first)
	}
	steps := 0
	for c := ix.claims.Within(netip.MustParsePrefix("10.1.0.1/32")); c.Advance(); c.SkipNamespace(&ix.claims) {
		steps++
	}
	if steps != 2 {
		t.Errorf("2,001 claims of two namespaces: got %d steps, want 2", steps)
	}
}
