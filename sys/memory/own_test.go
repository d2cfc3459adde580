package memory

import (
	"math"
	"runtime"
	"runtime/debug"
	"testing"
)

// If own data need more than their part, the consumers get less, in whatever order they ask: together what is left,
// each at least a quarter of its minimum, and one alone a third of the total, but never more than its maximum.
func TestBudgetLargeOwnData(t *testing.T) {
	const total = 35 << 20
	standard := New(total, FromGroup)
	for _, own := range []int64{10 << 20, 15 << 20, 20 << 20, 23 << 20, 40 << 20} {
		room := min(total-standard.own, total-total/collectorPart-own)
		for first := range NumConsumers {
			b := New(total, FromGroup)
			b.adapt(own)
			var used, least int64
			for i := range NumConsumers {
				c := (first + i) % NumConsumers
				for b.Reserve(c, 4096) == nil {
					used += 4096
				}
				p := b.Part(c)
				least += p.Min/4 + 4096
				if p.Used < p.Min/4-4096 {
					t.Errorf("own data of %d, %s first: %s has %d, want %d", own, first, c, p.Used, p.Min/4)
				}
				if want := min(p.Max, room/3) - 8192; i == 0 && p.Used < want && p.Max > p.Min {
					t.Errorf("own data of %d: %s alone has %d, want %d", own, c, p.Used, want)
				}
			}
			if used > max(room, least) {
				t.Errorf("own data of %d, %s first: %d in use, want at most %d", own, first, used, max(room, least))
			}
		}
	}
}

// What the consumers use is no own data, and what they lost they get again.
func TestBudgetAdaptsAgain(t *testing.T) {
	b := New(35<<20, FromGroup)
	if err := b.Reserve(Cache, 5<<20); err != nil {
		t.Fatal(err)
	}
	room := func() int64 { return b.Room(Waiting, b.Max(Waiting)) }
	for _, c := range []struct {
		inUse int64
		all   bool
	}{{12 << 20, true}, {b.own + 5<<20, true}, {30 << 20, false}, {12 << 20, true}} {
		b.adapt(c.inUse)
		if got, want := room(), b.Max(Waiting); (got == want) != c.all || got < want/4-1024 {
			t.Errorf("%d bytes in use: %d are for queries that wait, want all %d: %t", c.inUse, got, want, c.all)
		}
		if err := b.Reserve(Zones, b.Part(Zones).Min); (err == nil) != c.all {
			t.Errorf("%d bytes in use: the minimum of zones: got error %v, want memory %t", c.inUse, err, c.all)
		} else if err == nil {
			b.Release(Zones, b.Part(Zones).Min)
		}
	}
}

// A consumer that is measured counts with what it reserves.
func TestReserveOfMeasuredConsumer(t *testing.T) {
	b, measured := New(35<<20, FromGroup), int64(0)
	b.Measure(Waiting, func() int64 { return measured })
	most := b.Max(Waiting)
	for _, c := range []struct {
		measured, bytes int64
		want            bool
	}{{0, most, true}, {most / 2, most / 2, true}, {most / 2, most/2 + 2, false}, {most, 1, false}} {
		measured = c.measured
		err := b.Reserve(Waiting, c.bytes)
		if (err == nil) != c.want {
			t.Errorf("%d bytes beside %d: got error %v, want memory %t", c.bytes, c.measured, err, c.want)
		}
		if err == nil {
			b.Release(Waiting, c.bytes)
		}
	}
}

// A collection shows what is in use, and the budget adapts to it.
func TestBudgetFollowsTheHeap(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(math.MaxInt64))
	runtime.GC()
	kept := make([]byte, 64<<20)
	runtime.GC()
	if got := inUse(); got < int64(len(kept)) || got > 1<<30 {
		t.Errorf("with %d bytes in one slice: got %d in use", len(kept), got)
	}
	runtime.KeepAlive(kept)
}
