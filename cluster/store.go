package cluster

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
)

// A store is where the reflector puts what it hears. It holds nothing: objects
// are slimmed as they are decoded and go on to the sink. The reflector collects
// the initial list of a watch in a store of its own, but because this one has a
// Transformer, that one holds slim objects too.
type store struct {
	source *Source
	kinds  []Kind // what the objects become: one kind, or for EndpointSlices two
	out    outlet
	fine   func() // the watch has delivered something
	listed bool   // there was a list
	plain  bool   // the next one is no watch's
}

var (
	_ cache.TransformingStore      = (*store)(nil)
	_ cache.ReflectorBookmarkStore = (*store)(nil)
)

// Transformer leaves of what the reflector collects the slim object; nil stands
// for one that is not wanted.
func (s *store) Transformer() cache.TransformFunc {
	n := 0
	return func(obj any) (any, error) {
		if n++; s.listed {
			s.source.sweeper.decoded(n)
		}
		return obj.(*arrived).object, nil
	}
}

func (s *store) Add(obj any) error { return s.Update(obj) }

// Update puts the object into the kind it belongs to, and takes it from where
// it may have been before it changed.
func (s *store) Update(obj any) error {
	a := obj.(*arrived)
	for _, kind := range s.kinds {
		if a.object != nil && s.kindOf(a.object) == kind {
			s.out.Put(kind, a.object)
			s.programmed(a)
		} else {
			s.out.Delete(kind, keyOf(obj))
		}
	}
	s.event()
	return nil
}

// programmed tells how long a slice took from its change to here, if it says
// when that was. What says it is not kept.
func (s *store) programmed(a *arrived) {
	slice, ok := a.object.(*Slice)
	if !ok || slice.Cluster != "" || s.source.timed == nil || a.changed.IsZero() {
		return
	}
	s.source.timed.Programmed(Key{slice.Namespace, slice.Service}, time.Since(a.changed))
}

func (s *store) Delete(obj any) error {
	for _, kind := range s.kinds {
		s.out.Delete(kind, keyOf(obj))
	}
	s.event()
	return nil
}

// Replace takes what Transformer has made of a watch's initial events, or what
// list has made of a list.
func (s *store) Replace(list []any, _ string) error {
	for _, kind := range s.kinds {
		objects := make([]Object, 0, len(list))
		for _, item := range list {
			if r, ok := item.(record); ok {
				item = r.Object
			}
			if object, ok := item.(Object); ok && s.kindOf(object) == kind {
				objects = append(objects, object)
			}
		}
		s.out.Replace(kind, objects)
		s.source.count.relists[kind].Add(1)
		s.out.hear(kind)
	}
	if !s.plain {
		s.fine()
	}
	s.source.sweeper.add(len(list))
	s.listed, s.plain = true, false
	return nil
}

// none delivers an empty list in place of one that cannot be had, unless there
// has been one: what was known goes on being served.
func (s *store) none() {
	if !s.listed {
		s.plain = true
		s.Replace(nil, "")
	}
}

// Bookmark is the API server saying that nothing has changed.
func (s *store) Bookmark(string) error {
	for _, kind := range s.kinds {
		s.out.hear(kind)
	}
	s.fine()
	return nil
}

// Resync has nothing to do: it is for stores that deliver later.
func (s *store) Resync() error { return nil }

func (s *store) event() {
	for _, kind := range s.kinds {
		s.out.hear(kind)
	}
	s.source.count.events[s.kinds[0]].Add(1)
	s.fine()
}

func (s *store) kindOf(object Object) Kind {
	if slice, ok := object.(*Slice); ok && slice.Cluster != "" {
		return ImportSlices
	}
	return s.kinds[0]
}

func keyOf(obj any) Key {
	a := obj.(*arrived)
	return Key{a.namespace, a.name}
}

// records is a list whose items have been slimmed already, in the form that the
// reflector hands from a list to the store.
type records struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []runtime.Object
}

// add adds an object, unless it is not wanted.
func (l *records) add(object Object) {
	if object != nil {
		l.Items = append(l.Items, record{object})
	}
}

func (l *records) DeepCopyObject() runtime.Object { c := *l; return &c }

// A record is an Object that the reflector may carry.
type record struct{ Object }

func (r record) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }
func (r record) DeepCopyObject() runtime.Object   { return r }
