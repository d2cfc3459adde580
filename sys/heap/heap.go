// Package heap measures the memory of Go's heap that is not in use. The collector leaves as
// much garbage as there is other memory, and a server that allocates little keeps it for
// minutes.
package heap

import "runtime/metrics"

// Unused returns the bytes of the heap that are garbage or free, and were not returned to the
// kernel, and those that were in use at the last collection. What was allocated since then
// counts as garbage.
func Unused() (unused, live uint64) {
	samples := []metrics.Sample{
		{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/free:bytes"},
		{Name: "/gc/heap/live:bytes"},
	}
	metrics.Read(samples)
	objects, free, live := samples[0].Value.Uint64(), samples[1].Value.Uint64(), samples[2].Value.Uint64()
	return objects - min(objects, live) + free, live
}
