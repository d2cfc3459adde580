package index

import (
	"fmt"
	"testing"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/test/clustertest"
)

// Indexes of random clusters that change equal new ones of the same objects, and are empty when
// all objects are deleted.
func TestRandomClustersEqualNewIndex(t *testing.T) {
	for seed := range uint64(30) {
		c := clustertest.NewRandom(seed)
		c.Zone, c.Zonal = "cluster.local.", c.Chance(40)
		c.Kinds = cluster.Options{NoEndpoints: c.Chance(10), Pods: c.Chance(50), Multicluster: c.Chance(60)}.Kinds()
		set := Settings{TTL: clustertest.Pick(c, uint32(0), 5, 3600), IgnoreEmpty: c.Chance(30)}
		if seed%3 > 0 {
			set.TableFrom = 1
		}
		ix := New(set, c.Kinds, discardLog())
		c.Sink = ix
		if err := checkRandom(c, ix); err != nil {
			t.Fatalf("seed %d: %+v\n%s\n%v", seed, set, c, err)
		}
	}
}

func checkRandom(c *clustertest.Random, ix *Index) error {
	for _, i := range c.Perm(len(c.Kinds)) {
		c.Fill(c.Kinds[i], 6)
		c.Set(c.Kinds[i], c.Have[c.Kinds[i]])
	}
	for range 30 {
		c.Change()
		if err := ix.check(); err != nil {
			return err
		}
	}
	fresh := New(ix.settings, c.Kinds, discardLog())
	for _, i := range c.Perm(len(c.Kinds)) {
		relist(fresh, c.Kinds[i], c.Have.List(c.Kinds[i]))
	}
	for _, imported := range []bool{false, true} {
		if got, want := ix.Serial(imported), fresh.Serial(imported); got != want {
			return fmt.Errorf("serial, imported %v: got %d, want %d, that of a new index", imported, got, want)
		}
	}
	for kind := range cluster.Kinds {
		want := 0
		for range ix.keys(kind) {
			want++
		}
		if got := ix.Count(kind); got != int64(want) {
			return fmt.Errorf("%s: got %d objects counted, want %d", kind, got, want)
		}
	}
	c.DeleteAll()
	return checkEmpty(ix)
}

// checkEmpty returns an error if anything is left in an index without objects.
func checkEmpty(ix *Index) error {
	for what, n := range map[string]int{
		"references": len(leavesOf(&ix.reverse)) + len(leavesOf(&ix.claims)), "Services": ix.services.Len(),
		"imports": ix.imports.Len(), "namespaces": ix.namespaces.Len(), "addresses of pods": ix.pods.Len(),
		"owners of slices": len(ix.sliceOwners[cluster.Slices]) + len(ix.sliceOwners[cluster.ImportSlices]),
		"pods":             len(ix.podObjects), "changes": len(ix.changes.ordered),
		"serial": int(ix.Serial(false)), "serial of imports": int(ix.Serial(true)),
	} {
		if n != 0 {
			return fmt.Errorf("%s after all objects are deleted: got %d, want 0", what, n)
		}
	}
	return nil
}
