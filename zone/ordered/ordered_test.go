package ordered

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// words is a leaf of strings, each its own key.
type words struct{ list []string }

func (w *words) Size() (items, bytes int) {
	for _, s := range w.list {
		bytes += len(s)
	}
	return len(w.list), bytes
}

func (w *words) AppendFirst(buf []byte) []byte { return append(buf, w.list[0]...) }

func (w *words) Join(next *words) *words { return &words{slices.Concat(w.list, next.list)} }

type change struct {
	word   string
	remove bool
}

func merge(w *words, changes []change) (leaves []*words, changed bool) {
	var list []string
	if w != nil {
		list = slices.Clone(w.list)
	}
	for _, c := range changes {
		i, found := slices.BinarySearch(list, c.word)
		switch {
		case found && c.remove:
			list, changed = slices.Delete(list, i, i+1), true
		case !found && !c.remove:
			list, changed = slices.Insert(list, i, c.word), true
		}
	}
	size := LeafItems(len(list))
	for part := range slices.Chunk(list, max(1, size)) {
		leaves = append(leaves, &words{part})
	}
	return leaves, changed
}

type index struct{ Index[words, *words] }

func (x *index) apply(changes ...change) bool {
	return Apply(&x.Index, changes, func(buf []byte, c *change) []byte { return append(buf, c.word...) }, merge)
}

// from returns the words that are not before low.
func (x *index) from(low string) (list []string) {
	for c := x.Seek([]byte(low)); c.Leaf != nil; c.Next() {
		for _, w := range c.Leaf.list {
			if w >= low {
				list = append(list, w)
			}
		}
	}
	return list
}

// checkLeaves reports leaves that are too large, misplaced or, as a rule, too small.
func (x *index) checkLeaves() error {
	l := x.list.Load()
	if l == nil {
		return nil
	}
	small := 0
	for i := range l.leaves {
		list := l.leaves[i].Load().list
		switch {
		case len(list) == 0 || len(list) > MaxItems:
			return fmt.Errorf("leaf %d has %d items, want 1 to %d", i, len(list), MaxItems)
		case !slices.IsSorted(list):
			return fmt.Errorf("leaf %d is not in order", i)
		case i > 0 && list[0] < l.first(i) || i+1 < len(l.leaves) && list[len(list)-1] >= l.first(i+1):
			return fmt.Errorf("leaf %d holds items of its neighbour", i)
		}
		if len(list) < MaxItems/4 {
			small++
		}
	}
	if n := len(l.leaves); small > 1+n*2/3 {
		return fmt.Errorf("%d of %d leaves have few items", small, n)
	}
	return nil
}

func TestIndexEqualsSortedSlice(t *testing.T) {
	for seed := range uint64(9) {
		r := rand.New(rand.NewPCG(seed, 7))
		span := []int{20, 300, 2000}[seed%3]
		word := func() string { return fmt.Sprintf("%04d", r.IntN(span)) }
		var x index
		model := map[string]bool{}
		for step := range 200 {
			batch := map[string]bool{}
			for range []int{1, 1, 1, 3, 50, 500}[r.IntN(6)] {
				batch[word()] = r.IntN(2) == 0
			}
			var changes []change
			differs := false
			for w, remove := range batch {
				changes = append(changes, change{w, remove})
				differs = differs || model[w] == remove
				if remove {
					delete(model, w)
				} else {
					model[w] = true
				}
			}
			slices.SortFunc(changes, func(a, b change) int { return compare(a.word, b.word) })
			before := x.Leaves()
			var held [][]string
			for _, leaf := range before {
				held = append(held, slices.Clone(leaf.list))
			}
			if got := x.apply(changes...); got != differs {
				t.Fatalf("seed %d, step %d: Apply: got changed %v, want %v", seed, step, got, differs)
			}
			if err := x.checkLeaves(); err != nil {
				t.Fatalf("seed %d, step %d: %v", seed, step, err)
			}
			var want []string
			for w := range model {
				want = append(want, w)
			}
			slices.Sort(want)
			low := word()
			for _, from := range []string{"", low} {
				from0, _ := slices.BinarySearch(want, from)
				if got := x.from(from); !slices.Equal(got, want[from0:]) {
					t.Fatalf("seed %d, step %d, from %q: got %d items, want %d", seed, step, from, len(got), len(want)-from0)
				}
			}
			for i, leaf := range before {
				if !slices.Equal(leaf.list, held[i]) {
					t.Fatalf("seed %d, step %d: a leaf that readers hold has changed", seed, step)
				}
			}
		}
		for w := range model {
			x.apply(change{w, true})
		}
		if n := len(x.Leaves()); n != 0 {
			t.Errorf("seed %d: everything removed: got %d leaves, want 0", seed, n)
		}
	}
}

func compare(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func TestBatchFillsLeaves(t *testing.T) {
	var x index
	var changes []change
	for i := range 100 * MaxItems {
		changes = append(changes, change{word: fmt.Sprintf("%08d", 2*i)})
	}
	x.apply(changes...)
	if got, want := len(x.Leaves()), (100*MaxItems+batchItems-1)/batchItems; got != want {
		t.Errorf("%d items: got %d leaves, want %d", len(changes), got, want)
	}
	list := x.list.Load()
	x.apply(change{fmt.Sprintf("%08d", 400), true})
	x.apply(change{fmt.Sprintf("%08d", 401), false}, change{fmt.Sprintf("%08d", 18001), false})
	if x.list.Load() != list {
		t.Error("a change of few items: got another list, want the same")
	}
	if err := x.checkLeaves(); err != nil {
		t.Error(err)
	}
}

func TestCursorFirst(t *testing.T) {
	var x index
	for i := range 300 {
		x.apply(change{word: fmt.Sprintf("%04d", i)})
	}
	c := x.Seek(nil)
	leaves := x.Leaves()
	for n := range leaves {
		if got, ok := c.First(n); !ok || got != leaves[n].list[0] {
			t.Errorf("First(%d): got %q, %v, want %q", n, got, ok, leaves[n].list[0])
		}
	}
	if _, ok := c.First(len(leaves)); ok {
		t.Errorf("First(%d): got true, want false", len(leaves))
	}
	x.Clear()
	if c := x.Seek(nil); c.Leaf != nil {
		t.Error("Seek after Clear: got a leaf, want none")
	}
}
