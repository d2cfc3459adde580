package secondary

import (
	"runtime/debug"
	"runtime/metrics"
)

// unusedHeap returns the bytes of the heap that are garbage or free, and were not returned to the
// kernel, and those that were in use at the last collection. What was allocated since then
// counts as garbage.
func unusedHeap() (unused, live uint64) {
	samples := []metrics.Sample{
		{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/free:bytes"},
		{Name: "/gc/heap/live:bytes"},
	}
	metrics.Read(samples)
	objects, free, live := samples[0].Value.Uint64(), samples[1].Value.Uint64(), samples[2].Value.Uint64()
	return objects - min(objects, live) + free, live
}

// minGarbage is the size of garbage from which on it is released.
const minGarbage = 4 << 20

// releaseGarbage returns the garbage of transfers to the system if it is more than half of
// the memory in use, so that the cost does not depend on the number of zones. Receiving a large
// zone takes its memory about once more, and a server that allocates little keeps that for
// minutes.
func releaseGarbage() {
	if unused, live := unusedHeap(); unused > max(minGarbage, live/2) {
		debug.FreeOSMemory()
	}
}
