package objects

import (
	"iter"
	"slices"
	"time"
	"unsafe"

	"github.com/seamark/seamark/cluster"
)

// Turns has the changes that wait to be applied. Namespaces take turns, so that one whose objects
// are large, or change all the time, delays no other and uses a tenth of a processor at most.
type turns struct {
	waiting map[string]*waiting // by namespace; none is empty
	order   []*waiting          // the next turns
	paid    map[string]time.Time
	awaited int // changes without which the objects are not all read
}

// Waiting has the changes of one namespace.
type waiting struct {
	namespace string
	changes   []*change
	byKey     map[string]*change
	bytes     int // about the memory of the objects
}

// A change is the present state of an object.
type change struct {
	key, namespace string
	object         cluster.Object // nil if it does not exist
	awaited        bool           // see turns.awaited
	outdated       bool           // a newer state, which had no room, is read again
}

// kind returns the kind of the object.
func (c *change) kind() cluster.Kind { return cluster.Kind(c.key[0] - '0') }

const (
	// share is how many times as long as its turn a namespace pays for it.
	share = 10
	// credit is how far ahead of its payment a namespace may be: 5 ms of turns.
	credit = share * 5 * time.Millisecond
	// fewPaid is a number of namespaces that is not worth a sweep.
	fewPaid = 64
	// waitingLimit is the least limit for the memory of the waiting objects of a namespace.
	waitingLimit = 4 << 20
)

// add adds a change, which replaces an earlier one of the object. It reports whether the object
// fits into limit bytes of its namespace, or is the only one there. If not, no change of the object waits.
func (t *turns) add(key, namespace string, o cluster.Object, awaited bool, limit int) bool {
	if t.waiting == nil {
		t.waiting, t.paid = map[string]*waiting{}, map[string]time.Time{}
	}
	w := t.waiting[namespace]
	if w == nil {
		w = &waiting{namespace: namespace, byKey: map[string]*change{}}
		t.waiting[namespace] = w
		t.order = append(t.order, w)
	}
	c := w.byKey[key]
	if c == nil {
		c = &change{key: key, namespace: namespace}
	}
	more, others := sizeOf(o)-sizeOf(c.object), len(w.changes)
	if w.byKey[key] != nil {
		others--
	}
	if more > 0 && others > 0 && w.bytes+more > limit {
		t.drop(w, c)
		return false
	}

	c.object = o
	w.bytes += more
	if w.byKey[key] == nil {
		w.byKey[key] = c
		w.changes = append(w.changes, c)
	}
	if awaited && !c.awaited {
		c.awaited = true
		t.awaited++
	}
	return true
}

// drop removes a change that waits, if it does, beside others of its namespace: it is out of date.
func (t *turns) drop(w *waiting, c *change) {
	if w.byKey[c.key] == nil {
		return
	}
	delete(w.byKey, c.key)
	w.changes = slices.DeleteFunc(w.changes, func(other *change) bool { return other == c })
	w.bytes -= sizeOf(c.object)
	if c.awaited {
		t.awaited--
	}
}

// all returns the changes that wait.
func (t *turns) all() iter.Seq[*change] {
	return func(yield func(*change) bool) {
		for _, w := range t.waiting {
			for _, c := range w.changes {
				if !yield(c) {
					return
				}
			}
		}
	}
}

// sizeOf returns about the memory of an object.
func sizeOf(o cluster.Object) (bytes int) {
	switch o := o.(type) {
	case *cluster.ConfigMap:
		for key, text := range o.Data {
			bytes += len(key) + len(text)
		}
	case *cluster.DNSEndpoint:
		for _, e := range o.Endpoints {
			bytes += int(unsafe.Sizeof(e)) + len(e.Name) + len(e.Set)
			for _, target := range e.Targets {
				bytes += int(unsafe.Sizeof(target)) + len(target)
			}
		}
	}
	return bytes
}

// next removes and returns the change whose turn it is, or returns how long to wait for one. In a
// hurry no namespace waits.
func (t *turns) next(now time.Time, hurry bool) (c *change, wait time.Duration) {
	wait = Idle
	for range len(t.order) {
		w := t.order[0]
		t.order = slices.Delete(t.order, 0, 1)
		if due := t.paid[w.namespace].Add(-credit); due.After(now) && !hurry {
			t.order = append(t.order, w)
			wait = min(wait, due.Sub(now))
			continue
		}

		c, w.changes[0] = w.changes[0], nil // it may be large
		w.changes = w.changes[1:]
		delete(w.byKey, c.key)
		w.bytes -= sizeOf(c.object)
		if c.awaited {
			t.awaited--
		}
		if len(w.changes) > 0 {
			t.order = append(t.order, w)
		} else {
			delete(t.waiting, w.namespace)
		}
		return c, 0
	}
	return nil, wait
}

// took has a namespace pay for a turn.
func (t *turns) took(namespace string, now time.Time, took time.Duration) {
	from := t.paid[namespace]
	if from.Before(now) {
		from = now
	}
	t.paid[namespace] = from.Add(share * took)

	if len(t.paid) > fewPaid+2*len(t.waiting) {
		for one, until := range t.paid {
			if until.Before(now) {
				delete(t.paid, one)
			}
		}
	}
}
