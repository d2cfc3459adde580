package kubernetes

import "github.com/seamark/seamark/cluster"

// Listed deletes what there is of a kind but was not in its list. From the first
// one of each kind on readers are told what depends on it.
func (ix *Index) Listed(kind cluster.Kind, has func(cluster.Key) bool) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	switch kind {
	case cluster.Namespaces:
		for _, s := range ix.spaces.All() {
			if s.exposed.Load() && !has(cluster.Key{Name: s.name}) {
				ix.expose(s, false)
				ix.release(s)
			}
		}
	case cluster.Services, cluster.Imports:
		for _, e := range ix.table(kind == cluster.Imports).All() {
			if e.known() && !has(e.home.name()) {
				d := ix.existing(kind == cluster.Imports, []byte(e.home.key))
				d.service, d.changed = nil, true
			}
		}
	case cluster.Slices, cluster.ImportSlices:
		for _, e := range ix.table(kind == cluster.ImportSlices).All() {
			ix.listedSlices(kind, e, has)
		}
	case cluster.Pods:
		for key := range ix.podsBy {
			if !has(key) {
				ix.deletePod(key)
			}
		}
	}
	ix.flush(kind)
	ix.reverse.take(&ix.change) // what has waited for the end
	if before := ix.listed.Or(1 << kind); before != allKinds && ix.Synced() {
		close(ix.whole)
	}
}

func (ix *Index) listedSlices(kind cluster.Kind, e *entry, has func(cluster.Key) bool) {
	parts := e.slices()
	for i := range parts {
		key := cluster.Key{Namespace: e.home.space.name, Name: parts[i].name()}
		if !has(key) {
			d := ix.existing(kind == cluster.ImportSlices, []byte(e.home.key))
			d.fates = append(d.fates, fate{name: key.Name})
			delete(ix.strays[kind], key)
		}
	}
}

// name is the key of the Service's object, as an API server has it: in lower
// case.
func (h *home) name() cluster.Key {
	return cluster.Key{Namespace: h.space.name, Name: h.key[1 : 1+h.key[0]]}
}
