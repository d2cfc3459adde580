package zone

import (
	"encoding/binary"
	"iter"
	"slices"

	"github.com/seamark/seamark/wire"
)

// MaxJournal is the number of bytes of differences that a zone keeps. A server that has an
// older version transfers the whole zone.
const MaxJournal = 8 << 20

// A Journal is the history of a zone that changes while it is served: the differences that IXFR sends. It
// is immutable, and the zero Journal is empty.
type Journal struct {
	deltas []*delta // oldest first; the last one leads to the present version
	bytes  int      // of deltas
}

// A delta is the difference between two versions.
type delta struct {
	from, to       uint32
	removed, added []byte // records in wire form
}

// deltaCost is about the bytes of memory of a delta without records.
const deltaCost = 96

func (d *delta) size() int { return deltaCost + len(d.removed) + len(d.added) }

// Then returns the journal with the difference between two versions: records in wire form that were removed
// and added. It leaves out the oldest ones beyond MaxJournal.
func (j Journal) Then(from, to uint32, removed, added []byte) Journal {
	last := &delta{from, to, removed, added}
	j = Journal{slices.Concat(j.deltas, []*delta{last}), j.bytes + last.size()}
	for j.bytes > MaxJournal {
		j.bytes -= j.deltas[0].size()
		j.deltas = j.deltas[1:]
	}
	return j
}

// Bytes returns about the memory of the journal.
func (j Journal) Bytes() int { return j.bytes }

// Since yields the differences from an earlier version to the present one: see [Differ]. soa is the present
// SOA record.
func (j Journal) Since(serial uint32, soa []byte) (iter.Seq[[]byte], bool) {
	first := slices.IndexFunc(j.deltas, func(d *delta) bool { return d.from == serial })
	if first < 0 {
		return nil, false
	}
	return func(yield func([]byte) bool) {
		soa := slices.Clone(soa)
		for _, d := range j.deltas[first:] {
			for _, part := range [2]struct {
				serial  uint32
				records []byte
			}{{d.from, d.removed}, {d.to, d.added}} {
				binary.BigEndian.PutUint32(soa[len(soa)-20:], part.serial)
				if !yield(soa) || !EachRecord(part.records, yield) {
					return
				}
			}
		}
	}, true
}

// EachRecord yields records in wire form one by one. It returns false if yield did.
func EachRecord(records []byte, yield func([]byte) bool) bool {
	for len(records) > 0 {
		r, ok := wire.ReadRecord(records, 0)
		if !ok || !yield(records[:r.Next]) {
			return false
		}
		records = records[r.Next:]
	}
	return true
}
