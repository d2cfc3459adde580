package apiserver

import (
	"errors"
	"time"
)

// An API server that has lost its data, or that was restored from an old backup, answers
// with lists that lack most objects. Such a list deletes nothing until another one, some
// seconds later, lacks them too.

// fewMissing is the number of missing objects up to which a list needs no confirmation,
// unless it lacks all: a small cluster may well lose two of three Services while a watch is
// interrupted.
const fewMissing = 2

// needsConfirmation reports whether most of the sink's objects, or its only one or two, are
// not in a list, and no earlier list has lacked most of them. It has the feed list again
// after confirmWait.
func (s *store) needsConfirmation(list *incomingList) bool {
	for i, kind := range s.kinds {
		missing, objects := s.sink.missing(kind, list.byKind[i].keys)
		if 2*missing <= objects || missing <= fewMissing && missing < objects {
			continue
		}
		attrs := []any{"kind", kind.ObjectKind(), "missing", missing, "count", objects}
		switch waited := time.Since(s.suspected); {
		case s.suspected.IsZero():
			s.suspected, waited = time.Now(), 0
			s.source.Log.Warn("List lacks most of the known objects, keeping them until another list confirms it", attrs...)
			fallthrough
		case waited < s.confirmWait:
			time.AfterFunc(s.confirmWait-waited, s.relist)
			return true
		}
		s.suspected = time.Time{}
		s.source.Log.Warn("Another list lacks most of the known objects, deleting them", attrs...)
		return false
	}
	if !s.suspected.IsZero() {
		s.suspected = time.Time{}
		s.source.Log.Info("Another list has most of the known objects", "kind", s.kinds[0].ObjectKind())
	}
	return false
}

// errRelist ends a watch or a request for one.
var errRelist = errors.New("the resource must be listed again")

// relist has the feed list the resource again: it ends the watch, if there is one, and
// otherwise the next request for a watch without a list.
func (f *feed) relist() {
	f.relisting.Store(true)
	err := errRelist
	if x := f.detector.current.Load(); x != nil && x.listEnded.Load() {
		x.failed.Store(&err)
		x.cancel()
	}
}
