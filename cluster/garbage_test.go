package cluster

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestSweeper checks that memory is returned once after several lists, when they
// have settled, and never after small lists.
func TestSweeper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var freed atomic.Int32
		s := NewSweeper(func() {}, func() { freed.Add(1) })
		go s.run(t.Context())
		settle := func(lists ...int) int {
			freed.Store(0)
			for _, objects := range lists {
				s.Listed(objects)
				synctest.Wait()
			}
			synctest.Wait()
			if freed.Load() > 0 {
				t.Error("memory was freed before the changes ended, want it freed after them")
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

func TestSweeperDecoded(t *testing.T) {
	collected := 0
	s := NewSweeper(func() { collected++ }, func() {})
	for range 2*collectEvery + 1 {
		s.Decoded()
	}
	if collected != 2 {
		t.Errorf("%d objects of lists that replace others: got %d collections, want 2", 2*collectEvery+1, collected)
	}
}
