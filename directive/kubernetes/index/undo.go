package index

import (
	"iter"
	"maps"
	"slices"

	"github.com/seamark/seamark/sys/follow"
)

// An Undo is an undo log: it has the previous values of entries that have changed in the
// index since a moment, so that the state of that moment can be read. It is guarded by
// Index.mu.
type Undo struct {
	index   *Index
	entries [2]map[string]*Entry // by ServiceKey.Labels; Services, then imports
	exposed map[string]bool      // by the label of the namespace
	pods    map[string]bool      // by PodKey: whether the namespace had a pod with the address
	woken   follow.Signal        // of changes; nil without a receiver
}

// AddUndo returns an undo that records changes from now on, until RemoveUndo.
func (ix *Index) AddUndo(woken follow.Signal) *Undo {
	u := &Undo{index: ix, woken: woken}
	u.Reset()
	ix.undos = append(ix.undos, u)
	return u
}

// Reset makes u record changes from now on.
func (u *Undo) Reset() {
	u.entries = [2]map[string]*Entry{{}, {}}
	u.exposed, u.pods = map[string]bool{}, map[string]bool{}
}

// Empty reports whether nothing has changed.
func (u *Undo) Empty() bool {
	return len(u.entries[0])+len(u.entries[1])+len(u.exposed)+len(u.pods) == 0
}

// addEntry records the entry before a change.
func (u *Undo) addEntry(c *serviceChange) {
	setOnce(u.entries[tableIndex(c.imported)], c.key.Labels, c.old)
}

// addNamespace records whether a namespace was exposed before a change.
func (u *Undo) addNamespace(ns *Namespace, exposed bool) { setOnce(u.exposed, Label(ns.Name), exposed) }

// addPod records whether a namespace had a pod with an address before a change.
func (u *Undo) addPod(key []byte, had bool) { setOnce(u.pods, string(key), had) }

func setOnce[K comparable, V any](m map[K]V, key K, v V) {
	if _, known := m[key]; !known {
		m[key] = v
	}
}

// RemoveUndo ends the recording of changes in u.
func (ix *Index) RemoveUndo(u *Undo) {
	ix.undos = slices.DeleteFunc(ix.undos, func(o *Undo) bool { return o == u })
}

// isExposed reports whether the namespace with a label was exposed.
func (u *Undo) isExposed(label string) bool {
	if exposed, changed := u.exposed[label]; changed {
		return exposed
	}
	return u.index.IsExposed(label)
}

// IsExposed reports whether the namespace with a label is exposed.
func (ix *Index) IsExposed(label string) bool {
	return ix.namespaces.Get([]byte(label)).Exposed()
}

// Visible returns the entry that a view had of a Service, if clients saw it. now is the present
// entry of the index.
func (u *Undo) Visible(v View, labels string, now *Entry) *Entry {
	if e, changed := u.entries[tableIndex(v == ImportView)][labels]; changed {
		now = e
	}
	if now = v.of(now); now == nil || !now.exists || !u.isExposed(now.Key.NamespaceLabel()) {
		return nil
	}
	return now
}

// HadPod reports whether the namespace had a pod with the address of a PodKey.
func (u *Undo) HadPod(key []byte) bool {
	if had, changed := u.pods[string(key)]; changed {
		return had
	}
	return u.index.HasPod(key)
}

// An EntryChange is a visible entry before and after changes; nil is none.
type EntryChange struct{ Old, Now *Entry }

// EntryChanges returns the entries of a view that differ from the present ones.
func (u *Undo) EntryChanges(v View) []EntryChange {
	imported := v == ImportView
	table, labels := u.index.table(imported), maps.Clone(u.entries[tableIndex(imported)])
	if toggled := u.toggled(); len(toggled) > 0 {
		for key, e := range table.All() {
			if toggled[e.Key.NamespaceLabel()] {
				setOnce(labels, key, e)
			}
		}
	}

	var changes []EntryChange
	for key, e := range labels {
		c := EntryChange{u.Visible(v, key, e), v.Visible(table.Get([]byte(key)))}
		if c.Old != c.Now {
			changes = append(changes, c)
		}
	}
	return changes
}

// toggled returns the labels of the namespaces that were exposed and are not, or the other
// way round.
func (u *Undo) toggled() map[string]bool {
	toggled := map[string]bool{}
	for label, exposed := range u.exposed {
		if u.index.IsExposed(label) != exposed {
			toggled[label] = true
		}
	}
	return toggled
}

// PodChanges returns the PodKeys of the pods that clients saw and do not see, or the other way
// round, and whether they saw them.
func (u *Undo) PodChanges() iter.Seq2[string, bool] {
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
			had := u.isExposed(ns) && u.HadPod([]byte(key))
			has := u.index.IsExposed(ns) && u.index.HasPod([]byte(key))
			if had != has && !yield(key, had) {
				return
			}
		}
	}
}

// ChangedPods returns the PodKeys of the pods that were added or removed.
func (u *Undo) ChangedPods() iter.Seq[string] { return maps.Keys(u.pods) }

// Sides returns the entries before and after the changes.
func (c *EntryChange) Sides() [2]*Entry { return [2]*Entry{c.Old, c.Now} }
