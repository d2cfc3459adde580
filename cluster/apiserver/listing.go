package apiserver

import (
	"hash/maphash"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/cluster/api"
)

// An incomingList is a list that is being received. Its objects go to the sink in groups;
// only their keys are kept until it ends.
type incomingList struct {
	store    *store
	byKind   []kindList        // in the order of the store's kinds
	versions map[uint64]uint64 // of all objects, by the hash of the key
	count    int               // objects received
}

// A kindList holds the objects of one kind in an incomingList.
type kindList struct {
	keys    *keys            // of all objects received
	pending []cluster.Object // not yet put
}

// startList prepares to receive a list. A list that broke off is discarded: its objects
// have been put, and it deletes none.
func (s *store) startList() {
	s.list = &incomingList{store: s, byKind: make([]kindList, len(s.kinds)), versions: map[uint64]uint64{}}
	for i := range s.list.byKind {
		s.list.byKind[i].keys = newKeys(s.source.seed)
	}
}

// receiveList receives the list that a watch begins with. It returns the list's last
// event: the bookmark that ends it, an error, or the last one before the watch broke
// off. ok is false if there was no event.
func (s *store) receiveList(events <-chan watch.Event) (last watch.Event, ok bool) {
	s.startList()
	for last = range events {
		ok = true
		a, isObject := last.Object.(*decodedObject)
		switch {
		case last.Type == watch.Error:
			return last, true
		case !isObject: // the reflector ignores it, too
		case last.Type == watch.Added, last.Type == watch.Modified:
			s.list.put(&a.Decoded)
		case last.Type == watch.Deleted:
			s.list.delete(&a.Decoded)
		case endsList(last):
			return last, true
		}
	}
	return last, ok
}

// endsList reports whether e is the bookmark at the end of a streamed list.
func endsList(e watch.Event) bool {
	a, ok := e.Object.(*decodedObject)
	return ok && e.Type == watch.Bookmark && a.ListEnd == "true"
}

// put adds an object to the list, or removes it if it is no longer delivered.
func (l *incomingList) put(o *api.Decoded) {
	if l.count++; l.store.listed {
		l.store.source.Sweeper.Decoded()
	}
	l.versions[l.store.versions.hash(o.Key())] = parseVersion(o.Version)
	for i, kind := range l.store.kinds {
		list := &l.byKind[i]
		if o.Slim == nil || l.store.kindOf(o.Slim) != kind {
			list.keys.remove(o.Key())
			continue
		}
		list.keys.add(o.Slim.Key())
		list.pending = append(list.pending, o.Slim)
		if len(list.pending) == cluster.GroupSize {
			list.flush(kind, l.store.sink)
		}
	}
}

// delete removes an object that was deleted since the list began. The sink deletes it
// at the end of the list.
func (l *incomingList) delete(o *api.Decoded) {
	delete(l.versions, l.store.versions.hash(o.Key()))
	for i := range l.byKind {
		l.byKind[i].keys.remove(o.Key())
	}
}

// flush puts the objects that were not yet put.
func (l *incomingList) flush() {
	for i, kind := range l.store.kinds {
		l.byKind[i].flush(kind, l.store.sink)
	}
}

func (l *kindList) flush(kind cluster.Kind, out namespaceSink) {
	if len(l.pending) > 0 {
		out.Put(kind, l.pending...)
		clear(l.pending)
		l.pending = l.pending[:0]
	}
}

// keys is a set of keys, stored as hashes. Two keys with one hash are treated as equal:
// in a cluster of a million objects the probability that a deleted object is kept
// for this reason is 10^-13. Adding to a nil set does nothing.
type keys struct {
	seed   maphash.Seed
	hashes map[uint64]struct{}
}

func newKeys(seed maphash.Seed) *keys { return &keys{seed, map[uint64]struct{}{}} }

func (ks *keys) add(key cluster.Key) {
	if ks != nil {
		ks.hashes[maphash.Comparable(ks.seed, key)] = struct{}{}
	}
}

func (ks *keys) remove(key cluster.Key) {
	if ks != nil {
		delete(ks.hashes, maphash.Comparable(ks.seed, key))
	}
}

func (ks *keys) has(key cluster.Key) bool {
	_, ok := ks.hashes[maphash.Comparable(ks.seed, key)]
	return ok
}
