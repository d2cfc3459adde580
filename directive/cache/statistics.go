package cache

import "github.com/seamark/seamark/dns"

// Statistics returns the capacity for entries of both kinds, and the number of
// entries inserted and evicted since the server block's scope was created. A
// reload that keeps the entries keeps the numbers. Statistics takes the store's
// lock.
func (c *Cache) Statistics() (capacity int, inserted, evicted uint64) {
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	return c.bounds[0].entries + c.bounds[1].entries, c.scope.inserted, c.scope.evicted
}

// An answerOrigin is stored in a query that was not answered by the handler at
// Query.AnsweredStep: fromStore, or the distance from the Cache to the handler below
// that answered the pending query.
type answerOrigin int

const fromStore answerOrigin = 0

// Answered returns the position in the chain of the handler that answered a
// finished query, and whether the answer was stored before. If the query waited for
// a pending query, it is the handler that answered the pending one.
func (c *Cache) Answered(q *dns.Query) (step int, stored bool) {
	origin, known := q.State(c.stateKey).(answerOrigin)
	switch step = q.AnsweredStep(); {
	case known && origin == fromStore:
		return step, true
	case known && step == c.step:
		return step + int(origin), false
	}
	return step, step == c.step
}
