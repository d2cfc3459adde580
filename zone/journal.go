package zone

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"iter"
	"slices"

	"github.com/seamark/seamark/sys/memory"
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

// Then returns the journal with the difference between two versions with these SOA records: records in wire form
// that were removed and added. It leaves out the oldest ones beyond MaxJournal. It is empty if more of the SOA
// record than its serial number has changed: Since has only the present one.
func (j Journal) Then(before, now, removed, added []byte) Journal {
	last := &delta{SOASerial(before), SOASerial(now), removed, added}
	before = slices.Clone(before)
	if copy(before[len(before)-20:], now[len(now)-20:][:4]); !bytes.Equal(before, now) {
		return Journal{}
	}
	j = Journal{slices.Concat(j.deltas, []*delta{last}), j.bytes + last.size()}
	return j.Newest(MaxJournal)
}

// Newest returns the journal without the oldest differences beyond a number of bytes, which is not negative.
func (j Journal) Newest(bytes int) Journal {
	for j.bytes > bytes {
		j.bytes -= j.deltas[0].size()
		j.deltas = j.deltas[1:]
	}
	return j
}

// Within returns the journal without the oldest differences for which there is no memory, and makes the claim as large
// as it. A journal leaves half of the memory free: the next version, and its transfer, are worth more than it.
func (j Journal) Within(memory *memory.Claim) Journal {
	j = j.Newest(int(memory.Half()))
	memory.Set(int64(j.bytes))
	return j
}

// Bytes returns about the memory of the journal.
func (j Journal) Bytes() int { return j.bytes }

// savedHead is the size of a saved delta without its records: two serial numbers, and the sizes of the parts.
const savedHead = 16

// Save writes the journal in the form that ParseJournal reads, with its size in four bytes before it.
func (j Journal) Save(to io.Writer) error {
	w := bufio.NewWriter(to)
	_, _ = w.Write(binary.BigEndian.AppendUint32(nil, uint32(j.bytes-(deltaCost-savedHead)*len(j.deltas))))
	for _, d := range j.deltas {
		head := make([]byte, 0, savedHead)
		for _, v := range [...]uint32{d.from, d.to, uint32(len(d.removed)), uint32(len(d.added))} {
			head = binary.BigEndian.AppendUint32(head, v)
		}
		_, _ = w.Write(head)
		_, _ = w.Write(d.removed)
		_, _ = w.Write(d.added)
	}
	return w.Flush()
}

// ParseJournal returns the journal in data, which it keeps, of a version with a serial number.
func ParseJournal(data []byte, serial uint32) (j Journal, ok bool) {
	for len(data) > 0 {
		if len(data) < savedHead {
			return Journal{}, false
		}
		var head [4]uint32
		for i := range head {
			head[i] = binary.BigEndian.Uint32(data[4*i:])
		}
		data = data[savedHead:]
		removed, both := uint64(head[2]), uint64(head[2])+uint64(head[3])
		if both > uint64(len(data)) {
			return Journal{}, false
		}

		d := &delta{head[0], head[1], data[:removed:removed], data[removed:both:both]}
		data = data[both:]
		if n := len(j.deltas); n > 0 && j.deltas[n-1].to != d.from || !areRecords(d.removed) || !areRecords(d.added) {
			return Journal{}, false
		}
		j.deltas, j.bytes = append(j.deltas, d), j.bytes+d.size()
	}
	n := len(j.deltas)
	return j, n == 0 || j.deltas[n-1].to == serial
}

// areRecords reports whether data is whole records.
func areRecords(data []byte) bool { return EachRecord(data, func([]byte) bool { return true }) }

// Since yields the differences from an earlier version to the present one: see [Differ]. soa is the present
// SOA record.
func (j Journal) Since(serial uint32, soa []byte) (iter.Seq[[]byte], bool) {
	first := len(j.deltas) - 1 // most servers have a version of the last seconds
	for first >= 0 && j.deltas[first].from != serial {
		first--
	}
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
