package cache

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"
)

// MaxBytes bounds what a Store holds for all server blocks together. Ten
// thousand usual answers take 5 MB.
const MaxBytes = 64 << 20

// buckets is the size of the table: one entry in each is some 30,000 names.
const buckets = 1 << 15

// A Store is the answers of all server blocks. It outlives reloads.
//
// Readers take no lock: a lookup follows pointers that are each published
// whole, and an entry's answer never changes. Whoever changes the table, which
// is a matter of misses, holds the one lock; so every bound is exact.
type Store struct {
	epoch time.Time
	seed  maphash.Seed
	limit int // in bytes
	table [buckets]atomic.Pointer[entry]

	mu     sync.Mutex
	scopes map[string]*scope
	bytes  int
}

// NewStore makes an empty store of at most limit bytes.
func NewStore(limit int) *Store {
	return &Store{epoch: time.Now(), seed: maphash.MakeSeed(), limit: limit, scopes: map[string]*scope{}}
}

// Stop is for config.Keep: a store owns nothing but memory.
func (*Store) Stop() {}

// at is a moment as entries keep it: on the clock that no one sets.
func (st *Store) at(t time.Time) time.Duration { return t.Sub(st.epoch) }

// A found is what a store has for one question: at most one of each kind.
type found struct {
	of     [kinds]*entry
	flight *flight
}

// find looks for k, newest first.
func (st *Store) find(s *scope, k *key) (f found) {
	for e := st.table[k.hash%buckets].Load(); e != nil; e = e.next.Load() {
		if e.hash != k.hash || e.scope != s || !e.key.equal(k) {
			continue
		}
		switch {
		case e.flight != nil:
			if f.flight == nil {
				f.flight = e.flight
			}
		case f.of[e.kind] == nil:
			f.of[e.kind] = e
		}
	}
	return f
}

// link makes e visible. The caller holds the lock.
func (st *Store) link(e *entry) {
	bucket := &st.table[e.hash%buckets]
	e.next.Store(bucket.Load())
	bucket.Store(e)
}

// unlink takes e out of its bucket. A reader that stands on it goes on from
// there as before. The caller holds the lock.
func (st *Store) unlink(e *entry) {
	at := &st.table[e.hash%buckets]
	for here := at.Load(); here != nil; here = at.Load() {
		if here == e {
			at.Store(e.next.Load())
			return
		}
		at = &here.next
	}
}

// An evicted says how many entries of each kind had to go.
type evicted [kinds]int

// put makes e the answer to its question. keep says which other kinds stay
// beside it. It says false if there is no room for it at all.
func (st *Store) put(e *entry, keep kindSet, now time.Duration) (out evicted, ok bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	q := &e.scope.queues[e.kind.queue()]
	if !e.scope.ways[e.way] || q.limit == 0 || e.size() > st.limit/8 {
		return out, false
	}
	old := st.find(e.scope, &e.key)
	if e.kind == failure && (old.of[success].fresh(now) || old.of[denial].fresh(now)) {
		return out, false // what is known is worth more than that nobody can say
	}
	st.link(e)
	st.bytes += e.size()
	for kind, o := range old.of {
		if o == nil || keep.has(entryKind(kind)) && entryKind(kind) != e.kind {
			continue
		}
		if entryKind(kind) == e.kind {
			e.inherit(o)
		}
		st.remove(o)
	}
	q.add(e)
	e.scope.inserted++
	for q.small.n+q.main.n > q.limit {
		out[q.evict(st, now).kind]++
	}
	for st.bytes > st.limit {
		out[st.largest().evict(st, now).kind]++
	}
	return out, true
}

// remove takes an entry out of table and queue. The caller holds the lock.
func (st *Store) remove(e *entry) {
	st.unlink(e)
	e.scope.queues[e.kind.queue()].remove(e)
	st.bytes -= e.size()
}

// largest is the queue that holds most bytes; it is not empty if the store is
// not. The caller holds the lock.
func (st *Store) largest() *queue {
	var most *queue
	for _, s := range st.scopes {
		for i := range s.queues {
			if q := &s.queues[i]; most == nil || q.bytes > most.bytes {
				most = q
			}
		}
	}
	return most
}

// A scope is the part of a store that belongs to the blocks with some zones in a
// view, however they get answers.
type scope struct {
	name   string
	salt   uint64
	queues [2]queue        // success; denial
	ways   map[uint64]bool // those in which the plan that serves gets answers
	turnover
}

// A use is what a plan makes of a scope.
type use struct {
	limits [2]int // entries of each queue
	ways   map[uint64]bool
}

// scope gives that of the name, and makes it if it is new.
func (st *Store) scope(name string, limits [2]int) *scope {
	st.mu.Lock()
	defer st.mu.Unlock()
	s := st.scopes[name]
	if s == nil {
		s = &scope{name: name, salt: maphash.String(st.seed, name)}
		for i := range s.queues {
			s.queues[i].limit = limits[i]
		}
		st.scopes[name] = s
	}
	return s
}

// commit bounds the scopes that a plan uses, and forgets the others and what came
// in ways that are not gone any more.
func (st *Store) commit(used map[*scope]*use) {
	st.mu.Lock()
	defer st.mu.Unlock()
	for name, s := range st.scopes {
		u, ok := used[s]
		if !ok {
			u = new(use)
			delete(st.scopes, name)
		}
		s.ways = u.ways
		for i := range s.queues {
			q := &s.queues[i]
			q.limit = u.limits[i]
			for _, l := range [...]*list{&q.small, &q.main} {
				for e := l.first; e != nil; {
					next := e.behind
					if !s.ways[e.way] {
						st.remove(e)
					}
					e = next
				}
			}
			for q.small.n+q.main.n > q.limit {
				q.evict(st, 0)
			}
		}
	}
}

// entries counts those of one of a scope's queues.
func (st *Store) entries(s *scope, queue int) int {
	st.mu.Lock()
	defer st.mu.Unlock()
	return s.queues[queue].small.n + s.queues[queue].main.n
}
