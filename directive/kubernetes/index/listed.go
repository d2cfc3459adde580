package index

import (
	"iter"
	"maps"

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

	if !ix.HasSynced(kind) {
		ix.generations.Begin("") // names that depend on the kind were not answered
		defer ix.generations.End("")
	}
	ix.listedKinds.Or(1 << kind)
	if before := ix.syncedKinds.Or(1 << kind); before != allKinds && ix.Synced() {
		close(ix.synced)
	}
	for _, u := range ix.undos {
		u.woken.Send() // the index may be ready
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

// keys yields the keys of the objects of a kind. Objects may be deleted meanwhile.
func (ix *Index) keys(kind cluster.Kind) iter.Seq[cluster.Key] {
	switch kind {
	case cluster.Namespaces:
		return func(yield func(cluster.Key) bool) {
			for _, ns := range ix.namespaces.All() {
				if ns.Exposed() && !yield(cluster.Key{Name: ns.Name}) {
					return
				}
			}
		}

	case cluster.Services, cluster.Imports:
		return func(yield func(cluster.Key) bool) {
			for _, e := range ix.table(kind == cluster.Imports).All() {
				if e.Known() && !yield(e.Key.ObjectKey()) {
					return
				}
			}
		}

	case cluster.Slices, cluster.ImportSlices:
		return func(yield func(cluster.Key) bool) {
			for _, e := range ix.table(kind == cluster.ImportSlices).All() {
				for _, p := range e.Slices() {
					if !yield(cluster.Key{Namespace: e.Key.Namespace.Name, Name: p.Name()}) {
						return
					}
				}
			}
		}

	case cluster.Pods:
		return maps.Keys(ix.podObjects)
	}
	return func(func(cluster.Key) bool) {} // the index has no other objects
}
