package metrics

import (
	"io"
	"math"
	"slices"
	"sync"
	"sync/atomic"
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

// An IntHistogram is a histogram of integers: of bytes, or of nanoseconds that are
// written as seconds.
type IntHistogram struct {
	registry *Registry
	cell     int
	bounds   []float64
	limits   []uint64 // bounds in units
	unit     float64
	shared   []atomic.Uint64 // the buckets and the sum, of values without a shard
}

// IntHistogram returns the histogram with that name and labels. It creates the
// histogram at the first call. unit is the value of 1: 1e-9 for nanoseconds if
// bounds are in seconds. bounds ascend, are whole numbers of units, and must not be
// changed by the caller.
func (r *Registry) IntHistogram(name, help string, unit float64, bounds []float64, labels ...string) *IntHistogram {
	return getOrMake(r, name, help, "histogram", labels, func() *IntHistogram {
		buckets := len(bounds) + 1
		m := &IntHistogram{registry: r, cell: r.place(buckets + 1), bounds: bounds, unit: unit}
		m.shared = make([]atomic.Uint64, buckets+1)
		for _, b := range bounds {
			m.limits = append(m.limits, uint64(math.Round(b/unit)))
		}
		return m
	})
}

// Observe counts one value in shard s, whose lock the caller holds. With nil it is
// safe for concurrent use. Only the first use of a shard allocates.
func (m *IntHistogram) Observe(s *Shard, units uint64) {
	if !m.registry.owns(s) {
		m.Add(units, 1)
		return
	}
	sum := m.cell + len(m.limits) + 1
	s.use(sum)
	s.cells[m.cell+m.bucket(units)]++
	s.cells[sum] += units
}

// Add counts n equal values. It is safe for concurrent use.
func (m *IntHistogram) Add(units, n uint64) {
	m.shared[m.bucket(units)].Add(n)
	m.shared[len(m.limits)+1].Add(units * n)
}

func (m *IntHistogram) bucket(units uint64) int {
	i := 0
	for i < len(m.limits) && units > m.limits[i] {
		i++
	}
	return i
}

func (m *IntHistogram) writeText(w io.Writer, name, labels string, t totals, bound func(float64) string) {
	counts := make([]uint64, len(m.shared))
	for i := range counts {
		counts[i] = m.shared[i].Load() + t.at(m.cell+i)
	}
	sum := len(m.limits) + 1
	Distribution{m.bounds, counts[:sum], float64(counts[sum]) * m.unit}.writeText(w, name, labels, bound)
}
