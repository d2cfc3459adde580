package transport

import (
	"runtime"
	"sync"

	"github.com/seamark/seamark/sys/memory"
)

// answerMemory is the memory for an answer, as in an arena.
type answerMemory = [len(arena{}.answer)]byte

const answerBytes = int64(len(answerMemory{}))

// An answerPool is the memory in which Messages write answers, for a number at a time. Each request has a
// goroutine: when many wait for a processor, or for the garbage collector, more memory would not make them faster.
// It is made when it is first needed, and without room in the budget only once. A sync.Pool would make it again
// after each collection.
type answerPool struct {
	budget *memory.Budget
	free   chan *answerMemory // has room for the largest number

	mu   sync.Mutex
	made int
}

// answersAtOnce is the largest number for one listener.
func answersAtOnce() int { return runtime.GOMAXPROCS(0) + 1 }

func newAnswerPool(n int, b *memory.Budget) *answerPool {
	return &answerPool{budget: b, free: make(chan *answerMemory, n)}
}

// take blocks until there is memory. The caller must not block before it calls put.
func (p *answerPool) take() *answerMemory {
	select {
	case m := <-p.free:
		return m
	default:
	}
	if p.reserve() {
		return new(answerMemory)
	}
	return <-p.free
}

// reserve reports whether more memory may be made.
func (p *answerPool) reserve() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.made == cap(p.free) || p.budget.ReserveLeast(memory.Listeners, answerBytes, p.made, 1) != nil {
		return false
	}
	p.made++
	return true
}

func (p *answerPool) put(m *answerMemory) { p.free <- m }

// close ends the use of the memory.
func (p *answerPool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.budget.Release(memory.Listeners, int64(p.made)*answerBytes)
	p.made = 0
}
