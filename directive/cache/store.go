package cache

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/sys/generation"
	"github.com/seamark/seamark/sys/memory"
)

// MaxBytes limits the entries of all server blocks together, unless the option memory allows
// more. Ten thousand usual answers take 5 MB.
const MaxBytes = 64 << 20

// numBuckets is the size of the hash table. With one entry in each bucket it
// holds some 30,000 names.
const numBuckets = 1 << 15

// A Store holds the entries of all server blocks. It outlives reloads.
//
// Readers take no lock: they follow atomic pointers, and the answer of an entry
// in the table is immutable. Writers, which handle misses, hold mu, so that all
// limits are exact.
type Store struct {
	epoch  time.Time
	seed   maphash.Seed
	memory *memory.Budget
	table  [numBuckets]atomic.Pointer[entry]

	mu     sync.Mutex
	scopes map[string]*scope
	bytes  int
	limit  int // in bytes, however much memory there is

	standard int // of limit

	generations *generation.Cells // of entries, by the hash of the key; nil if no answers are repeated

	pending map[uint64]*pending // by hash of the key
}

// NewStore returns an empty store of at most limit bytes, and no more than the budget's part for
// the cache.
func NewStore(limit int, b *memory.Budget) *Store {
	return &Store{
		epoch: time.Now(), seed: maphash.MakeSeed(), limit: limit, standard: limit, memory: b,
		scopes: map[string]*scope{}, pending: map[uint64]*pending{},
	}
}

// Stop implements config.Stopper. It drops all entries, and put rejects those of queries that still
// wait: the budget outlives the store.
func (st *Store) Stop() { st.commit(newScopePlan()) }

// clock returns t as the store's entries keep it: on the monotonic clock.
func (st *Store) clock(t time.Time) time.Duration { return t.Sub(st.epoch) }

// found are the entries of one key: at most one of each kind.
type found struct{ byKind [numKinds]*entry }

// find returns the entries of k. The newest come first in a bucket.
func (st *Store) find(s *scope, k *key) (f found) {
	for e := st.table[k.hash%numBuckets].Load(); e != nil; e = e.next.Load() {
		if f.byKind[e.kind()] == nil && e.scope == s && e.has(k) {
			f.byKind[e.kind()] = e
		}
	}
	return f
}

// fresh reports whether one of the entries is fresh.
func (f *found) fresh(now time.Duration) bool {
	return f.byKind[success].fresh(now) || f.byKind[denial].fresh(now) || f.byKind[failure].fresh(now)
}

// stamp returns the Stamp of the entries of a key; false if their answers may not be repeated.
func (st *Store) stamp(k *key) (generation.Stamp, bool) {
	if st.generations == nil {
		return generation.Stamp{}, false
	}
	var room [8]byte
	return st.generations.Read(k.appendGeneration(room[:0]), nil)
}

// endRepetition ends the repetition of answers from an entry that was evicted, before there is a newer answer.
func (st *Store) endRepetition(k *key) {
	if st.generations != nil {
		g := k.generation()
		st.generations.Begin(g)
		st.generations.End(g)
	}
}

// put adds e and replaces the entries of the same key, except entries of the other
// kinds in keep. It returns the number of evicted entries by kind, and false if e
// is not stored: there is no room for it, its scope has been dropped, or it is a
// failure and the store has an answer.
func (st *Store) put(e *entry, keep kindSet, now time.Duration) (evicted [numKinds]int, ok bool) {
	st.mu.Lock()
	defer st.mu.Unlock()

	q := &e.scope.queues[e.kind().queue()]
	if q.limit == 0 {
		return evicted, false
	}
	old := st.find(e.scope, e.key())
	if e.kind() == failure && (old.byKind[success].fresh(now) || old.byKind[denial].fresh(now)) {
		return evicted, false
	}
	if !st.makeRoom(e, now, &evicted) {
		return evicted, false
	}

	old = st.find(e.scope, e.key())
	if old.fresh(now) { // its answer may be repeated
		st.generations.Begin(e.key().generation())
		defer st.generations.End(e.key().generation())
	}

	// The new entry is linked first, so that readers find one of the two at any time.
	st.link(e)
	for kind, o := range old.byKind {
		same := answerKind(kind) == e.kind()
		if o == nil || !same && keep.has(answerKind(kind)) {
			continue
		}
		if same {
			e.inheritUsage(o)
		}
		st.remove(o)
	}
	q.add(e)
	e.scope.inserted++

	for q.len() > q.limit {
		evicted[q.evict(st, now).kind()]++
	}
	return evicted, true
}

// removeExpired removes the entries of a key that have one of the kinds and are not fresh.
func (st *Store) removeExpired(s *scope, k *key, kinds kindSet) {
	expired := func(e *entry, kind int) bool {
		return e != nil && kinds.has(answerKind(kind)) && !e.fresh(st.clock(time.Now()))
	}
	some := false
	found := st.find(s, k)
	for kind, e := range found.byKind {
		some = some || expired(e, kind)
	}
	if !some {
		return // most answers that are not stored have no entry
	}

	st.mu.Lock()
	defer st.mu.Unlock()
	found = st.find(s, k)
	for kind, e := range found.byKind {
		if expired(e, kind) {
			st.remove(e)
		}
	}
}

// makeRoom reserves the memory of e, and evicts entries as long as there is none. It returns
// false if e is too large, also for what is free while memory is tight: a large entry that takes
// the place of another needs twice its size until the collector has run. The caller holds the lock.
func (st *Store) makeRoom(e *entry, now time.Duration, evicted *[numKinds]int) bool {
	size, own := e.size(), e.scope.memory
	if own == 0 {
		own = st.limit
	}
	if size > min(own, st.limit, int(st.memory.Max(memory.Cache)))/maxEntryPart {
		return false
	}
	if size > largeEntry && st.memory.Tight() {
		return false
	}

	for e.scope.bytes()+size > own {
		evicted[e.scope.largestQueue().evict(st, now).kind()]++
	}
	for st.bytes+size > st.limit || st.memory.Reserve(memory.Cache, int64(size)) != nil {
		q := st.largestQueue()
		if q.len() == 0 {
			return false
		}
		evicted[q.evict(st, now).kind()]++
	}
	st.bytes += size
	return true
}

const (
	maxEntryPart = 8       // the part of the memory that an entry may have
	largeEntry   = 4 << 10 // the size from which on an entry is not worth a shortage of memory
)

// remove removes e from the table and from its queue. The caller holds the lock.
func (st *Store) remove(e *entry) {
	st.unlink(e)
	e.scope.queues[e.kind().queue()].remove(e)
	st.bytes -= e.size()
	st.memory.Release(memory.Cache, int64(e.size()))
}

// link adds e to the table. The caller holds the lock.
func (st *Store) link(e *entry) {
	bucket := &st.table[e.hash%numBuckets]
	e.next.Store(bucket.Load())
	bucket.Store(e)
}

// unlink removes e from the table. Readers that have reached e can still follow
// its next pointer. The caller holds the lock.
func (st *Store) unlink(e *entry) {
	at := &st.table[e.hash%numBuckets]
	for here := at.Load(); here != nil; here = at.Load() {
		if here == e {
			at.Store(e.next.Load())
			return
		}
		at = &here.next
	}
}

// largestQueue returns the queue that uses most bytes. It is not empty unless
// the store is. A scope that was dropped is not in the store any more. The caller holds the lock.
func (st *Store) largestQueue() *queue {
	var largest *queue
	for _, s := range st.scopes {
		if q := s.largestQueue(); largest == nil || q.bytes > largest.bytes {
			largest = q
		}
	}
	return largest
}

// entries returns the number of entries in one of a scope's queues.
func (st *Store) entries(s *scope, queue int) int {
	st.mu.Lock()
	defer st.mu.Unlock()
	return s.queues[queue].len()
}
