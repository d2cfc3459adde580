package dns

import (
	"runtime"
	"sync"
)

// resumed bounds the queries of a lot that have waited without a goroutine and are being resumed. An upstream
// that fails ends the wait of thousands at the same time: a goroutine for each would need more memory than
// their places stand for. They take turns. A query leaves before it blocks: it has a place for a stack then.
type resumed struct {
	mu      sync.Mutex
	free    int
	waiting []*place
}

// maxResumed returns the bound. Nearly all queries that are resumed keep a processor busy until they leave.
func maxResumed() int { return 16 * runtime.GOMAXPROCS(0) }

// start resumes a query on a goroutine, now or when it has its turn.
func (r *resumed) start(p *place) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.free == 0 {
		r.waiting = append(r.waiting, p)
		return
	}
	r.free--
	p.turn = true
	go p.resolve()
}

// leave ends the turn of a query, if it has one, and begins another one's.
func (r *resumed) leave(p *place) {
	if !p.turn {
		return
	}
	p.turn = false

	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.waiting) == 0 {
		r.free++
		return
	}
	next := r.waiting[0]
	r.waiting[0] = nil
	if r.waiting = r.waiting[1:]; len(r.waiting) == 0 {
		r.waiting = nil
	}
	next.turn = true
	go next.resolve()
}
