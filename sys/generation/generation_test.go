package generation

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

func newCells(n int) *Cells { return New(make([]atomic.Uint64, n)) }

// A copied value is what a reader has made from data.
type copied struct {
	stamp Stamp
	ok    bool
	value int
}

// In every order of the steps of two writers, whose keys share a cell, and of a reader, a copy with
// a current Stamp equals the data at that time.
func TestStampEveryOrder(t *testing.T) {
	orders, current := 0, 0
	// run performs the steps in an order and checks the copy after each.
	run := func(order []int) {
		orders++
		c := newCells(firstKey + 1)
		var data [2]int
		var made copied
		put := func(i int, key string) []func() {
			return []func(){func() { c.Begin(key) }, func() { data[i]++ }, func() { c.End(key) }}
		}
		kept := false
		threads := [3][]func(){
			append(put(0, "a"), put(0, "a")...),
			put(1, "b"),
			{
				func() { made.stamp, made.ok = c.Read([]byte("a"), nil) },
				func() { made.value = data[0] },
				func() { kept = made.ok },
			},
		}
		for n, thread := range order {
			threads[thread][0]()
			threads[thread] = threads[thread][1:]
			if !kept || !c.Current(made.stamp) {
				continue
			}
			if current++; made.value != data[0] {
				t.Fatalf("order %v, step %d: a copy of %d is current, the data are %d", order, n, made.value, data[0])
			}
		}
	}
	var choose func(order []int, left [3]int)
	choose = func(order []int, left [3]int) {
		if left == [3]int{} {
			run(order)
			return
		}
		for thread := range left {
			if next := left; left[thread] > 0 {
				next[thread]--
				choose(append(order[:len(order):len(order)], thread), next)
			}
		}
	}
	choose(nil, [3]int{6, 3, 3})
	if orders != 18480 || current == 0 {
		t.Errorf("orders: got %d with %d current copies, want 18480 with some", orders, current)
	}
}

// Once any reader has found new data, no copy of older data is current: with a writer, and readers
// that use the copies of each other.
func TestStampConcurrent(t *testing.T) {
	const changes, readers = 20_000, 4
	c := newCells(64)
	var data, seen, used atomic.Int64
	var kept atomic.Pointer[copied]
	key := []byte("api.shop")
	read := func() int64 {
		v := data.Load()
		for old := seen.Load(); v > old && !seen.CompareAndSwap(old, v); old = seen.Load() {
		}
		return v
	}

	var done atomic.Bool
	var running sync.WaitGroup
	for range readers {
		running.Go(func() {
			for !done.Load() {
				before := seen.Load()
				if k := kept.Load(); k != nil && c.Current(k.stamp) {
					if used.Add(1); int64(k.value) < before {
						t.Errorf("a copy of %d is current after %d was read", k.value, before)
						return
					}
					continue
				}
				if s, ok := c.Read(key, []byte("shop")); ok {
					kept.Store(&copied{stamp: s, value: int(read())})
				}
			}
		})
	}
	for n := range changes {
		for n%8 == 0 && used.Load() < int64(n) && !t.Failed() {
			runtime.Gosched() // until the readers have used copies of the data
		}
		c.Begin(string(key))
		data.Add(1)
		c.End(string(key))
	}
	done.Store(true)
	running.Wait()
	t.Logf("%d changes, %d uses of copies", changes, used.Load())
}

// A change of a key, or of everything, ends the copies that depend on it, and no others.
func TestStampDependencies(t *testing.T) {
	c := newCells(MaxCells)
	stamps := func() map[string]Stamp {
		m := map[string]Stamp{"nothing": {}}
		for _, of := range [][2]string{{}, {"a"}, {"b"}, {"a", "b"}} {
			s, ok := c.Read([]byte(of[0]), []byte(of[1]))
			if !ok {
				t.Fatalf("%q: got no Stamp", of)
			}
			m[of[0]+of[1]] = s
		}
		return m
	}
	for changed, want := range map[string]string{
		"a": "map[:true a:false ab:false b:true nothing:true]",
		"b": "map[:true a:true ab:false b:false nothing:true]",
		"":  "map[:false a:false ab:false b:false nothing:true]",
		"c": "map[:true a:true ab:true b:true nothing:true]",
	} {
		before, got := stamps(), map[string]bool{}
		c.Begin(changed)
		for name, s := range before {
			got[name] = c.Current(s)
		}
		if fmt.Sprint(got) != want {
			t.Errorf("in a change of %q: got %v, want %s", changed, got, want)
		}
		c.End(changed)
		for name, s := range before {
			if c.Current(s) != got[name] {
				t.Errorf("after a change of %q: copies of %q current: got %t, want %t", changed, name, !got[name], got[name])
			}
		}
	}
}

// A process that ended in a change does not prevent copies of the next one, which uses no copies of
// the process.
func TestCellsOfDeadProcess(t *testing.T) {
	memory := make([]atomic.Uint64, 100)
	before := New(memory)
	s, _ := before.Read([]byte("a"), nil)
	before.Begin("a")
	before.Begin("")
	c := New(memory)
	if c.Current(s) {
		t.Error("a Stamp of the earlier process is current")
	}
	for _, key := range []string{"a", "b", ""} {
		if _, ok := c.Read([]byte(key), nil); !ok {
			t.Errorf("%q: got no Stamp", key)
		}
	}
}

// Begin, End and Read do not allocate, and nil Cells count nothing.
func TestCellsAllocations(t *testing.T) {
	c, key := newCells(100), []byte("api.shop")
	if n := testing.AllocsPerRun(100, func() {
		c.Begin("api.shop")
		c.End("api.shop")
		s, _ := c.Read(key, key)
		c.Current(s)
	}); n != 0 {
		t.Errorf("allocations: got %v, want 0", n)
	}
	(*Cells)(nil).Begin("a")
	(*Cells)(nil).End("a")
}

func BenchmarkRead(b *testing.B) {
	c, key, ns := newCells(MaxCells), []byte("\x03api\x04shop"), []byte("\x04shop")
	for b.Loop() {
		c.Read(key, ns)
	}
}

func BenchmarkChange(b *testing.B) {
	c := newCells(MaxCells)
	for b.Loop() {
		c.Begin("\x03api\x04shop")
		c.End("\x03api\x04shop")
	}
}

// A cell that overflows goes on from zero: a Stamp of before is outdated, and the next one is current.
func TestCellOverflow(t *testing.T) {
	memory := make([]atomic.Uint64, firstKey+1)
	c := New(memory)
	for i := range memory[everything:] {
		memory[everything+i].Store(^uint64(open)) // the last change
	}
	for _, key := range []string{"a", ""} {
		before, ok := c.Read([]byte("a"), nil)
		if !ok || !c.Current(before) {
			t.Fatalf("before the change of %q: got no current Stamp", key)
		}
		c.Begin(key)
		if _, ok := c.Read([]byte("a"), nil); ok || c.Current(before) {
			t.Errorf("in the change of %q: got a Stamp, or an earlier one is current", key)
		}
		c.End(key)
		after, ok := c.Read([]byte("a"), nil)
		if !ok || !c.Current(after) || c.Current(before) {
			t.Errorf("after the change of %q: want the new Stamp to be current, and the earlier one not", key)
		}
	}
	for i := range memory[everything:] {
		if got := memory[everything+i].Load(); got != 0 {
			t.Errorf("cell %d: got %d, want 0", everything+i, got)
		}
	}
}
