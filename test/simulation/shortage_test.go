package simulation

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	parts "github.com/seamark/seamark/sys/memory"
)

// A shortage is that of memory: in some worlds the parts of a small budget are taken, and given back. Then
// the server may cache nothing and serve fewer clients with streams, and has to answer all others as
// before.
type shortage struct {
	world *world
	*rand.Rand
	budget *parts.Budget
	taken  [parts.NumConsumers]int64

	mu     sync.Mutex
	scarce []period // of the parts of streams
}

// scarce are the parts that are taken, those of streams first. What the others refuse, such as a version
// of a zone, the server tries again after minutes, and a restart has the part of snapshots for itself.
var scarce = []parts.Consumer{
	parts.TCP, parts.TLS, parts.HTTPS, parts.QUIC, parts.Replies, parts.Cache, parts.Records,
}

const ofStreams = 5 // of scarce

// newShortage returns the shortage of a world. Its decisions are its own, as those of disks.
func newShortage(w *world) *shortage {
	s := &shortage{world: w, Rand: w.rand("memory"), budget: parts.New(64<<20, "the test")}
	if s.IntN(4) > 0 {
		return nil
	}
	w.options.Memory = s.budget
	return s
}

// step takes or gives back a part, or does nothing.
func (s *shortage) step() {
	if s == nil || s.IntN(6) > 0 {
		return
	}
	c := scarce[s.IntN(len(scarce))]
	defer s.observe()
	if s.taken[c] > 0 {
		s.release(c)
		return
	}
	s.world.cause("short of memory: %s", c)
	for chunk := int64(32 << 20); chunk > 0; {
		if s.budget.Reserve(c, chunk) == nil {
			s.taken[c] += chunk
		} else {
			chunk /= 2
		}
	}
}

func (s *shortage) release(c parts.Consumer) {
	if s.taken[c] == 0 {
		return
	}
	s.world.cause("no longer short of memory: %s", c)
	s.budget.Release(c, s.taken[c])
	s.taken[c] = 0
}

// observe notes whether streams may be refused from now on.
func (s *shortage) observe() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, n := time.Now(), len(s.scarce)
	if n > 0 && s.scarce[n-1].end.IsZero() {
		s.scarce[n-1].end = now
	}
	if slices.ContainsFunc(scarce[:ofStreams], func(c parts.Consumer) bool { return s.taken[c] > 0 }) {
		s.scarce = append(s.scarce, period{begin: now})
	}
}

// refuses reports whether a client may be refused that has used a stream between two times.
func (s *shortage) refuses(from, to time.Time) bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.scarce, func(p period) bool { return p.overlaps(from, to) })
}

// end gives back all parts.
func (s *shortage) end() {
	if s == nil {
		return
	}
	for _, c := range scarce {
		s.release(c)
	}
	s.observe()
}

// check checks that the server has used nothing beyond its parts once it has stopped.
func (s *shortage) check() {
	if s == nil {
		return
	}
	for _, c := range scarce {
		if p := s.budget.Part(c); p.Used != 0 {
			s.world.fail("memory of %s after the stop: got %d bytes in use, want 0", c, p.Used)
		}
	}
}
