package memory

import (
	"math"
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

// While the limit leaves the collector nothing, a part has its minimum and what it had, and no
// more; afterwards it grows again.
func TestTightWhileTheCollectorIsShortOfMemory(t *testing.T) {
	b := New(100<<20, FromGroup)
	b.follow()
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(1))
	become := func(tight bool) {
		t.Helper()
		for range 1000 {
			runtime.GC()
			if b.Tight() == tight {
				return
			}
			time.Sleep(time.Millisecond) // the cleanup runs beside us
		}
		t.Fatalf("tight is %t after many collections, want %t", !tight, tight)
	}
	reserve := func(bytes int64, want bool) {
		t.Helper()
		if err := b.Reserve(Zones, bytes); (err == nil) != want {
			t.Errorf("%d bytes more than %d: got error %v, want memory %t", bytes, b.Part(Zones).Used, err, want)
		}
	}
	least := b.Part(Zones).Min

	become(true)
	reserve(least, true)
	reserve(1, false)

	debug.SetMemoryLimit(math.MaxInt64)
	become(false)
	reserve(1<<20, true)

	debug.SetMemoryLimit(1)
	become(true)
	reserve(1, false)
	b.Release(Zones, 1<<20)
	reserve(1, false)
	if got := b.Part(Zones).Used; got != least {
		t.Errorf("got %d bytes in use, want %d", got, least)
	}
}

// No collection is tight on a machine without a limit, however little GOGC allows.
func TestTightNeverWithoutALimit(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(math.MaxInt64))
	for _, percent := range []int{1, 5, 25, 100, -1} {
		old := debug.SetGCPercent(percent)
		runtime.GC()
		if isTight() {
			t.Errorf("GOGC=%d: tight without a limit", percent)
		}
		debug.SetGCPercent(old)
	}
}
