package cluster

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

// A store passes the reflector's events on to the sink and holds no objects. The
// objects of lists reach the sink without the reflector.
type store struct {
	source  *Source
	kinds   []Kind // of the objects: one, or two for EndpointSlices
	out     outlet
	fine    func()    // called when the watch has delivered something
	listing *listing  // the list being received; nil if none is
	listed  bool      // a list has been received
	plain   bool      // the next list is not part of a watch
	one     [1]Object // the argument of Put, for an event
}

var _ cache.ReflectorBookmarkStore = (*store)(nil)

func (s *store) Add(obj any) error { return s.Update(obj) }

// Update puts the object, and deletes it from its former kind if a change of labels
// has changed its kind.
func (s *store) Update(obj any) error {
	a := obj.(*arrived)
	for _, kind := range s.kinds {
		if a.object != nil && s.kindOf(a.object) == kind {
			s.one[0] = a.object
			s.out.Put(kind, s.one[:]...)
			s.one[0] = nil
			s.programmed(a)
		} else {
			s.out.Delete(kind, keyOf(obj))
		}
	}
	s.event()
	return nil
}

// programmed reports the time since the change that caused the slice's, if the slice
// has the annotation.
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

// Replace ends a list. Its objects have been put already, and the reflector's own
// list is empty.
func (s *store) Replace([]any, string) error {
	l := s.listing
	l.flush()
	for i, kind := range s.kinds {
		s.out.listed(kind, l.groups[i].keys)
		s.source.count.relists[kind].Add(1)
		s.out.hear(kind)
	}
	if !s.plain {
		s.fine()
	}
	s.source.sweeper.add(l.count)
	s.listing, s.listed, s.plain = nil, true, false
	return nil
}

// none delivers an empty list of a resource that does not exist, unless a list has
// been received before: its objects are kept.
func (s *store) none() {
	if !s.listed {
		s.begin()
		s.plain = true
		s.Replace(nil, "")
	}
}

// Bookmark records that nothing has changed.
func (s *store) Bookmark(string) error {
	for _, kind := range s.kinds {
		s.out.hear(kind)
	}
	s.fine()
	return nil
}

// Resync does nothing: every object was delivered at once.
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

// records is a list, or a page of one, for the reflector. Its objects are passed to
// take as they are decoded.
type records struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []runtime.Object // none
	take  func(*arrived)
}

func (l *records) DeepCopyObject() runtime.Object { c := *l; return &c }
