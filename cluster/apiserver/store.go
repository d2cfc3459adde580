package apiserver

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/cluster/api"
)

// A store passes the objects of a feed on to the sink and holds none.
type store struct {
	source      *source
	kinds       []cluster.Kind // of the objects: one, or two for EndpointSlices
	sink        namespaceSink
	versions    versions
	list        *incomingList     // the list being received; nil if none is
	listed      bool              // a list has been received
	suspected   time.Time         // when the first of consecutive lists lacked most objects; zero after another list
	confirmWait time.Duration     // from then until a list may delete them
	single      [1]cluster.Object // the argument of Put, for an event
}

// put puts the object of an event, and deletes it from its former kind if a change of
// labels has changed its kind.
func (s *store) put(a *decodedObject) {
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

// delete deletes the object of an event.
func (s *store) delete(a *decodedObject) {
	for _, kind := range s.kinds {
		s.sink.Delete(kind, a.Key())
	}
	s.versions.set(a.Key(), a.Version, true)
	s.eventReceived()
}

// endList ends a list, whose objects have been put already. If another list has to confirm
// it, that should begin after wait, and this one deletes nothing.
func (s *store) endList(version string) (wait time.Duration, unconfirmed bool) {
	list := s.list
	list.flush()
	wait, unconfirmed = s.needsConfirmation(list)
	for i, kind := range s.kinds {
		if !unconfirmed {
			s.sink.listed(kind, list.byKind[i].keys)
		}
		s.source.Relists[kind].Add(1)
		s.sink.received(kind)
	}
	s.versions.replace(list.versions, version)
	s.source.Sweeper.Listed(list.count)
	s.list, s.listed = nil, true
	return wait, unconfirmed
}

// isEmpty reports whether a list without objects would change nothing.
func (s *store) isEmpty() bool { return s.listed && s.suspected.IsZero() && s.versions.count() == 0 }

// bookmark records that nothing has changed up to version.
func (s *store) bookmark(version string) {
	s.versions.reached(version)
	for _, kind := range s.kinds {
		s.sink.received(kind)
	}
}

func (s *store) eventReceived() {
	for _, kind := range s.kinds {
		s.sink.received(kind)
	}
	s.source.Events[s.kinds[0]].Add(1)
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
