package traffic

import (
	"unsafe"

	"github.com/seamark/seamark/sys/memory"
	"github.com/seamark/seamark/wire"
)

const (
	// counterSize is the memory of a counter without what it points to, with its places in the top.
	counterSize = int64(unsafe.Sizeof(counter{})) + 64
	// recordSize is the memory of an event with the longest names.
	recordSize = int64(unsafe.Sizeof(record{})) + 2*wire.MaxName
	// fixedSize is the memory of what does not grow.
	fixedSize = queueSize*recordSize + 2*int64(unsafe.Sizeof(distinct{})) + points*int64(unsafe.Sizeof(point{}))
)

// A recordMemory is what a Recorder has reserved. A nil one has no limit.
type recordMemory struct {
	claim *memory.Claim
	used  int64
}

// grow reserves bytes. It reports whether there are any, or they are needed in any case.
func (m *recordMemory) grow(bytes int64, needed bool) bool {
	if m == nil {
		return true
	}
	if m.claim.Grow(m.used+bytes) != nil {
		if !needed {
			return false
		}
		m.claim.Set(m.used + bytes)
	}
	m.used += bytes
	return true
}

// shrink ends the use of bytes.
func (m *recordMemory) shrink(bytes int64) {
	if m != nil {
		m.used -= bytes
		m.claim.Set(m.used)
	}
}

// newRing returns memory for recent events, for fewer where there is little.
func (m *recordMemory) newRing() []record {
	m.grow(fixedSize, true)
	n := ringSize
	for !m.grow(int64(n)*recordSize, n <= leastRing) {
		n /= 2
	}
	return make([]record, n)
}
