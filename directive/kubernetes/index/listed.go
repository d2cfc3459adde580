package index

import (
	"iter"

	"github.com/seamark/seamark/cluster"
)

// Listed implements [cluster.Sink]. It deletes the objects of a kind that are not in the
// list. After the first list of a kind, names that depend on it are answered.
func (ix *Index) Listed(kind cluster.Kind, has func(cluster.Key) bool) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	for key := range ix.keys(kind) {
		if !has(key) {
			ix.delete(kind, key)
		}
	}
	ix.flush(kind)
	ix.applyReverse() // deferred while the list arrived
	ix.listedKinds.Or(1 << kind)
	if before := ix.syncedKinds.Or(1 << kind); before != allKinds && ix.Synced() {
		close(ix.synced)
	}
	for _, u := range ix.undos {
		u.wake() // the index may be ready
	}
}

// Missing implements [cluster.Comparer]. The objects of a namespace count with it: without its
// namespace a Service has no name.
func (ix *Index) Missing(kind cluster.Kind, has func(cluster.Key) bool) (missing, objects int) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	for key := range ix.keys(kind) {
		n := 1
		if kind == cluster.Namespaces {
			n += ix.namespaces.Get([]byte(Label(key.Name))).objects
		}
		if objects += n; !has(key) {
			missing += n
		}
	}
	return missing, objects
}

// keys returns the keys of the objects of a kind. Objects may be deleted meanwhile.
func (ix *Index) keys(kind cluster.Kind) iter.Seq[cluster.Key] {
	imported := kind == cluster.Imports || kind == cluster.ImportSlices
	return func(yield func(cluster.Key) bool) {
		switch kind {
		case cluster.Namespaces:
			for _, ns := range ix.namespaces.All() {
				if ns.exposed.Load() && !yield(cluster.Key{Name: ns.Name}) {
					return
				}
			}
		case cluster.Services, cluster.Imports:
			for _, e := range ix.table(imported).All() {
				if e.Known() && !yield(e.Key.ObjectKey()) {
					return
				}
			}
		case cluster.Slices, cluster.ImportSlices:
			for _, e := range ix.table(imported).All() {
				for _, p := range e.Slices() {
					if !yield(cluster.Key{Namespace: e.Key.Namespace.Name, Name: p.Name()}) {
						return
					}
				}
			}
		case cluster.Pods:
			for key := range ix.podObjects {
				if !yield(key) {
					return
				}
			}
		}
	}
}
