// Package descriptors bounds the file descriptors that the clients of a server have open, over
// all listeners together: half of those that the process may have. The other half is for the
// server's own sockets, its upstreams, files and the watches of the API server, so that it
// goes on to answer, however many connections clients open. The package knows no sockets; its
// callers count their connections, and close one when they are asked to.
package descriptors

import (
	"cmp"
	"slices"
	"sync"
)

// fewest is how many connections a listener may have in any case, so that a probe is answered
// also when connections of other listeners cannot be closed.
const fewest = 4

// A Budget is the number of descriptors that listeners share. Its methods, and those of its
// Shares, are safe for concurrent use.
type Budget struct {
	limit int

	mu     sync.Mutex
	used   int
	shares []*Share
}

// A Share counts the connections of one listener. The nil Share has no limit.
type Share struct {
	budget *Budget
	n      int
	evict  func() bool
}

// reserve is how many descriptors clients leave in any case: for listeners, upstreams and files.
const reserve = 48

// New returns the budget of the process.
func New() *Budget { return &Budget{limit: max(fewest, min(Limit()/2, Limit()-reserve))} }

// Join adds a listener. evict closes a connection that can be spared, calls Release for it
// before it returns, and reports whether there was one. The caller must call Leave. A nil
// Budget returns a nil Share.
func (b *Budget) Join(evict func() bool) *Share {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	s := &Share{budget: b, evict: evict}
	b.shares = append(b.shares, s)
	return s
}

// Leave removes the listener. Its connections may be released later.
func (s *Share) Leave() {
	if s == nil {
		return
	}
	b := s.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	b.shares = slices.DeleteFunc(b.shares, func(other *Share) bool { return other == s })
}

// Acquire counts a new connection. At the limit it closes another one: of the listener that
// has most, or of the next one if that one can spare none. It returns false if there is none
// to close. The caller must not hold a lock that evict takes.
func (s *Share) Acquire() bool {
	if s == nil || s.take(0) {
		return true
	}
	for _, larger := range s.larger() {
		if larger.evict() {
			return s.take(fewest) // another listener may have taken the place
		}
	}
	return s.isSmall() && s.take(fewest)
}

// take counts a connection if there are fewer than the limit and some more.
func (s *Share) take(more int) bool {
	b := s.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.used >= b.limit+more*len(b.shares) {
		return false
	}
	b.used++
	s.n++
	return true
}

func (s *Share) isSmall() bool {
	s.budget.mu.Lock()
	defer s.budget.mu.Unlock()
	return s.n < fewest
}

// larger returns the listeners with more connections than s, the largest first, and s.
func (s *Share) larger() []*Share {
	b := s.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	shares := slices.DeleteFunc(slices.Clone(b.shares), func(other *Share) bool { return other != s && other.n <= s.n })
	slices.SortStableFunc(shares, func(a, b *Share) int { return cmp.Compare(b.n, a.n) })
	return shares
}

// Release counts a connection that is closed. The caller may hold its locks.
func (s *Share) Release() {
	if s == nil {
		return
	}
	b := s.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used--
	s.n--
}
