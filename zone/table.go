// Package zone holds names in memory for handlers that answer from them. A
// Table maps the labels of a name, as they stand in a question, to an entry;
// it has one writer and any number of readers that take no lock. A Zone is a
// whole authoritative zone, which never changes: it answers questions, and a
// Builder makes it of records. Where those come from is not known here.
package zone

import (
	"hash/maphash"
	"iter"
	"sync/atomic"
)

// A Table maps bytes to entries. Get may be called at any time, from any
// goroutine; everything else by one writer at a time. Entries are immutable: a
// change is a new entry in the old one's place, and a reader sees one or the
// other. The zero Table is empty and ready.
type Table[E any] struct {
	cells atomic.Pointer[cells[E]]
	used  int // cells that hold an entry or held one
	live  int
}

// cells is an open-addressed array, a power of two long and never full. A cell
// is claimed by the first store of its entry and keeps its key for as long as
// the array lives; a reader looks at the key only when it has seen an entry, so
// it sees the key that was written before.
type cells[E any] struct {
	seed maphash.Seed
	gone *E // stands for an entry that was deleted
	cell []cell[E]
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
			if e == cs.gone {
				return nil
			}
			return e
		}
	}
}

// Set puts entry at key, in place of what is there.
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
	case cs.gone:
		t.live++
	}
	c.entry.Store(entry)
}

// Delete takes key's entry out.
func (t *Table[E]) Delete(key string) {
	cs := t.cells.Load()
	if cs == nil {
		return
	}
	c := cs.find(key)
	if e := c.entry.Load(); e != nil && e != cs.gone {
		c.entry.Store(cs.gone)
		t.live--
		if len(cs.cell) > 256 && t.live < len(cs.cell)/8 {
			t.rebuild() // what was once large keeps neither cells nor keys
		}
	}
}

// Len counts the entries. Only the writer may ask.
func (t *Table[E]) Len() int { return t.live }

// All gives the entries in no order. The writer may change entries meanwhile but
// not add any. A reader sees those that are there all the time, and of the others
// some.
func (t *Table[E]) All() iter.Seq2[string, *E] {
	return func(yield func(string, *E) bool) {
		cs := t.cells.Load()
		if cs == nil {
			return
		}
		for i := range cs.cell {
			c := &cs.cell[i]
			if e := c.entry.Load(); e != nil && e != cs.gone && !yield(c.key, e) {
				return
			}
		}
	}
}

// find returns the cell that has the key, or the free one where it belongs.
func (cs *cells[E]) find(key string) *cell[E] {
	mask := uint64(len(cs.cell) - 1)
	for i := maphash.String(cs.seed, key) & mask; ; i = (i + 1) & mask {
		c := &cs.cell[i]
		if c.entry.Load() == nil || c.key == key {
			return c
		}
	}
}

// rebuild copies the entries to an array with room for as many again; what was
// deleted stays behind. Readers go on with the old array until they look again.
func (t *Table[E]) rebuild() *cells[E] {
	size := 16
	for size < t.live*2 {
		size *= 2
	}
	next := &cells[E]{seed: maphash.MakeSeed(), gone: new(E), cell: make([]cell[E], size)}
	for key, e := range t.All() {
		c := next.find(key)
		c.key = key
		c.entry.Store(e)
	}
	t.used = t.live
	t.cells.Store(next)
	return next
}
