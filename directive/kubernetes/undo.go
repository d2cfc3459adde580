package kubernetes

import (
	"iter"
	"maps"
	"slices"
)

// An undo is an undo log: it has the previous values of entries that have changed in the
// index since a moment, so that the state of that moment can be read. It is guarded by
// Index.mu.
type undo struct {
	index   *Index
	entries [2]map[string]*entry // by serviceKey.labels; Services, then imports
	exposed map[string]bool      // by the label of the namespace
	pods    map[string]bool      // by podKey: whether the namespace had a pod with the address
	woken   chan struct{}        // receives a value after changes; nil without a receiver
}

// addUndo returns an undo that records changes from now on, until removeUndo.
func (ix *Index) addUndo(woken chan struct{}) *undo {
	u := &undo{index: ix, woken: woken}
	u.reset()
	ix.undos = append(ix.undos, u)
	return u
}

// reset makes u record changes from now on.
func (u *undo) reset() {
	u.entries = [2]map[string]*entry{{}, {}}
	u.exposed, u.pods = map[string]bool{}, map[string]bool{}
}

// empty reports whether nothing has changed.
func (u *undo) empty() bool {
	return len(u.entries[0])+len(u.entries[1])+len(u.exposed)+len(u.pods) == 0
}

// addEntry records the entry before a change.
func (u *undo) addEntry(c *serviceChange) {
	setOnce(u.entries[tableIndex(c.imported)], c.key.labels, c.old)
}

// addNamespace records whether a namespace was exposed before a change.
func (u *undo) addNamespace(ns *namespace, exposed bool) { setOnce(u.exposed, label(ns.name), exposed) }

// addPod records whether a namespace had a pod with an address before a change.
func (u *undo) addPod(key []byte, had bool) { setOnce(u.pods, string(key), had) }

func setOnce[K comparable, V any](m map[K]V, key K, v V) {
	if _, known := m[key]; !known {
		m[key] = v
	}
}

// removeUndo ends the recording of changes in u.
func (ix *Index) removeUndo(u *undo) {
	ix.undos = slices.DeleteFunc(ix.undos, func(o *undo) bool { return o == u })
}

// wake reports a change.
func (u *undo) wake() {
	select {
	case u.woken <- struct{}{}:
	default:
	}
}

// isExposed reports whether the namespace with a label was exposed.
func (u *undo) isExposed(label string) bool {
	if exposed, changed := u.exposed[label]; changed {
		return exposed
	}
	return u.index.isExposed(label)
}

// isExposed reports whether the namespace with a label is exposed.
func (ix *Index) isExposed(label string) bool {
	return ix.namespaces.Get([]byte(label)).Exposed()
}

// visible returns the entry that a Service had, if clients saw it. now is the present
// entry.
func (u *undo) visible(imported bool, labels string, now *entry) *entry {
	if e, changed := u.entries[tableIndex(imported)][labels]; changed {
		now = e
	}
	if now == nil || !now.exists || !u.isExposed(now.key.namespaceLabel()) {
		return nil
	}
	return now
}

// hadPod reports whether the namespace had a pod with the address of a podKey.
func (u *undo) hadPod(key []byte) bool {
	if had, changed := u.pods[string(key)]; changed {
		return had
	}
	return u.index.HasPod(key)
}

// An entryChange is a visible entry before and after changes; nil is none.
type entryChange struct{ old, now *entry }

// entryChanges returns the entries of a table that differ from the present ones.
func (u *undo) entryChanges(imported bool) []entryChange {
	table, labels := u.index.table(imported), maps.Clone(u.entries[tableIndex(imported)])
	if toggled := u.toggled(); len(toggled) > 0 {
		for key, e := range table.All() {
			if toggled[e.key.namespaceLabel()] {
				setOnce(labels, key, e)
			}
		}
	}
	var changes []entryChange
	for key, e := range labels {
		c := entryChange{u.visible(imported, key, e), table.Get([]byte(key))}
		if !c.now.visible() {
			c.now = nil
		}
		if c.old != c.now {
			changes = append(changes, c)
		}
	}
	return changes
}

// toggled returns the labels of the namespaces that were exposed and are not, or the other
// way round.
func (u *undo) toggled() map[string]bool {
	toggled := map[string]bool{}
	for label, exposed := range u.exposed {
		if u.index.isExposed(label) != exposed {
			toggled[label] = true
		}
	}
	return toggled
}

// podChanges returns the podKeys of the pods that clients saw and do not see, or the other way
// round, and whether they saw them.
func (u *undo) podChanges() iter.Seq2[string, bool] {
	return func(yield func(key string, had bool) bool) {
		keys := maps.Clone(u.pods)
		if toggled := u.toggled(); len(toggled) > 0 {
			for key := range u.index.pods.All() {
				if toggled[key[:1+key[0]]] {
					keys[key] = true
				}
			}
		}
		for key := range keys {
			ns := key[:1+key[0]]
			had := u.isExposed(ns) && u.hadPod([]byte(key))
			has := u.index.isExposed(ns) && u.index.HasPod([]byte(key))
			if had != has && !yield(key, had) {
				return
			}
		}
	}
}

// changedPods returns the podKeys of the pods that were added or removed.
func (u *undo) changedPods() iter.Seq[string] { return maps.Keys(u.pods) }

// sides returns the entries before and after the changes.
func (c *entryChange) sides() [2]*entry { return [2]*entry{c.old, c.now} }
