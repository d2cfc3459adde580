package kubernetes

import "github.com/seamark/seamark/cluster"

// Listed implements [cluster.Sink]. It deletes the objects of a kind that are not in the
// list. After the first list of a kind, names that depend on it are answered.
func (ix *Index) Listed(kind cluster.Kind, has func(cluster.Key) bool) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	switch kind {
	case cluster.Namespaces:
		for _, ns := range ix.namespaces.All() {
			if ns.exposed.Load() && !has(cluster.Key{Name: ns.name}) {
				ix.setExposed(ns, false)
				ix.removeIfEmpty(ns)
			}
		}
	case cluster.Services, cluster.Imports:
		for _, e := range ix.table(kind == cluster.Imports).All() {
			if e.known() && !has(e.key.objectKey()) {
				c := ix.existingChange(kind == cluster.Imports, []byte(e.key.labels))
				c.service, c.replaced = nil, true
			}
		}
	case cluster.Slices, cluster.ImportSlices:
		for _, e := range ix.table(kind == cluster.ImportSlices).All() {
			ix.listedSlices(kind, e, has)
		}
	case cluster.Pods:
		for key := range ix.podObjects {
			if !has(key) {
				ix.deletePod(key)
			}
		}
	}
	ix.flush(kind)
	ix.applyReverse() // deferred while the list arrived
	if before := ix.listedKinds.Or(1 << kind); before != allKinds && ix.Synced() {
		close(ix.synced)
	}
}

func (ix *Index) listedSlices(kind cluster.Kind, e *entry, has func(cluster.Key) bool) {
	parts := e.slices()
	for i := range parts {
		key := cluster.Key{Namespace: e.key.namespace.name, Name: parts[i].name()}
		if !has(key) {
			c := ix.existingChange(kind == cluster.ImportSlices, []byte(e.key.labels))
			c.slices = append(c.slices, sliceChange{name: key.Name})
			delete(ix.sliceOwners[kind], key)
		}
	}
}
