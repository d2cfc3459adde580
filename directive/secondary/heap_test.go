package secondary

import (
	"runtime"
	"runtime/debug"
	"testing"
)

// Garbage is unused until it has been returned to the kernel.
func TestUnusedHeap(t *testing.T) {
	const size = 64 << 20
	debug.FreeOSMemory()
	before, _ := unusedHeap()
	b := make([]byte, size)
	runtime.GC()
	used, live := unusedHeap()
	if used > before+size/2 || live < size {
		t.Errorf("with %d bytes in use: got %d unused and %d live, unused before %d", size, used, live, before)
	}
	runtime.KeepAlive(b)
	b = nil
	runtime.GC()
	if got, live := unusedHeap(); got < size/2 || live > size/2 {
		t.Errorf("with %d bytes of garbage: got %d unused and %d live", size, got, live)
	}
	debug.FreeOSMemory()
	if got, _ := unusedHeap(); got > size/2 {
		t.Errorf("after FreeOSMemory: got %d unused bytes", got)
	}
}
