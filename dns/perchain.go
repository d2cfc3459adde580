package dns

import (
	"iter"
	"sync"
)

// A PerChain holds what a handler keeps for each chain that it stands in: a
// server block has one for each of its addresses and zones, and their counters
// have different labels. A query finds its own without a name being looked up.
type PerChain[T any] struct {
	of    sync.Map // *Chain to *T
	begin sync.Mutex
}

// At gives what belongs to c, and makes it at the first call.
func (s *PerChain[T]) At(c *Chain, make func(c *Chain) *T) *T {
	if v, ok := s.of.Load(c); ok {
		return v.(*T)
	}
	s.begin.Lock()
	defer s.begin.Unlock()
	v, ok := s.of.Load(c)
	if !ok {
		v = make(c)
		s.of.Store(c, v)
	}
	return v.(*T)
}

// All gives what has been made.
func (s *PerChain[T]) All() iter.Seq[*T] {
	return func(yield func(*T) bool) {
		s.of.Range(func(_, v any) bool { return yield(v.(*T)) })
	}
}
