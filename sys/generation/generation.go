// Package generation counts changes of data, so that a copy of something that was made from
// the data can be used until the data change. The copies may be in another process or in the
// kernel, which see the counters in shared memory.
//
// A writer encloses each change in Begin and End:
//
//	Begin(key); the change becomes visible to readers; End(key)
//
// A reader calls Read before it looks at the data, and stores the Stamp with its copy. A copy
// is used only while its Stamp is current.
//
// This guarantees: once a reader has found new data, no copy that was made from the data
// before is current. For if the Begin of the change follows the Read of the copy's Stamp, the
// counter has changed before the new data are visible. If it precedes the Read, so does the
// End, because Read fails in between: the copy is made from the new data. One increment
// would not be enough: before the change, a Read between the increment and the change would
// return a Stamp for old data that stays current; after it, readers of the new data and
// users of an old copy would exist at the same time.
package generation

import (
	"hash/maphash"
	"sync/atomic"
)

// Cells are the counters of many keys. Keys with the same hash share one, so that a copy may
// become outdated without a change of its own data, but not the reverse. All methods are
// safe for concurrent use. A nil *Cells counts nothing.
type Cells struct {
	seed  maphash.Seed
	cells []atomic.Uint64
}

// The first cells. The others are those of keys.
const (
	constant   = iota // never changes
	everything        // the key ""
	firstKey
)

// MaxCells is the largest useful number of cells: a Stamp has indexes of two bytes.
const MaxCells = 1 << 16

// A cell has the number of changes that have begun, and in the lowest bits the number of those
// that have not ended. Its value is never the same again before 2^48 changes.
const (
	openBits = 16
	open     = 1<<openBits - 1
	change   = 1 << openBits
)

// New returns Cells in memory that may be shared with users of copies: 3 to MaxCells counters,
// with any values. Stamps that were read earlier, by other Cells in the same memory, are
// not current any more.
func New(memory []atomic.Uint64) *Cells {
	c := &Cells{seed: maphash.MakeSeed(), cells: memory}
	c.cells[constant].Store(0)
	for i := everything; i < len(c.cells); i++ {
		// A process may have died between Begin and End.
		c.cells[i].Store(c.cells[i].Load()&^open + change)
	}
	return c
}

// Begin announces a change of the data of a key, or of all data if the key is empty.
func (c *Cells) Begin(key string) {
	if c != nil {
		c.cells[c.indexOf(maphash.String(c.seed, key), key == "")].Add(change + 1)
	}
}

// End ends a change that Begin has announced.
func (c *Cells) End(key string) {
	if c != nil {
		c.cells[c.indexOf(maphash.String(c.seed, key), key == "")].Add(^uint64(0))
	}
}

func (c *Cells) indexOf(hash uint64, all bool) uint16 {
	if all {
		return everything
	}
	return firstKey + uint16(hash%uint64(len(c.cells)-firstKey))
}

// A Stamp has the generations of the data that something was made from: the indexes of three
// cells, and the sum of their values. The zero Stamp is always current.
type Stamp struct {
	Cells [3]uint16
	Sum   uint64
}

// Read returns the Stamp of what is made from the data of two keys, of which the second or both
// may be empty, and from all data. ok is false while one of them changes: then there is no
// Stamp.
func (c *Cells) Read(a, b []byte) (s Stamp, ok bool) {
	s.Cells[0] = everything
	for i, key := range [2][]byte{a, b} {
		if len(key) > 0 { // else it is constant
			s.Cells[i+1] = c.indexOf(maphash.Bytes(c.seed, key), false)
		}
	}

	// Values only grow, by at least 1<<16 - 1 for a change, so their sum is the same as long as all are.
	var opened uint64
	for _, i := range s.Cells {
		v := c.cells[i].Load()
		opened |= v & open
		s.Sum += v
	}
	return s, opened == 0
}

// Current reports whether the data have not changed since s was read.
func (c *Cells) Current(s Stamp) bool {
	var sum uint64
	for _, i := range s.Cells {
		sum += c.cells[i].Load()
	}
	return sum == s.Sum
}
