package cluster

import (
	"hash/maphash"

	"k8s.io/apimachinery/pkg/watch"
)

// groupSize objects of a list go to the sink at a time: enough for it to build a
// Service once of most of its slices, and few to hold.
const groupSize = 256

// A listing is a list that comes in. Its objects go on to the sink in groups;
// what stays of them until the list ends is which they were.
type listing struct {
	store  *store
	groups []group // by the store's kinds
	count  int     // objects received
}

// A group is objects of one kind.
type group struct {
	keys    *keys    // of all that is in the list
	waiting []Object // for the sink
}

// begin makes room for a list. One that has broken off is forgotten: its objects
// have been put, and it can say of none that it is gone.
func (s *store) begin() {
	s.listing = &listing{store: s, groups: make([]group, len(s.kinds))}
	for i := range s.listing.groups {
		s.listing.groups[i].keys = s.source.newKeys()
	}
}

// receive takes the list that a watch begins with, up to its end, and gives the
// last event of it: the bookmark that ends it, an error, or whatever came before
// it broke off. It is false if nothing came.
func (s *store) receive(events <-chan watch.Event) (last watch.Event, ok bool) {
	s.begin()
	for last = range events {
		ok = true
		a, isObject := last.Object.(*arrived)
		switch {
		case last.Type == watch.Error:
			return last, true
		case !isObject: // the reflector steps over it too
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

// put takes an object into the list, or out of it if it is not wanted any more.
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

// delete takes an object out of the list that has gone since it began. The sink
// hears of it at the end.
func (l *listing) delete(a *arrived) {
	for i := range l.groups {
		l.groups[i].keys.remove(keyOf(a))
	}
}

// flush gives the sink what waits for it.
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

// keys is a set of keys, by their hashes: a few bytes each, and no names. A key
// whose hash is that of another one is taken for it. That keeps one that is gone,
// with a probability of 1 to 10^13 in a cluster of a million objects. A nil set
// takes none.
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
