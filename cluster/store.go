package cluster

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

// A store is where the reflector puts what it hears. It holds nothing: objects
// are slimmed as they are decoded and go on to the sink, those of lists too,
// which the reflector does not see.
type store struct {
	source  *Source
	kinds   []Kind // what the objects become: one kind, or for EndpointSlices two
	out     outlet
	fine    func()    // the watch has delivered something
	listing *listing  // that comes in, or is about to end; nil if none is
	listed  bool      // there was a list
	plain   bool      // the next one is no watch's
	one     [1]Object // of an event, on its way to the sink
}

var _ cache.ReflectorBookmarkStore = (*store)(nil)

func (s *store) Add(obj any) error { return s.Update(obj) }

// Update puts the object into the kind it belongs to, and takes it from where
// it may have been before it changed.
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

// Replace is the end of a list. What was in it has been received before, and
// the reflector's own list of it is empty.
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

// none delivers an empty list in place of one that cannot be had, unless there
// has been one: what was known goes on being served.
func (s *store) none() {
	if !s.listed {
		s.begin()
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

// records is a list, or a page of one, in the form that the reflector wants. Its
// objects are given away as they are decoded.
type records struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []runtime.Object // none
	take  func(*arrived)
}

func (l *records) DeepCopyObject() runtime.Object { c := *l; return &c }
