// Package ordered implements an index whose items are sorted by a key, with one
// writer at a time and any number of readers that take no lock. The directives
// kubernetes and etcd keep reverse names and etcd's keys in it.
//
// The items are in leaves of about a hundred, which never change once readers see
// them: a change replaces the leaves that it touches. The caller defines what a
// leaf is, so that its items can be packed, and how changes are merged into it.
// Which keys belong to which leaf is fixed in a list of the leaves' first keys.
// Another list is made when a leaf becomes too large or too small.
package ordered

import (
	"encoding/binary"
	"sort"
	"strings"
	"sync/atomic"
)

const (
	// MaxItems is how many items a leaf may have: a change of one item copies as
	// many.
	MaxItems = 128
	// MaxBytes is the size from which on a leaf of several items is split.
	MaxBytes = 64 << 10
	// batchItems is how many items a large batch puts into one leaf, so that a few
	// more find room.
	batchItems = 112
)

// A Leaf is consecutive items. It is immutable, and has at least one item.
type Leaf[T any] interface {
	*T
	// Size returns the number of items and their bytes.
	Size() (items, bytes int)
	// AppendFirst appends the key of the first item to buf.
	AppendFirst(buf []byte) []byte
	// Join returns a leaf with the items of the receiver followed by the items of next.
	Join(next *T) *T
}

// An Index is leaves of type T in order. The zero Index is empty and ready.
type Index[T any, L Leaf[T]] struct{ list atomic.Pointer[list[T, L]] }

// A list is the leaves of an index, and the first key of each when the list was
// made. A nil list is empty.
type list[T any, L Leaf[T]] struct {
	firsts  string
	offsets []uint32 // of the first keys in firsts, and the end of the last
	heads   []uint64 // of the first keys, which most comparisons need
	leaves  []atomic.Pointer[T]
}

func (l *list[T, L]) first(i int) string { return l.firsts[l.offsets[i]:l.offsets[i+1]] }

// place returns the number of the leaf that key belongs to. The list must not be
// empty.
func (l *list[T, L]) place(key []byte) int {
	head := headOf(key)
	return sort.Search(len(l.leaves)-1, func(i int) bool {
		next := l.heads[i+1]
		return next > head || next == head && l.first(i+1) > string(key)
	})
}

// headOf returns the first eight bytes of a key as a number.
func headOf[S string | []byte](key S) uint64 {
	var head [8]byte
	copy(head[:], key)
	return binary.BigEndian.Uint64(head[:])
}

// LeafItems returns how many of n items that belong to one leaf the next leaf
// should have.
func LeafItems(n int) int {
	switch {
	case n <= MaxItems:
		return n
	case n <= 2*MaxItems:
		return (n + 1) / 2 // repeated insertions grow this place again
	}
	return batchItems
}

// A Merge returns the leaves that hold a leaf's items after changes, which belong
// to it and are in order. Without a leaf the items are those of the changes. It
// returns no leaf if no item is left, and reports whether anything has changed.
type Merge[T, C any] func(leaf *T, changes []C) (leaves []*T, changed bool)

// Apply makes changes, which are in the order of their keys, and reports whether they
// changed anything. appendKey appends the key of a change to a buffer. Readers see
// all changes of one leaf together, but those of several leaves one after the other.
func Apply[T any, L Leaf[T], C any](
	x *Index[T, L], changes []C, appendKey func([]byte, *C) []byte, merge Merge[T, C],
) bool {
	l := x.list.Load()
	if l == nil {
		l = new(list[T, L])
	}

	var edits []edit[T]
	var key []byte
	rearrange := false
	for len(changes) > 0 {
		e, n := edit[T]{}, len(changes)
		var leaf *T
		if len(l.leaves) > 0 {
			// The changes before the first key of the next leaf belong to this one.
			key = appendKey(key[:0], &changes[0])
			e.at = l.place(key)
			leaf = l.leaves[e.at].Load()
			if e.at+1 < len(l.leaves) {
				limit := l.first(e.at + 1)
				n = sort.Search(n, func(i int) bool {
					key = appendKey(key[:0], &changes[i])
					return string(key) >= limit
				})
			}
		}

		var changed bool
		if e.leaves, changed = merge(leaf, changes[:n]); changed {
			edits = append(edits, e)
			rearrange = rearrange || l.misfits(&e)
		}
		changes = changes[n:]
	}

	switch {
	case len(edits) == 0:
		return false
	case rearrange:
		x.list.Store(l.rearranged(edits))
	default:
		for _, e := range edits {
			l.leaves[e.at].Store(e.leaves[0])
		}
	}
	return true
}

// An edit replaces one leaf of a list.
type edit[T any] struct {
	at     int
	leaves []*T
}

// misfits reports whether the edit needs another list: the leaf is split or
// removed, or small enough to be joined with its neighbour.
func (l *list[T, L]) misfits(e *edit[T]) bool {
	if len(e.leaves) != 1 || len(l.leaves) == 0 {
		return true
	}
	for _, i := range [2]int{e.at - 1, e.at + 1} {
		if i >= 0 && i < len(l.leaves) && joins[T, L](e.leaves[0], l.leaves[i].Load()) {
			return true
		}
	}
	return false
}

// joins reports whether two neighbours are joined. Otherwise deletions would leave
// leaves of few items.
func joins[T any, L Leaf[T]](a, b *T) bool {
	items, bytes := L(a).Size()
	moreItems, moreBytes := L(b).Size()
	return items+moreItems <= MaxItems/2 && bytes+moreBytes <= MaxBytes/2
}

// rearranged returns the list after the edits; nil if no leaf is left. Leaves that
// are far from any edit are not looked at.
func (l *list[T, L]) rearranged(edits []edit[T]) *list[T, L] {
	next := make([]*T, 0, len(l.leaves)+2)
	firsts := make([]string, 0, len(l.leaves)+2)
	size := 0       // of firsts
	edited := false // the last leaf of next was edited, or a leaf after it was removed

	put := func(leaf *T, first string, isNew bool) {
		if last := len(next) - 1; last >= 0 && (edited || isNew) && joins[T, L](next[last], leaf) {
			next[last], edited = L(next[last]).Join(leaf), true
			return
		}
		next, firsts = append(next, leaf), append(firsts, first)
		size += len(first)
		edited = isNew
	}

	var buf []byte
	for i := range max(1, len(l.leaves)) {
		if len(edits) == 0 || edits[0].at != i {
			put(l.leaves[i].Load(), l.first(i), false)
			continue
		}
		for _, leaf := range edits[0].leaves {
			buf = L(leaf).AppendFirst(buf[:0])
			put(leaf, string(buf), true)
		}
		edited = edited || len(edits[0].leaves) == 0
		edits = edits[1:]
	}

	if len(next) == 0 {
		return nil
	}

	made := &list[T, L]{
		offsets: make([]uint32, len(next)+1), heads: make([]uint64, len(next)),
		leaves: make([]atomic.Pointer[T], len(next)),
	}
	var all strings.Builder
	all.Grow(size)
	for i, leaf := range next {
		all.WriteString(firsts[i])
		made.heads[i] = headOf(firsts[i])
		made.offsets[i+1] = uint32(all.Len())
		made.leaves[i].Store(leaf)
	}
	made.firsts = all.String()
	return made
}

// Clear removes all items.
func (x *Index[T, L]) Clear() { x.list.Store(nil) }

// Leaves returns the leaves in order.
func (x *Index[T, L]) Leaves() []*T {
	l := x.list.Load()
	if l == nil {
		return nil
	}
	leaves := make([]*T, len(l.leaves))
	for i := range l.leaves {
		leaves[i] = l.leaves[i].Load()
	}
	return leaves
}

// A Cursor moves over leaves from some key on. It is a value, so that a query
// allocates nothing.
type Cursor[T any, L Leaf[T]] struct {
	Leaf *T // nil after the last leaf
	list *list[T, L]
	at   int
}

// Seek returns a cursor at the leaf that has the first item that is not before
// key, or that ends before that item.
func (x *Index[T, L]) Seek(key []byte) (c Cursor[T, L]) {
	if c.list = x.list.Load(); c.list != nil {
		c.at = c.list.place(key)
		c.Leaf = c.list.leaves[c.at].Load()
	}
	return c
}

// Next moves to the next leaf.
func (c *Cursor[T, L]) Next() {
	if c.at++; c.list == nil || c.at >= len(c.list.leaves) {
		c.Leaf = nil
		return
	}
	c.Leaf = c.list.leaves[c.at].Load()
}

// First returns the first key of the leaf that is n leaves ahead, as it was when
// the list was made; false if there are not as many. It estimates how many items
// have a prefix.
func (c *Cursor[T, L]) First(n int) (key string, ok bool) {
	if c.Leaf == nil || c.at+n >= len(c.list.leaves) {
		return "", false
	}
	return c.list.first(c.at + n), true
}
