package transport

import (
	"math"

	"github.com/seamark/seamark/sys/memory"
)

// The memory of a connection that is counted in the server's budget, in bytes: of an idle one,
// with the kernel's part, and some of what one with queries needs.
const (
	tcpSize     = 6 << 10
	tlsSize     = 40 << 10
	httpsSize   = 80 << 10
	sessionSize = 96 << 10
)

// fewest is how many connections a listener may have in any case, so that those of other
// listeners do not exclude its clients.
const fewest = 4

// A connMemory is the memory of the connections of one listener.
type connMemory struct {
	budget *memory.Budget
	kind   memory.Consumer
	size   int64 // of a connection
}

// reserve reserves the memory of one more connection. It returns false if there is none.
func (m connMemory) reserve(open int) bool {
	return m.budget.ReserveLeast(m.kind, m.size, open, fewest) == nil
}

// room returns how many connections have room if others use little.
func (m connMemory) room() int {
	return int(max(fewest, min(m.budget.Max(m.kind)/m.size, math.MaxInt32)))
}

// force counts a connection that takes the place of another one.
func (m connMemory) force() { m.budget.Force(m.kind, m.size) }

func (m connMemory) release() { m.budget.Release(m.kind, m.size) }

// blockedSize is what a client that does not read its replies costs beside those that wait: the
// kernel's buffer, which is full.
const blockedSize = 16 << 10
