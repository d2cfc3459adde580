package cluster

import (
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seamark/seamark/metrics"
)

// Lists that come close together are swept up after once, when they have
// settled; a small one and single events not at all.
func TestSweeper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var freed atomic.Int32
		s := newSweeper()
		s.free = func() { freed.Add(1) }
		go s.run(t.Context())
		settle := func(lists ...int) int {
			freed.Store(0)
			for _, objects := range lists {
				s.add(objects)
				synctest.Wait()
			}
			synctest.Wait()
			if freed.Load() > 0 {
				t.Error("before it settled")
			}
			time.Sleep(2 * settleTime)
			synctest.Wait()
			return int(freed.Load())
		}
		for _, c := range []struct {
			lists []int
			want  int
		}{{[]int{manyListed}, 1}, {[]int{manyListed - 1}, 0}, {[]int{manyListed - 1, 1, manyListed}, 1}, {[]int{0, 3}, 0}, {[]int{10 * manyListed}, 1}} {
			if got := settle(c.lists...); got != c.want {
				t.Errorf("%v: %d times, want %d", c.lists, got, c.want)
			}
		}
	})
}

// The first list is not held up; of one that replaces it the garbage goes while
// it is decoded.
func TestSweeperRelist(t *testing.T) {
	collected := 0
	source := Open(Options{}, slog.New(slog.DiscardHandler), new(metrics.Registry))
	source.sweeper.collect = func() { collected++ }
	s := &store{source: source, kinds: []Kind{Services}, out: whole{new(idle), source}, fine: func() {}}
	for i, want := range []int{0, 2} {
		s.begin()
		for range 2*collectEvery + 1 {
			s.listing.put(new(arrived))
		}
		if collected != want {
			t.Errorf("list %d: %d collections, want %d", i, collected, want)
		}
		if err := s.Replace(nil, ""); err != nil {
			t.Fatal(err)
		}
	}
}
