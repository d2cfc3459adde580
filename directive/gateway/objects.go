package gateway

import (
	"cmp"
	"iter"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/directive/internal/objects"
)

// A state has the objects of a cluster.
type state map[cluster.Kind]map[cluster.Key]cluster.Object

// put adds or replaces an object.
func (s state) put(kind cluster.Kind, o cluster.Object) {
	if s[kind] == nil {
		s[kind] = map[cluster.Key]cluster.Object{}
	}
	s[kind][o.Key()] = o
}

// get returns an object of a kind that has type T, or nil.
func get[T cluster.Object](s state, kind cluster.Kind, key cluster.Key) T {
	o, _ := s[kind][key].(T)
	return o
}

// each yields the objects of a kind that has type T.
func each[T cluster.Object](s state, kind cluster.Kind) iter.Seq[T] {
	return func(yield func(T) bool) {
		for _, o := range s[kind] {
			if o, ok := o.(T); ok && !yield(o) {
				return
			}
		}
	}
}

// A unit is an object that names hosts: a Gateway or a ListenerSet by its listeners, a Route or an Ingress.
type unit struct {
	objects.ID
	created int64
	claims  []claim
}

// A claim is a host of a unit, and where its traffic goes.
type claim struct {
	host
	label bool // a wildcard for one label alone, as that of an Ingress
	to    *target
}

// older orders units by their age, and those of one second by namespace, name and kind.
func older(a, b *unit) int {
	return cmp.Or(cmp.Compare(a.created, b.created), a.Key.Compare(b.Key), cmp.Compare(a.Kind, b.Kind))
}
