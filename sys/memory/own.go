package memory

import "runtime/metrics"

// What no part counts is kept for answers from the server's own data: objects of the cluster, the program, and what
// Go's heap cannot use. A part of the total is set aside for it. If it needs more, which only a collection shows, the
// parts get less: first what they share, then their minimums, in proportion, of which leastScale remains.

const (
	fullScale  = 1 << 10
	leastScale = fullScale / 4
	// collectorPart is the part of the total that the collector needs to work with.
	collectorPart = 8
)

// Scaled returns how many of a number of bytes a consumer can have at any time: all, or less while other things need
// more than their part of the total.
func (b *Budget) Scaled(bytes int64) int64 {
	if b == nil {
		return bytes
	}
	scale := b.scale.Load()
	if scale == fullScale {
		return bytes
	}
	return bytes / fullScale * scale
}

// adapt adapts the parts to the memory that is in use after a collection.
func (b *Budget) adapt(inUse int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	least := int64(0)
	for c := range NumConsumers {
		inUse -= b.usedBy(c)
		least += b.parts[c].Min
	}
	room := min(b.total-b.own, b.total-b.total/collectorPart-inUse)

	b.spare = max(0, min(b.shared, room-least))
	b.scale.Store(min(fullScale, max(leastScale, room*fullScale/least)))
	b.lent = 0
	for c := range NumConsumers {
		p := &b.parts[c]
		b.lent += max(p.Used-b.Scaled(p.Min), 0)
	}
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
