package cache

import "time"

// maxUses is how many hits count: a name that is asked all day long is let go
// three rounds after it was asked last.
const maxUses = 3

// used notes a hit. Most hits of a busy name write nothing.
func (e *entry) used() {
	if n := e.uses.Load(); n < maxUses {
		e.uses.Store(n + 1)
	}
}

// A list is entries in the order in which they came; it is linked in itself.
type list struct {
	first, last *entry
	n           int
}

func (l *list) push(e *entry) {
	e.list, e.before, e.behind = l, nil, l.first
	if l.first != nil {
		l.first.before = e
	} else {
		l.last = e
	}
	l.first = e
	l.n++
}

func (l *list) remove(e *entry) {
	if e.before != nil {
		e.before.behind = e.behind
	} else {
		l.first = e.behind
	}
	if e.behind != nil {
		e.behind.before = e.before
	} else {
		l.last = e.before
	}
	e.list, e.before, e.behind = nil, nil, nil
	l.n--
}

// A queue says who has to go when there is no room: S3-FIFO (Yang et al., SOSP
// 2023). What is new waits in a small queue, a tenth of all. What has been
// asked again by the time that it comes to the end there moves to the main
// queue; the rest goes, and only its hash stays for a while, so that a name
// which comes back is known. So names that are asked once, however many, never
// push out those that are asked often. Everything in it is under the store's
// lock.
type queue struct {
	limit       int // entries
	bytes       int
	small, main list
	ghosts      []uint32 // by hash; a place that is taken again forgets
}

func (q *queue) add(e *entry) {
	q.bytes += e.size()
	to := &q.small
	if e.list == &q.main || q.ghost(e.hash, false) {
		to = &q.main
	}
	to.push(e)
}

func (q *queue) remove(e *entry) {
	q.bytes -= e.size()
	e.list.remove(e)
}

// evict takes out the one that will be missed least; there is one.
func (q *queue) evict(st *Store, now time.Duration) *entry {
	for {
		if q.main.n == 0 || q.small.n > q.limit/10 {
			e := q.small.last
			if !e.wanted(now) {
				e.letGo(now)
				st.remove(e)
				q.ghost(e.hash, true)
				return e
			}
			q.small.remove(e)
			q.main.push(e)
			e.uses.Store(0)
			continue
		}
		e := q.main.last
		if !e.wanted(now) {
			e.letGo(now)
			st.remove(e)
			return e
		}
		q.main.remove(e)
		q.main.push(e)
		e.uses.Store(e.uses.Load() - 1)
	}
}

// wanted says whether e has been asked since it was looked at last, and can
// still be given out.
func (e *entry) wanted(now time.Duration) bool {
	return e.uses.Load() > 0 && now < e.ends+e.forget
}

// maxGhosts is the most that are remembered of one queue.
const maxGhosts = 1 << 16

// ghost remembers a name that had to go or, unless put, says whether it was
// there and forgets it.
func (q *queue) ghost(hash uint64, put bool) bool {
	if q.ghosts == nil {
		if !put {
			return false
		}
		n := 64
		for n < q.limit && n < maxGhosts {
			n *= 2
		}
		q.ghosts = make([]uint32, n)
	}
	at := &q.ghosts[int(hash>>15)%len(q.ghosts)]
	mark := uint32(hash>>32) | 1
	if put {
		*at = mark
		return true
	}
	if *at != mark {
		return false
	}
	*at = 0
	return true
}
