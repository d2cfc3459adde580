package traffic

import (
	"cmp"
	"container/heap"
	"unsafe"

	"github.com/seamark/seamark/sys/order"
)

const (
	// topSize is the number of keys that a top keeps. The count of a key is too large by at
	// most the total divided by topSize.
	topSize = 256
	// leastTop is the number that it keeps however little memory there is.
	leastTop = 16
)

// A top finds the keys with the highest counts of a stream, in bounded memory: the
// algorithm SpaceSaving (Metwally, Agrawal and El Abbadi 2005). A key that is not among
// those kept takes the place, and the count, of the one with the lowest count. Two keys
// with the same hash are counted together.
type top struct {
	byHash map[uint64]*counter
	heap   counters // lowest count first
	total  float64
	limit  int // of keys, since there is no memory for more; 0 is topSize
	memory *recordMemory
}

// A counter is a key with its estimated count.
type counter struct {
	hash                    uint64 // of key
	key, namespace, example []byte
	count                   float64
	excess                  float64 // by which count may be too large
	index                   int
	below                   *below // of a key that is the parent of names; else nil
}

// add adds n to the count of key, and returns its counter. namespace and example replace those of the key
// unless they are empty.
func (t *top) add(hash uint64, key, namespace, example []byte, n float64) *counter {
	t.total += n
	c := t.byHash[hash]
	if c == nil {
		if t.mayGrow() {
			c = t.grow()
		} else {
			c = t.heap[0]
			delete(t.byHash, c.hash)
			c.excess = c.count
			if c.below != nil {
				*c.below = below{}
			}
		}

		before := c.size()
		c.hash, c.key, c.namespace = hash, append(c.key[:0], key...), c.namespace[:0]
		c.example = c.example[:0]
		t.count(c, c.size()-before)
		t.byHash[hash] = c
	}

	before := c.size()
	c.count += n
	if len(example) > 0 {
		c.example = append(c.example[:0], example...)
	}
	if len(namespace) > 0 {
		c.namespace = append(c.namespace[:0], namespace...)
	}
	heap.Fix(&t.heap, c.index)
	t.count(c, c.size()-before)
	return c
}

// mayGrow reports whether another key may be kept, for which memory is reserved.
func (t *top) mayGrow() bool {
	n := len(t.heap)
	if n < cap(t.heap) && t.heap[:n+1][n] != nil {
		return true // from before clear
	}
	return n < cmp.Or(t.limit, topSize) && t.memory.grow(counterSize, n < leastTop)
}

// count counts memory that c has got. If there is none left, it drops the key with the lowest count,
// but c, for good: a key in its place would have to begin at 0, and be the next one to be dropped.
// A new c is at the end of the heap, or in the place of the lowest count, and add moves it afterwards.
func (t *top) count(c *counter, bytes int64) {
	if bytes <= 0 || t.memory.grow(bytes, false) {
		return
	}
	t.memory.grow(bytes, true)
	if len(t.heap) <= leastTop {
		return
	}

	lowest := t.heap[0]
	if lowest == c {
		lowest = t.heap[1] // one of the lowest
	}
	delete(t.byHash, lowest.hash)
	i, last := lowest.index, len(t.heap)-1
	t.heap.Swap(i, last)
	t.heap[last] = nil
	if t.heap = t.heap[:last]; i < last {
		heap.Fix(&t.heap, i)
	}
	t.limit = last
	t.memory.shrink(counterSize + lowest.size())
}

// size returns the memory of what c points to.
func (c *counter) size() int64 {
	n := cap(c.key) + cap(c.namespace) + cap(c.example)
	if c.below != nil {
		n += int(unsafe.Sizeof(*c.below))
	}
	return int64(n)
}

// grow returns a counter that it has added to the heap, one from before clear if there is one.
func (t *top) grow() *counter {
	if t.byHash == nil {
		t.byHash = make(map[uint64]*counter, 2*topSize) // with room for deleted keys, so that it is not copied
	}
	if len(t.heap) == cap(t.heap) {
		t.heap = append(t.heap, &counter{})
	} else if t.heap = t.heap[:len(t.heap)+1]; t.heap[len(t.heap)-1] == nil {
		t.heap[len(t.heap)-1] = &counter{}
	}

	c := t.heap[len(t.heap)-1]
	c.index, c.count, c.excess = len(t.heap)-1, 0, 0
	if c.below != nil {
		*c.below = below{}
	}
	return c
}

// clear removes all keys, and keeps the memory.
func (t *top) clear() {
	clear(t.byHash)
	t.heap, t.total, t.limit = t.heap[:0], 0, 0
}

// An Entry is a key of a list of the most frequent ones.
type Entry struct {
	Key     string  `json:"key"`
	Count   float64 `json:"count"`            // estimated
	Excess  float64 `json:"excess,omitempty"` // by which Count may be too large
	Share   float64 `json:"share"`            // of all, from 0 to 1
	Example string  `json:"example,omitempty"`
	// Namespace is that of a client, if its queries show it.
	Namespace string `json:"namespace,omitempty"`
	// Pod, NAMESPACE/NAME, and Owner, KIND/NAME, are those of a client, if the server looks
	// them up.
	Pod   string `json:"pod,omitempty"`
	Owner string `json:"owner,omitempty"`
}

// isKnown reports whether most of the count belongs to the key: random names that are queried once
// have inherited theirs.
func (e *Entry) isKnown() bool { return e.Excess <= e.Count/2 }

// list returns the entries of several tops of a list whose counts are known, the highest first, and
// the sum of all counts.
func list(by int, tops ...*top) (entries []Entry, total float64) {
	all := map[uint64]*Entry{}
	for _, t := range tops {
		total += t.total
		for _, c := range t.heap {
			more := entry(by, c)
			e := all[c.hash]
			if e == nil {
				all[c.hash] = &more
				continue
			}
			e.Count, e.Excess = e.Count+more.Count, e.Excess+more.Excess
			// The first top is the latest one.
			e.Example, e.Namespace = cmp.Or(e.Example, more.Example), cmp.Or(e.Namespace, more.Namespace)
		}
	}

	entries = make([]Entry, 0, len(all))
	for _, e := range all {
		if e.isKnown() {
			e.Share = e.Count / total
			entries = append(entries, *e)
		}
	}
	order.Slice(entries, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Key, b.Key))
	})
	return entries, total
}

// counters is a heap.
type counters []*counter

func (h counters) Len() int           { return len(h) }
func (h counters) Less(i, j int) bool { return h[i].count < h[j].count }
func (h counters) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push implements heap.Interface. The heap is only fixed: see top.grow.
func (*counters) Push(any) {}

// Pop implements heap.Interface. Nothing is removed from a top.
func (*counters) Pop() any { return nil }
