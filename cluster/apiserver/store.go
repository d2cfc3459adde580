package apiserver

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/cluster/api"
)

// A store passes the reflector's events on to the sink and holds no objects. The
// objects of lists reach the sink without the reflector.
type store struct {
	source  *source
	kinds   []cluster.Kind // of the objects: one, or two for EndpointSlices
	out     outlet
	fine    func()            // called when the watch has delivered something
	listing *listing          // the list being received; nil if none is
	listed  bool              // a list has been received
	plain   bool              // the next list is not part of a watch
	one     [1]cluster.Object // the argument of Put, for an event
}

var _ cache.ReflectorBookmarkStore = (*store)(nil)

func (s *store) Add(obj any) error { return s.Update(obj) }

// Update puts the object, and deletes it from its former kind if a change of labels
// has changed its kind.
func (s *store) Update(obj any) error {
	a := obj.(*arrived)
	for _, kind := range s.kinds {
		if a.Slim != nil && s.kindOf(a.Slim) == kind {
			s.one[0] = a.Slim
			s.out.Put(kind, s.one[:]...)
			s.one[0] = nil
			s.programmed(a)
		} else {
			s.out.Delete(kind, a.Key())
		}
	}
	s.event()
	return nil
}

// programmed reports the time since the change that caused the slice's, if the slice
// has the annotation.
func (s *store) programmed(a *arrived) {
	slice, ok := a.Slim.(*cluster.Slice)
	if !ok || slice.Cluster != "" || s.source.timed == nil || a.Changed.IsZero() {
		return
	}
	s.source.timed.Programmed(cluster.Key{Namespace: slice.Namespace, Name: slice.Service}, time.Since(a.Changed))
}

func (s *store) Delete(obj any) error {
	for _, kind := range s.kinds {
		s.out.Delete(kind, obj.(*arrived).Key())
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
		s.source.Relists[kind].Add(1)
		s.out.received(kind)
	}
	if !s.plain {
		s.fine()
	}
	s.source.Sweeper.Listed(l.count)
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
		s.out.received(kind)
	}
	s.fine()
	return nil
}

// Resync does nothing: every object was delivered at once.
func (s *store) Resync() error { return nil }

func (s *store) event() {
	for _, kind := range s.kinds {
		s.out.received(kind)
	}
	s.source.Events[s.kinds[0]].Add(1)
	s.fine()
}

func (s *store) kindOf(object cluster.Object) cluster.Kind {
	if slice, ok := object.(*cluster.Slice); ok && slice.Cluster != "" {
		return cluster.ImportSlices
	}
	return s.kinds[0]
}

// records is a list, or a page of one, for the reflector. Its objects are passed to
// take as they are decoded.
type records struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []runtime.Object // none
	take  func(*api.Decoded)
}

func (l *records) DeepCopyObject() runtime.Object { c := *l; return &c }
