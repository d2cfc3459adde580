package cache

import "time"

// A queue selects the entries to evict: S3-FIFO (Yang et al., SOSP 2023). New
// entries enter the small list, a tenth of the queue. An entry that was hit
// before it reaches the end of the small list moves to the main list; otherwise
// it is evicted, and its hash is remembered, so that a name which returns soon
// enters the main list. Names that are queried once, however many, therefore
// never evict names that are queried regularly. The store's lock guards a queue.
type queue struct {
	limit       int // in entries
	bytes       int
	small, main list
	ghosts      []uint32 // hashes of evicted entries; a collision overwrites
}

// maxUses bounds the hits that count: a name that was queried often is evicted
// at the latest three rounds of the main list after its last query.
const maxUses = 3

// maxGhosts bounds the evicted entries that a queue remembers.
const maxGhosts = 1 << 16

// markUsed counts a hit. Most hits of a busy name write nothing.
func (e *entry) markUsed() {
	if n := e.uses.Load(); n < maxUses {
		e.uses.Store(n + 1)
	}
}

func (q *queue) len() int { return q.small.n + q.main.n }

// add adds e: to the main list if it replaces an entry there, or was evicted
// recently.
func (q *queue) add(e *entry) {
	q.bytes += e.size()
	e.main = e.main || q.takeGhost(e.hash)
	q.list(e).push(e)
}

func (q *queue) remove(e *entry) {
	q.bytes -= e.size()
	q.list(e).remove(e)
}

// list returns the list that e is in, or belongs to.
func (q *queue) list(e *entry) *list {
	if e.main {
		return &q.main
	}
	return &q.small
}

// evict removes an entry from the store and returns it. q is not empty.
func (q *queue) evict(st *Store, now time.Duration) *entry {
	for {
		fromSmall := q.main.n == 0 || q.small.n > q.limit/10
		e := q.main.oldest
		if fromSmall {
			e = q.small.oldest
		}

		// An entry that was not hit is evicted, and one that may not even be served stale.
		if e.uses.Load() == 0 || now >= e.expires && now-e.expires >= e.staleFor() {
			if e.fresh(now) {
				e.scope.evicted++
			}
			st.remove(e)
			if fromSmall {
				q.addGhost(e.hash)
			}
			return e
		}

		// An entry that was hit gets another round, with one use less in the main list.
		q.list(e).remove(e)
		e.main = true
		q.main.push(e)
		if fromSmall {
			e.uses.Store(0)
		} else {
			e.uses.Store(e.uses.Load() - 1)
		}
	}
}

// addGhost remembers the hash of an evicted entry.
func (q *queue) addGhost(hash uint64) {
	if q.ghosts == nil {
		n := 64
		for n < q.limit && n < maxGhosts {
			n *= 2
		}
		q.ghosts = make([]uint32, n)
	}
	place, mark := q.ghost(hash)
	*place = mark
}

// takeGhost reports whether the hash is remembered, and forgets it.
func (q *queue) takeGhost(hash uint64) bool {
	if q.ghosts == nil {
		return false
	}
	place, mark := q.ghost(hash)
	if *place != mark {
		return false
	}
	*place = 0
	return true
}

func (q *queue) ghost(hash uint64) (place *uint32, mark uint32) {
	return &q.ghosts[int(hash>>15)%len(q.ghosts)], uint32(hash>>32) | 1
}

// A list is a doubly linked list of entries in the order of insertion.
type list struct {
	newest, oldest *entry
	n              int
}

func (l *list) push(e *entry) {
	e.newer, e.older = nil, l.newest
	if l.newest != nil {
		l.newest.newer = e
	} else {
		l.oldest = e
	}
	l.newest = e
	l.n++
}

func (l *list) remove(e *entry) {
	if e.newer != nil {
		e.newer.older = e.older
	} else {
		l.newest = e.older
	}
	if e.older != nil {
		e.older.newer = e.newer
	} else {
		l.oldest = e.newer
	}
	e.newer, e.older = nil, nil
	l.n--
}
