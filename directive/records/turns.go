package records

import (
	"slices"
	"time"

	"github.com/seamark/seamark/cluster"
)

// Turns has the changes that wait to be applied. Namespaces take turns, so that one whose objects
// are large, or change all the time, delays no other and uses a tenth of a processor at most.
type turns struct {
	waiting map[string]*waiting // by namespace; none is empty
	order   []*waiting          // the next turns
	paid    map[string]time.Time
}

// Waiting has the changes of one namespace.
type waiting struct {
	namespace string
	changes   []*change
	byKey     map[string]*change
}

// A change is the present state of an object.
type change struct {
	key, namespace string
	object         cluster.Object // nil if it does not exist
}

const (
	// share is how many times as long as its turn a namespace pays for it.
	share = 10
	// credit is how far ahead of its payment a namespace may be: 5 ms of turns.
	credit = share * 5 * time.Millisecond
	// fewPaid is a number of namespaces that is not worth a sweep.
	fewPaid = 64
)

// add adds a change, which replaces an earlier one of the object.
func (t *turns) add(key, namespace string, o cluster.Object) {
	if t.waiting == nil {
		t.waiting, t.paid = map[string]*waiting{}, map[string]time.Time{}
	}
	w := t.waiting[namespace]
	if w == nil {
		w = &waiting{namespace: namespace, byKey: map[string]*change{}}
		t.waiting[namespace] = w
		t.order = append(t.order, w)
	}
	if c := w.byKey[key]; c != nil {
		c.object = o
		return
	}
	c := &change{key, namespace, o}
	w.byKey[key] = c
	w.changes = append(w.changes, c)
}

func (t *turns) empty() bool { return len(t.order) == 0 }

// next removes and returns the change whose turn it is, or returns how long to wait for one. In a
// hurry no namespace waits.
func (t *turns) next(now time.Time, hurry bool) (c *change, wait time.Duration) {
	wait = idle
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
