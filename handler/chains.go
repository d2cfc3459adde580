package handler

import (
	"sync"

	"github.com/seamark/seamark/dns"
)

// A chains holds what a handler keeps for each chain that it stands in: a
// server block has one for each of its addresses and zones, and their counters
// have different labels. A query finds its own without a name being looked up.
type chains[T any] struct {
	of    sync.Map // *dns.Chain to *T
	begin sync.Mutex
}

// at gives what belongs to c, and makes it at the first call.
func (s *chains[T]) at(c *dns.Chain, make func(c *dns.Chain) *T) *T {
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
