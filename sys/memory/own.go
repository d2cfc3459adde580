package memory

import "runtime/metrics"

// A part of the total is set aside for what no consumer counts: objects of the cluster, the program, and memory that
// Go's heap cannot use. Each collection shows how much that is. If it is more, as with a large cluster in a small
// container, there is less for the consumers: their minimums shrink, and faster than the rest, so that one of them can
// still have much while the others use little.

const (
	fullScale  = 1 << 10
	leastScale = fullScale / 4
	// collectorPart is the part of the total that the collector needs to work with.
	collectorPart = 8
)

// adapt adapts the parts to the memory that is in use after a collection.
func (b *Budget) adapt(inUse int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	least := int64(0)
	for c := range NumConsumers {
		inUse -= b.usedBy(c)
		least += b.parts[c].Min
	}

	most := b.total - b.own
	room := max(0, min(most, b.total-b.total/collectorPart-inUse))
	share := float64(room) / float64(most)
	b.scale.Store(max(leastScale, int64(share*share*fullScale)))
	b.shared = max(0, room-b.scaled(least))
}

// scaled returns how many of a number of bytes a consumer can have in any case.
func (b *Budget) scaled(bytes int64) int64 {
	if scale := b.scale.Load(); scale != fullScale {
		return bytes / fullScale * scale
	}
	return bytes
}

// Room returns how many of a number of bytes a consumer can have at present, with what it uses: all of them, unless
// there is less for the consumers together than was expected.
func (b *Budget) Room(c Consumer, bytes int64) int64 {
	if b == nil || b.scale.Load() == fullScale {
		return bytes
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return min(bytes, b.scaled(bytes)+b.borrowed(c, b.usedBy(c))+b.unlent())
}

// inUse returns the memory that is in use after a collection, with the stacks and what the heap cannot use.
func inUse() int64 {
	samples := [...]metrics.Sample{
		{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/unused:bytes"},
		{Name: "/memory/classes/heap/stacks:bytes"}, {Name: "/memory/classes/os-stacks:bytes"},
		{Name: "/memory/classes/metadata/mcache/inuse:bytes"}, {Name: "/memory/classes/metadata/mspan/inuse:bytes"},
		{Name: "/memory/classes/metadata/other:bytes"}, {Name: "/memory/classes/other:bytes"},
	}
	metrics.Read(samples[:])
	bytes := uint64(0)
	for _, s := range samples {
		bytes += s.Value.Uint64()
	}
	return int64(bytes)
}
