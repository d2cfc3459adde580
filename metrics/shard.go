package metrics

import (
	"io"
	"math"
	"slices"
	"sync"
	"sync/atomic"
)

// A NewShard is one writer's part of a Registry's counters: plain numbers, which it
// adds to while it holds the lock. A reader of packets has one, locks it for a
// batch, and shares no memory with other readers; who scrapes takes the lock for
// as long as it takes to copy the numbers.
type Shard struct {
	sync.Mutex
	of    *Registry
	cells []uint64 // by Counter.cell
}

// NewShard makes a shard. It counts until it is dropped.
func (r *Registry) NewShard() *Shard {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &Shard{of: r}
	r.shards = append(r.shards, s)
	return s
}

// RemoveShard takes s out; what it has counted stays. Its owner, who calls this, does not
// hold it, and does not use it any more.
func (r *Registry) RemoveShard(s *Shard) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gone = s.addTo(r.gone)
	r.shards = slices.DeleteFunc(r.shards, func(o *Shard) bool { return o == s })
}

// addTo adds what s has counted to sums.
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

// totals is what all shards have counted, by cell. It takes no shard's lock while
// it has the registry's: who holds a shard may ask for a new counter.
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

// at is zero for what no shard has counted yet.
func (t totals) at(cell int) uint64 {
	if cell < len(t) {
		return t[cell]
	}
	return 0
}

// place gives n cells to whoever is made with r.mu held.
func (r *Registry) place(n int) (cell int) {
	cell = r.cells
	r.cells += n
	return cell
}

// mine says whether s, which may be nil, has cells of r's.
func (r *Registry) mine(s *Shard) bool { return s != nil && r != nil && s.of == r }

// from gives the cells from the first of a group of n, which are made at their
// first use.
func (s *Shard) from(cell, n int) []uint64 {
	if cell+n > len(s.cells) {
		s.cells = append(s.cells, make([]uint64, cell+n-len(s.cells))...)
	}
	return s.cells[cell : cell+n]
}

// AddTo is Add where the caller holds the lock of s; nil is as Add.
func (c *Counter) AddTo(s *Shard, n uint64) {
	if !c.of.mine(s) {
		c.n.Add(n)
		return
	}
	s.from(c.cell, 1)[0] += n
}

// A IntHistogram is a histogram of whole numbers: of bytes, or of nanoseconds that are
// shown as seconds.
type IntHistogram struct {
	of     *Registry
	cell   int
	bounds []float64
	limits []uint64 // bounds in units
	unit   float64
	shared []atomic.Uint64 // by bucket, and then the sum: who has no shard counts here
}

// IntHistogram gives the histogram of that name and labels, and makes it at the first
// call. unit is what 1 is worth, 1e-9 for nanoseconds among bounds in seconds;
// bounds ascend, and are whole numbers of units. It keeps bounds.
func (r *Registry) IntHistogram(name, help string, unit float64, bounds []float64, labels ...string) *IntHistogram {
	r.mu.Lock()
	defer r.mu.Unlock()
	series := r.family(name, help, "histogram").series
	key := render(labels)
	m, ok := series[key].(*IntHistogram)
	if !ok {
		buckets := len(bounds) + 1
		m = &IntHistogram{of: r, cell: r.place(buckets + 1), bounds: bounds, unit: unit, shared: make([]atomic.Uint64, buckets+1)}
		for _, b := range bounds {
			m.limits = append(m.limits, uint64(math.Round(b/unit)))
		}
		series[key] = m
	}
	return m
}

// Observe counts one value. The caller holds the lock of s; with nil it is safe
// from any goroutine. It allocates nothing but a shard's first use of it.
func (m *IntHistogram) Observe(s *Shard, units uint64) {
	i := 0
	for i < len(m.limits) && units > m.limits[i] {
		i++
	}
	sum := len(m.limits) + 1
	if !m.of.mine(s) {
		m.shared[i].Add(1)
		m.shared[sum].Add(units)
		return
	}
	cells := s.from(m.cell, sum+1)
	cells[i]++
	cells[sum] += units
}

func (m *IntHistogram) writeText(w io.Writer, name, labels string, t totals) {
	counts := make([]uint64, len(m.shared))
	for i := range counts {
		counts[i] = m.shared[i].Load() + t.at(m.cell+i)
	}
	sum := len(m.limits) + 1
	Distribution{m.bounds, counts[:sum], float64(counts[sum]) * m.unit}.writeText(w, name, labels)
}
