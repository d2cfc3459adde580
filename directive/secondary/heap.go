package secondary

import "runtime/metrics"

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
