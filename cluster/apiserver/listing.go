package apiserver

import (
	"hash/maphash"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/cluster/api"
)

// A listing is a list that is being received. Its objects go to the sink in groups;
// only their keys are kept until it ends.
type listing struct {
	store  *store
	groups []group // by the store's kinds
	count  int     // objects received
}

// A group holds objects of one kind.
type group struct {
	keys    *keys            // of all objects in the list
	waiting []cluster.Object // not yet put
}

// begin prepares to receive a list. A list that broke off is discarded: its objects
// have been put, and it deletes none.
func (s *store) begin() {
	s.listing = &listing{store: s, groups: make([]group, len(s.kinds))}
	for i := range s.listing.groups {
		s.listing.groups[i].keys = newKeys(s.source.seed)
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
			s.listing.put(&a.Decoded)
		case last.Type == watch.Deleted:
			s.listing.delete(&a.Decoded)
		case endsList(last):
			return last, true
		}
	}
	return last, ok
}

// endsList reports whether e is the bookmark at the end of a streamed list.
func endsList(e watch.Event) bool {
	a, ok := e.Object.(*arrived)
	return ok && e.Type == watch.Bookmark && a.ListEnd == "true"
}

// put adds an object to the list, or removes it if it is no longer delivered.
func (l *listing) put(o *api.Decoded) {
	if l.count++; l.store.listed {
		l.store.source.Sweeper.Decoded()
	}
	for i, kind := range l.store.kinds {
		g := &l.groups[i]
		if o.Slim == nil || l.store.kindOf(o.Slim) != kind {
			g.keys.remove(o.Key())
			continue
		}
		g.keys.add(o.Slim.Key())
		g.waiting = append(g.waiting, o.Slim)
		if len(g.waiting) == cluster.GroupSize {
			g.flush(kind, l.store.out)
		}
	}
}

// delete removes an object that was deleted since the list began. The sink deletes it
// at the end of the list.
func (l *listing) delete(o *api.Decoded) {
	for i := range l.groups {
		l.groups[i].keys.remove(o.Key())
	}
}

// flush puts the objects that were not yet put.
func (l *listing) flush() {
	for i, kind := range l.store.kinds {
		l.groups[i].flush(kind, l.store.out)
	}
}

func (g *group) flush(kind cluster.Kind, out outlet) {
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
