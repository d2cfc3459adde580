package transport

import (
	"runtime"
	"sync"
)

// answerMemory is the memory for an answer, as in an arena.
type answerMemory = [len(arena{}.answer)]byte

// An answerPool is the memory in which Messages write answers, for a fixed number at a time. Each request has a
// goroutine: when many wait for a processor, or for the garbage collector, more memory would not make them faster.
// It is made when it is first needed. A sync.Pool would make it again after each collection.
type answerPool struct {
	turns chan struct{}
	mu    sync.Mutex
	free  []*answerMemory
}

// answersAtOnce is the number for one listener.
func answersAtOnce() int { return runtime.GOMAXPROCS(0) + 1 }

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
