package hosts

import (
	"bytes"
	"encoding/binary"
	"hash/maphash"
	"net/netip"
	"slices"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// An index is what all lines together say. It never changes: a change of the
// lines makes another one. It holds no pointers but those to its few arrays, so
// that a million names cost the garbage collector nothing.
type index struct {
	// data has, for each name: the name in wire form; how many IPv4 and how
	// many IPv6 addresses it has, as uvarints; these addresses.
	data []byte
	// cells is an open-addressed table of the names in data, and of the names
	// that others are below: the ends of these others.
	cells []cell
	seed  maphash.Seed
	wild  bool // there is a name that begins with *
	depth int  // labels of the longest name

	// addrs is sorted. The names of addrs[i] are at names[first[i]:first[i+1]],
	// as offsets in data.
	addrs   [][16]byte
	first   []uint32
	names   []uint32
	entries int // addresses of names, and names of addresses
}

// A cell is free if it is zero. The upper half is of the name's hash; the lower
// one is the name's offset in data, plus one, with a mark if there are only
// names below it.
type cell uint64

const (
	between   cell = 1 << 31
	maxData        = 1<<31 - 2 // what the offset can say
	hashBits  cell = 0xFFFFFFFF << 32
	cellsLoad      = 3 // of four cells may be taken
)

func (c cell) offset() uint32 { return uint32(c&^between) - 1 }

// find gives the cell of a name in wire form and lower case; zero if there is
// none, and where it would have to be.
func (x *index) find(name []byte) (c cell, at uint64) {
	hash := maphash.Bytes(x.seed, name)
	mask := uint64(len(x.cells) - 1)
	for at = hash & mask; ; at = (at + 1) & mask {
		c = x.cells[at]
		if c == 0 {
			return 0, at
		}
		if c&hashBits == cell(hash)&hashBits && bytes.HasPrefix(x.data[c.offset():], name) {
			return c, at // the root label ends both
		}
	}
}

// insert adds a name that find has not found, and whose place it has told.
func (x *index) insert(name []byte, at uint64, offset uint32, mark cell, taken *int) {
	x.cells[at] = cell(maphash.Bytes(x.seed, name))&hashBits | mark | cell(offset+1)
	if *taken++; *taken*4 > len(x.cells)*cellsLoad {
		x.grow(2 * len(x.cells))
	}
}

// grow makes the table larger.
func (x *index) grow(size int) {
	old := x.cells
	x.cells = make([]cell, size)
	mask := uint64(size - 1)
	for _, c := range old {
		if c == 0 {
			continue
		}
		name := x.data[c.offset():]
		at := maphash.Bytes(x.seed, name[:nameLen(name)]) & mask
		for x.cells[at] != 0 {
			at = (at + 1) & mask
		}
		x.cells[at] = c
	}
}

// nameLen is the length of the name that data begins with.
func nameLen(data []byte) int {
	n := 0
	for data[n] != 0 {
		n += 1 + int(data[n])
	}
	return n + 1
}

// A found says what there is of a name.
type found uint8

const (
	missing found = iota // nothing: it does not exist
	empty                // names below it
	present              // addresses
)

// lookup finds the question's name, or the wildcard that stands for it (RFC
// 4592): the one right below the closest name above it that exists. The zone's
// own name, which has so many labels, always exists.
func (x *index) lookup(q *dns.Query, zoneLabels int) (addresses, found) {
	name := q.Name()
	if c, _ := x.find(name); c != 0 {
		return x.found(c)
	}
	labels := q.Labels()
	apex := labels - zoneLabels
	if apex == 0 {
		return addresses{}, empty
	}
	if !x.wild {
		return addresses{}, missing
	}
	var room [wire.MaxName]byte
	for i := min(max(1, labels-x.depth), apex); ; i++ {
		encloser := name[q.LabelOffset(i):]
		if i < apex {
			if c, _ := x.find(encloser); c == 0 {
				continue
			}
		}
		c, _ := x.find(append(append(room[:0], 1, '*'), encloser...))
		if c == 0 {
			return addresses{}, missing
		}
		return x.found(c)
	}
}

func (x *index) found(c cell) (addresses, found) {
	if c&between != 0 {
		return addresses{}, empty
	}
	data := x.data[c.offset():]
	return readAddresses(data[nameLen(data):]), present
}

// addresses are those of one name, four and sixteen bytes each.
type addresses struct{ v4, v6 []byte }

func readAddresses(data []byte) addresses {
	n4, size := binary.Uvarint(data)
	data = data[size:]
	n6, size := binary.Uvarint(data)
	data = data[size:]
	return addresses{data[:4*n4], data[4*n4:][:16*n6]}
}

// namesOf gives the names of an address, as offsets for name.
func (x *index) namesOf(addr netip.Addr) []uint32 {
	if !addr.IsValid() || addr.Is4In6() {
		return nil
	}
	key := addr.As16()
	i, ok := slices.BinarySearchFunc(x.addrs, key, func(a, b [16]byte) int { return bytes.Compare(a[:], b[:]) })
	if !ok {
		return nil
	}
	return x.names[x.first[i]:x.first[i+1]]
}

// name is the one at an offset, in wire form.
func (x *index) name(offset uint32) []byte {
	data := x.data[offset:]
	return data[:nameLen(data)]
}
