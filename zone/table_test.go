package zone

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
)

func TestTableAgainstMap(t *testing.T) {
	var table Table[int]
	want := map[string]*int{}
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 200_000 {
		key := fmt.Sprint(rng.IntN(5000))
		if rng.IntN(3) == 0 {
			table.Delete(key)
			delete(want, key)
		} else {
			v := i
			table.Set(key, &v)
			want[key] = &v
		}
	}
	if table.Len() != len(want) {
		t.Errorf("Len() = %d, want %d", table.Len(), len(want))
	}
	for i := range 5000 {
		key := fmt.Sprint(i)
		if got := table.Get([]byte(key)); got != want[key] {
			t.Errorf("Get(%s) = %v, want %v", key, got, want[key])
		}
	}
	seen := 0
	for key, e := range table.All() {
		if want[key] != e {
			t.Errorf("All: got %s = %v, want %v", key, e, want[key])
		}
		seen++
	}
	if seen != len(want) {
		t.Errorf("All: got %d entries, want %d", seen, len(want))
	}
}

// Deleted keys do not use up cells.
func TestTableDeletedKeys(t *testing.T) {
	var table Table[int]
	for i := range 100_000 {
		key := fmt.Sprint(i)
		table.Set(key, new(int))
		table.Delete(key)
	}
	if n := len(table.cells.Load().cell); n > 64 {
		t.Errorf("after 100,000 deletions: got %d cells, want at most 64", n)
	}
}

// A concurrent reader gets the old or the new entry of a key, never that of another
// key.
func TestTableConcurrentReaders(t *testing.T) {
	type entry struct{ key string }
	var table Table[entry]
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 3 {
		readers.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				key := fmt.Sprint(i % 1000)
				if e := table.Get([]byte(key)); e != nil && e.key != key {
					t.Errorf("Get(%s): got the entry of %s, want that of the key", key, e.key)
					return
				}
			}
		})
	}
	rng := rand.New(rand.NewPCG(3, 4))
	for range 100_000 {
		key := fmt.Sprint(rng.IntN(1000))
		if rng.IntN(4) == 0 {
			table.Delete(key)
		} else {
			table.Set(key, &entry{key})
		}
	}
	close(stop)
	readers.Wait()
}

func TestTableGetAllocations(t *testing.T) {
	var table Table[int]
	table.Set("\x03api\x04shop", new(int))
	name := []byte("\x03api\x04shop\x03svc\x07cluster\x05local\x00")
	if n := testing.AllocsPerRun(100, func() { table.Get(name[:9]) }); n != 0 {
		t.Errorf("Get: got %v allocations, want 0", n)
	}
}

// A Table becomes smaller when most of its keys are deleted.
func TestTableShrinks(t *testing.T) {
	var table Table[int]
	key := func(i int) string { return fmt.Sprint("k", i) }
	for i := range 10_000 {
		table.Set(key(i), &i)
	}
	most := len(table.cells.Load().cell)
	for i := range 9_900 {
		table.Delete(key(i))
		if i%100 == 0 && (table.Get([]byte(key(i))) != nil || table.Get([]byte(key(i+1))) == nil || table.Len() != 9_999-i) {
			t.Fatalf("after %d deletions: got %d entries, Get(%s) = %v, Get(%s) = %v; want %d entries, nil, an entry", i+1, table.Len(), key(i), table.Get([]byte(key(i))), key(i+1), table.Get([]byte(key(i+1))), 9_999-i)
		}
	}
	if n := len(table.cells.Load().cell); n > most/16 {
		t.Errorf("got %d cells for 100 entries, want at most %d", n, most/16)
	}
	for i := range 100 {
		if e := table.Get([]byte(key(9_900 + i))); e == nil || *e != 9_900+i {
			t.Fatalf("Get(%s) = %v, want %d", key(9_900+i), e, 9_900+i)
		}
	}
}
