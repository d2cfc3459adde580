package transport

import (
	"runtime"
	"sync"
)

// answers is the memory in which all Messages of the process write answers. Each has a goroutine for each request:
// when many wait for a processor, or for the garbage collector, more memory would not make them faster.
var answers = newAnswerPool(2 * runtime.GOMAXPROCS(0))

// answerMemory is the memory for an answer, as in an arena.
type answerMemory = [len(arena{}.answer)]byte

// An answerPool has a fixed number of memories, made when they are first needed. A sync.Pool would make them
// again after each collection.
type answerPool struct {
	turns chan struct{}
	mu    sync.Mutex
	free  []*answerMemory
}

func newAnswerPool(n int) *answerPool { return &answerPool{turns: make(chan struct{}, n)} }

// take blocks until there is memory. The caller must not block before it calls put.
func (p *answerPool) take() *answerMemory {
	p.turns <- struct{}{}
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.free)
	if n == 0 {
		return new(answerMemory)
	}
	m := p.free[n-1]
	p.free = p.free[:n-1]
	return m
}

func (p *answerPool) put(m *answerMemory) {
	p.mu.Lock()
	p.free = append(p.free, m)
	p.mu.Unlock()
	<-p.turns
}
