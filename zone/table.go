// Package zone holds DNS data in memory for the directives that answer from it.
// It has two independent parts.
//
// A Table maps the labels of a name to an entry. It has one writer and any
// number of readers, which take no lock. Directives whose data changes record by
// record, such as kubernetes, use it.
//
// A Zone is an immutable authoritative zone. A Builder makes it from records, or from
// another version and what differs, and Zone.Lookup answers a query from it: exact names,
// wildcards, delegations, CNAME and DNAME records, and NSEC proofs. The directive file
// replaces a Zone as a whole when its file changes; secondary applies the differences of
// IXFR.
package zone

import (
	"hash/maphash"
	"iter"
	"sync/atomic"
)

// A Table maps keys to entries. Get is safe for concurrent use; the other
// methods are for a single writer. Entries are immutable: the writer replaces an
// entry as a whole, and a reader sees the old entry or the new one. The zero
// Table is empty and ready for use.
type Table[E any] struct {
	cells atomic.Pointer[cells[E]]
	used  int // cells with a key, including the cells of deleted entries
	live  int // cells with an entry
}

// cells is an open-addressed hash table. Its length is a power of two, and it is
// never full. The writer sets a cell's key before it stores the first entry, and
// never changes the key; a reader loads the entry before it reads the key.
type cells[E any] struct {
	seed    maphash.Seed
	deleted *E // marks a deleted entry
	cell    []cell[E]
}

type cell[E any] struct {
	key   string
	entry atomic.Pointer[E]
}

// Get returns the entry of key, or nil.
func (t *Table[E]) Get(key []byte) *E {
	cs := t.cells.Load()
	if cs == nil {
		return nil
	}
	mask := uint64(len(cs.cell) - 1)
	for i := maphash.Bytes(cs.seed, key) & mask; ; i = (i + 1) & mask {
		c := &cs.cell[i]
		e := c.entry.Load()
		if e == nil {
			return nil
		}
		if c.key == string(key) {
			if e == cs.deleted {
				return nil
			}
			return e
		}
	}
}

// Set sets the entry of key.
func (t *Table[E]) Set(key string, entry *E) {
	cs := t.cells.Load()
	if cs == nil || (t.used+1)*4 > len(cs.cell)*3 {
		cs = t.rebuild()
	}

	c := cs.find(key)
	switch c.entry.Load() {
	case nil:
		c.key = key
		t.used++
		t.live++
	case cs.deleted:
		t.live++
	}
	c.entry.Store(entry)
}

// Delete removes the entry of key.
func (t *Table[E]) Delete(key string) {
	cs := t.cells.Load()
	if cs == nil {
		return
	}
	c := cs.find(key)
	if e := c.entry.Load(); e != nil && e != cs.deleted {
		c.entry.Store(cs.deleted)
		t.live--
		if len(cs.cell) > 256 && t.live < len(cs.cell)/8 {
			t.rebuild() // release the cells and keys of a table that was large
		}
	}
}

// Len returns the number of entries. Only the writer may call it.
func (t *Table[E]) Len() int { return t.live }

// All iterates over the entries in no particular order. During the iteration the
// writer may replace and delete entries, but not add any. A reader's iteration
// includes every entry that exists throughout, and possibly entries that are
// added or deleted meanwhile.
func (t *Table[E]) All() iter.Seq2[string, *E] {
	return func(yield func(string, *E) bool) {
		cs := t.cells.Load()
		if cs == nil {
			return
		}
		for i := range cs.cell {
			c := &cs.cell[i]
			if e := c.entry.Load(); e != nil && e != cs.deleted && !yield(c.key, e) {
				return
			}
		}
	}
}

// find returns the cell of key, or the free cell where it belongs.
func (cs *cells[E]) find(key string) *cell[E] {
	mask := uint64(len(cs.cell) - 1)
	for i := maphash.String(cs.seed, key) & mask; ; i = (i + 1) & mask {
		c := &cs.cell[i]
		if c.entry.Load() == nil || c.key == key {
			return c
		}
	}
}

// rebuild copies the entries to a new array with room for as many again, without
// the deleted ones. Readers may still use the old array.
func (t *Table[E]) rebuild() *cells[E] {
	size := 16
	for size < t.live*2 {
		size *= 2
	}

	next := &cells[E]{seed: maphash.MakeSeed(), deleted: new(E), cell: make([]cell[E], size)}
	for key, e := range t.All() {
		c := next.find(key)
		c.key = key
		c.entry.Store(e)
	}

	t.used = t.live
	t.cells.Store(next)
	return next
}
