package metrics

import (
	"slices"
	"sync"
)

// A Shard is one writer's part of the counters of a Registry: plain numbers, which
// it adds to while it holds the lock. Each UDP reader has one and locks it for a
// batch, so that readers share no memory. A scrape takes the lock to copy the
// numbers.
type Shard struct {
	sync.Mutex
	registry *Registry
	cells    []uint64 // by Counter.cell
}

// NewShard returns a shard that counts until RemoveShard.
func (r *Registry) NewShard() *Shard {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &Shard{registry: r}
	r.shards = append(r.shards, s)
	return s
}

// RemoveShard removes s, and keeps its counts in the sums. The caller must not hold s, and must
// not use it any more.
func (r *Registry) RemoveShard(s *Shard) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gone = s.addTo(r.gone)
	r.shards = slices.DeleteFunc(r.shards, func(o *Shard) bool { return o == s })
}

// addTo adds the counts of s to sums.
func (s *Shard) addTo(sums []uint64) []uint64 {
	s.Lock()
	defer s.Unlock()
	if more := len(s.cells) - len(sums); more > 0 {
		sums = append(sums, make([]uint64, more)...)
	}
	for i, n := range s.cells {
		sums[i] += n
	}
	return sums
}

// totals returns the counts of all shards, by cell. It does not take the lock of a
// shard while it holds the lock of the registry, since the holder of a shard may
// create a counter.
func (r *Registry) totals() totals {
	r.mu.Lock()
	sums, shards := slices.Clone(r.gone), slices.Clone(r.shards)
	r.mu.Unlock()
	for _, s := range shards {
		sums = s.addTo(sums)
	}
	return sums
}

type totals []uint64

// at returns zero for a cell that no shard has.
func (t totals) at(cell int) uint64 {
	if cell < len(t) {
		return t[cell]
	}
	return 0
}

// place allocates n cells. The caller holds r.mu.
func (r *Registry) place(n int) (cell int) {
	cell = r.cells
	r.cells += n
	return cell
}

// owns reports whether s, which may be nil, belongs to r.
func (r *Registry) owns(s *Shard) bool { return s != nil && s.registry == r }

// use makes cells up to the last one, at its first use.
func (s *Shard) use(last int) {
	if more := last + 1 - len(s.cells); more > 0 {
		s.cells = append(s.cells, make([]uint64, more)...)
	}
}

// AddTo adds n in shard s, whose lock the caller holds. With nil it is like Add.
func (c *Counter) AddTo(s *Shard, n uint64) {
	if !c.registry.owns(s) {
		c.n.Add(n)
		return
	}
	s.use(c.cell)
	s.cells[c.cell] += n
}
