package cluster

import (
	"hash/maphash"

	"k8s.io/apimachinery/pkg/watch"
)

// groupSize is the number of objects of a list that go to the sink in one call:
// enough to build most Services once from all of their slices, and few to hold.
const groupSize = 256

// A listing is a list that is being received. Its objects go to the sink in groups;
// only their keys are kept until it ends.
type listing struct {
	store  *store
	groups []group // by the store's kinds
	count  int     // objects received
}

// A group holds objects of one kind.
type group struct {
	keys    *keys    // of all objects in the list
	waiting []Object // not yet put
}

// begin prepares to receive a list. A list that broke off is discarded: its objects
// have been put, and it deletes none.
func (s *store) begin() {
	s.listing = &listing{store: s, groups: make([]group, len(s.kinds))}
	for i := range s.listing.groups {
		s.listing.groups[i].keys = s.source.newKeys()
	}
}

// receive receives the list that a watch begins with. It returns the list's last
// event: the bookmark that ends it, an error, or the last one before the watch broke
// off. ok is false if there was no event.
func (s *store) receive(events <-chan watch.Event) (last watch.Event, ok bool) {
	s.begin()
	for last = range events {
		ok = true
		a, isObject := last.Object.(*arrived)
		switch {
		case last.Type == watch.Error:
			return last, true
		case !isObject: // the reflector ignores it, too
		case last.Type == watch.Added, last.Type == watch.Modified:
			s.listing.put(a)
		case last.Type == watch.Deleted:
			s.listing.delete(a)
		case endsList(last):
			return last, true
		}
	}
	return last, ok
}

// endsList reports whether e is the bookmark at the end of a streamed list.
func endsList(e watch.Event) bool {
	a, ok := e.Object.(*arrived)
	return ok && e.Type == watch.Bookmark && a.annotations[annotationListed] == "true"
}

// put adds an object to the list, or removes it if it is no longer delivered.
func (l *listing) put(a *arrived) {
	if l.count++; l.store.listed {
		l.store.source.sweeper.decoded()
	}
	for i, kind := range l.store.kinds {
		g := &l.groups[i]
		if a.object == nil || l.store.kindOf(a.object) != kind {
			g.keys.remove(keyOf(a))
			continue
		}
		g.keys.add(a.object.Key())
		g.waiting = append(g.waiting, a.object)
		if len(g.waiting) == groupSize {
			g.flush(kind, l.store.out)
		}
	}
}

// delete removes an object that was deleted since the list began. The sink deletes it
// at the end of the list.
func (l *listing) delete(a *arrived) {
	for i := range l.groups {
		l.groups[i].keys.remove(keyOf(a))
	}
}

// flush puts the objects that were not yet put.
func (l *listing) flush() {
	for i, kind := range l.store.kinds {
		l.groups[i].flush(kind, l.store.out)
	}
}

func (g *group) flush(kind Kind, out outlet) {
	if len(g.waiting) > 0 {
		out.Put(kind, g.waiting...)
		clear(g.waiting)
		g.waiting = g.waiting[:0]
	}
}

// keys is a set of keys, stored as hashes. Two keys with one hash are not told apart:
// in a cluster of a million objects the probability that a deleted object is kept
// for this reason is 10^-13. Adding to a nil set does nothing.
type keys struct {
	seed   maphash.Seed
	hashes map[uint64]struct{}
}

func (s *Source) newKeys() *keys { return &keys{s.seed, map[uint64]struct{}{}} }

func (ks *keys) add(key Key) {
	if ks != nil {
		ks.hashes[maphash.Comparable(ks.seed, key)] = struct{}{}
	}
}

func (ks *keys) remove(key Key) {
	if ks != nil {
		delete(ks.hashes, maphash.Comparable(ks.seed, key))
	}
}

func (ks *keys) has(key Key) bool {
	_, ok := ks.hashes[maphash.Comparable(ks.seed, key)]
	return ok
}
