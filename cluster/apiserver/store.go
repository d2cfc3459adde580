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
	source      *source
	kinds       []cluster.Kind // of the objects: one, or two for EndpointSlices
	sink        feedSink
	versions    versions
	delivered   func()            // called when the watch has delivered an event or a bookmark
	bookmarked  func()            // called for each bookmark
	list        *incomingList     // the list being received; nil if none is
	listed      bool              // a list has been received
	suspected   time.Time         // when the first of consecutive lists lacked most objects; zero if the last list did not
	confirmWait time.Duration     // from then until a list may delete them
	relist      func()            // has the feed list again
	listRequest bool              // the list is the response to a list request, not the beginning of a watch
	single      [1]cluster.Object // the argument of Put, for an event
}

var _ cache.ReflectorBookmarkStore = (*store)(nil)

func (s *store) Add(obj any) error { return s.Update(obj) }

// Update puts the object, and deletes it from its former kind if a change of labels
// has changed its kind.
func (s *store) Update(obj any) error {
	a := obj.(*decodedObject)
	defer s.versions.set(a.Key(), a.Version, false)
	for _, kind := range s.kinds {
		if a.Slim != nil && s.kindOf(a.Slim) == kind {
			s.single[0] = a.Slim
			s.sink.Put(kind, s.single[:]...)
			s.single[0] = nil
			s.programmed(a)
		} else {
			s.sink.Delete(kind, a.Key())
		}
	}
	s.eventReceived()
	return nil
}

// programmed passes on the time since the change of an endpoint that caused this
// change of the slice, if the slice has the annotation with that time.
func (s *store) programmed(a *decodedObject) {
	slice, ok := a.Slim.(*cluster.Slice)
	if !ok || slice.Cluster != "" || s.source.timed == nil || a.Changed.IsZero() {
		return
	}
	s.source.timed.Programmed(cluster.Key{Namespace: slice.Namespace, Name: slice.Service}, time.Since(a.Changed))
}

func (s *store) Delete(obj any) error {
	a := obj.(*decodedObject)
	for _, kind := range s.kinds {
		s.sink.Delete(kind, a.Key())
	}
	s.versions.set(a.Key(), a.Version, true)
	s.eventReceived()
	return nil
}

// Replace ends a list. Its objects have been put already, and the reflector's own
// list is empty.
func (s *store) Replace(_ []any, version string) error {
	list := s.list
	list.flush()
	unconfirmed := s.needsConfirmation(list)
	for i, kind := range s.kinds {
		if !unconfirmed {
			s.sink.listed(kind, list.byKind[i].keys)
		}
		s.source.Relists[kind].Add(1)
		s.sink.received(kind)
	}
	if !s.listRequest {
		s.delivered()
	}
	s.versions.replace(list.versions, version)
	s.source.Sweeper.Listed(list.count)
	s.list, s.listed, s.listRequest = nil, true, false
	return nil
}

// putEmptyList delivers an empty list of a resource that does not exist, unless a list has
// been received before: its objects are kept.
func (s *store) putEmptyList() {
	if !s.listed {
		s.startList()
		s.listRequest = true
		s.Replace(nil, "")
	}
}

// Bookmark records that nothing has changed up to version.
func (s *store) Bookmark(version string) error {
	s.versions.reached(version)
	for _, kind := range s.kinds {
		s.sink.received(kind)
	}
	s.bookmarked()
	s.delivered()
	return nil
}

// Resync does nothing: the sink keeps its objects.
func (s *store) Resync() error { return nil }

func (s *store) eventReceived() {
	for _, kind := range s.kinds {
		s.sink.received(kind)
	}
	s.source.Events[s.kinds[0]].Add(1)
	s.delivered()
}

func (s *store) kindOf(object cluster.Object) cluster.Kind {
	if slice, ok := object.(*cluster.Slice); ok && slice.Cluster != "" {
		return cluster.ImportSlices
	}
	return s.kinds[0]
}

// An objectList is a list, or a page of one, for the reflector. Its objects are passed to
// put as they are decoded.
type objectList struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []runtime.Object // always empty
	put   func(*api.Decoded)
}

func (l *objectList) DeepCopyObject() runtime.Object { c := *l; return &c }
