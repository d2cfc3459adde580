package traffic

import (
	"cmp"
	"container/heap"

	"github.com/seamark/seamark/internal/order"
)

// topSize is the number of keys that a top keeps. The count of a key is too large by at
// most the total divided by topSize.
const topSize = 256

// A top finds the keys with the highest counts of a stream, in bounded memory: the
// algorithm SpaceSaving (Metwally, Agrawal and El Abbadi 2005). A key that is not among
// those kept takes the place, and the count, of the one with the lowest count.
type top struct {
	byKey map[string]*counter
	heap  counters // lowest count first
	total float64
}

// A counter is a key with its estimated count.
type counter struct {
	key       string
	count     float64
	excess    float64 // by which count may be too large
	example   string
	namespace string
	index     int
}

// add adds n to the count of key. namespace replaces that of the key unless it is empty.
func (t *top) add(key, namespace, example string, n float64) {
	t.total += n
	c := t.byKey[key]
	switch {
	case c != nil:
	case len(t.heap) < topSize:
		if t.byKey == nil {
			t.byKey = map[string]*counter{}
		}
		c = &counter{key: key}
		t.byKey[key] = c
		heap.Push(&t.heap, c)
	default:
		c = t.heap[0]
		delete(t.byKey, c.key)
		c.key, c.excess, c.namespace = key, c.count, ""
		t.byKey[key] = c
	}
	c.count += n
	c.example, c.namespace = example, cmp.Or(namespace, c.namespace)
	heap.Fix(&t.heap, c.index)
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

// list returns the n entries with the highest counts of several tops.
func list(n int, tops ...*top) []Entry {
	all, total := map[string]*Entry{}, 0.0
	for _, t := range tops {
		total += t.total
		for _, c := range t.heap {
			e := all[c.key]
			if e == nil {
				e = &Entry{Key: c.key}
				all[c.key] = e
			}
			e.Count, e.Excess = e.Count+c.count, e.Excess+c.excess
			e.Example, e.Namespace = cmp.Or(e.Example, c.example), cmp.Or(e.Namespace, c.namespace) // of the first top
		}
	}
	entries := make([]Entry, 0, len(all))
	for _, e := range all {
		e.Share = e.Count / total
		entries = append(entries, *e)
	}
	order.Slice(entries, func(a, b Entry) int { return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Key, b.Key)) })
	return entries[:min(n, len(entries))]
}

// counters is a heap.
type counters []*counter

func (h counters) Len() int           { return len(h) }
func (h counters) Less(i, j int) bool { return h[i].count < h[j].count }
func (h counters) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push implements heap.Interface.
func (h *counters) Push(c any) {
	c.(*counter).index = len(*h)
	*h = append(*h, c.(*counter))
}

// Pop implements heap.Interface. Nothing is removed from a top.
func (*counters) Pop() any { return nil }
