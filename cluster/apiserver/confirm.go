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
// not in a list, and no earlier list has lacked most of them: then another list is needed
// after wait.
func (s *store) needsConfirmation(list *incomingList) (wait time.Duration, needed bool) {
	for i, kind := range s.kinds {
		missing, objects := s.sink.missing(kind, list.byKind[i].keys)
		if 2*missing <= objects || missing <= fewMissing && missing < objects {
			continue
		}

		attrs := []any{"kind", kind.ObjectKind(), "missing", missing, "count", objects}
		if s.suspected.IsZero() {
			s.suspected = time.Now()
			const message = "List lacks most of the known objects, keeping them until another list confirms it"
			s.source.Log.Warn(message, attrs...)
			return s.confirmWait, true
		}
		if waited := time.Since(s.suspected); waited < s.confirmWait {
			return s.confirmWait - waited, true
		}
		s.suspected = time.Time{}
		s.source.Log.Warn("Another list lacks most of the known objects, deleting them", attrs...)
		return 0, false
	}

	if !s.suspected.IsZero() {
		s.suspected = time.Time{}
		s.source.Log.Info("Another list has most of the known objects", "kind", s.kinds[0].ObjectKind())
	}
	return 0, false
}

// errRelist ends a watch or a request for one.
var errRelist = errors.New("the resource must be listed again")

// relist has the feed list the resource again: it ends the watch, if there is one, and
// otherwise the next request for a watch without a list.
func (f *feed) relist() {
	f.relisting.Store(true)
	err := errRelist
	if r := f.detector.current.Load(); r != nil && r.listEnded.Load() {
		r.failed.Store(&err)
		r.cancel()
	}
}
