package index

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/seamark/seamark/cluster"
)

// tenServices returns up to ten Services, by number, in the versions vs: headless
// and others, each with a slice that is named after it and one that is not.
// Addresses depend on the version.
func tenServices(vs map[int]int) (lists [cluster.Kinds][]cluster.Object) {
	lists[cluster.Namespaces] = []cluster.Object{namespaceObject("shop")}
	for _, i := range slices.Sorted(maps.Keys(vs)) {
		v, name := vs[i], fmt.Sprintf("s%d", i)
		service := headless("shop", name)
		if i%2 == 0 {
			service = clusterIP("shop", name, "", fmt.Sprintf("10.96.%d.%d", v, i))
		}
		lists[cluster.Services] = append(lists[cluster.Services], service)
		lists[cluster.Slices] = append(lists[cluster.Slices],
			slice("shop", name+"-abcde", name, "", fmt.Sprintf("10.%d.0.%d", v, i)),
			slice("shop", fmt.Sprintf("own%d", i), name, "", fmt.Sprintf("10.%d.1.%d", v, i)))
	}
	return lists
}

// allAtVersion returns the version v for all ten Services.
func allAtVersion(v int) map[int]int {
	vs := map[int]int{}
	for i := range 10 {
		vs[i] = v
	}
	return vs
}

// An equal list changes nothing, half of a list removes nothing, and a whole one removes
// everything else.
func TestListed(t *testing.T) {
	ix := newTestIndex()
	kinds := watchedKinds()
	list := func(vs map[int]int) {
		lists := tenServices(vs)
		for _, kind := range kinds {
			relist(ix, kind, lists[kind])
		}
	}
	entries := func() map[string]*Entry { return maps.Collect(ix.services.All()) }
	// as compares the index with a new one of the same objects.
	as := func(what string, vs map[int]int) {
		t.Helper()
		fresh := newTestIndex()
		lists := tenServices(vs)
		for _, kind := range kinds {
			relist(fresh, kind, lists[kind])
		}
		if got, want := ix.serial.Load(), fresh.serial.Load(); got != want {
			t.Errorf("%s: serial %d, want %d", what, got, want)
		}
		if got, want := len(entries()), len(vs); got != want {
			t.Errorf("%s: %d Services, want %d", what, got, want)
		}
		if got, want := len(ix.sliceOwners[cluster.Slices]), len(vs); got != want {
			t.Errorf("%s: %d slices by themselves, want %d", what, got, want)
		}
		if got, want := append(referenceLines(&ix.reverse), referenceLines(&ix.claims)...), append(referenceLines(&fresh.reverse), referenceLines(&fresh.claims)...); !slices.Equal(got, want) {
			t.Errorf("%s: reverse names\n%v\nwant\n%v", what, got, want)
		}
	}
	list(allAtVersion(1))
	as("the first", allAtVersion(1))

	before := entries()
	list(allAtVersion(1))
	as("an equal one", allAtVersion(1))
	if !maps.Equal(entries(), before) {
		t.Error("after an equal list: got other entries, want the same")
	}

	half := allAtVersion(1)
	for i := range 5 {
		half[i] = 2
	}
	lists := tenServices(half)
	ix.Put(cluster.Services, lists[cluster.Services][:5]...)
	ix.Put(cluster.Slices, lists[cluster.Slices][:10]...)
	as("half of one", half)

	list(allAtVersion(3))
	as("everything changed", allAtVersion(3))

	few := map[int]int{3: 3, 4: 3, 7: 4}
	list(few)
	as("most are gone", few)

	list(nil)
	as("all are gone", nil)
}

// referenceLines returns the references of a reverse index.
func referenceLines(x *ReverseIndex) (refs []string) {
	for _, r := range allRefs(x) {
		refs = append(refs, fmt.Sprintf("%v %s", r.addr, r.service.Labels))
	}
	return refs
}
