package hosts

import (
	"bytes"
	"encoding/binary"
	"hash/maphash"
	"net/netip"
	"slices"
	"sort"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// An index has the names and addresses of all lines. It is immutable. It contains
// no pointers besides those to its few slices and maps, so that a million names cost
// the garbage collector nothing.
type index struct {
	// data has for each name: the name in wire form, the numbers of its IPv4 and its
	// IPv6 addresses as uvarints, and the addresses.
	data []byte
	// names has the position of each name, and of each name above one, by hash. Names
	// with equal hashes have consecutive keys.
	names map[uint64]position
	seed  maphash.Seed
	wild  bool // a name begins with *
	depth int  // labels of the longest name

	// addrs is sorted. The names of addrs[i] are ptrs[first[i]:first[i+1]], as offsets
	// in data.
	addrs   [][16]byte
	first   []uint32
	ptrs    []uint32
	entries int // addresses of names and names of addresses
}

// A position is the offset of a name in an index's data. The names above a name are
// its suffixes; their positions have the mark above.
type position uint32

const (
	above   position = 1 << 31
	maxData          = 1<<31 - 2 // the largest offset
)

func (p position) offset() uint32 { return uint32(p &^ above) }

// find returns the position of a name in wire form and lower case. If ok is false,
// key is the free key for it.
func (x *index) find(name []byte) (p position, key uint64, ok bool) {
	for key = maphash.Bytes(x.seed, name); ; key++ {
		p, ok = x.names[key]
		if !ok || bytes.HasPrefix(x.data[p.offset():], name) { // both end with the root label
			return p, key, ok
		}
	}
}

// nameLen returns the length of the name at the beginning of data.
func nameLen(data []byte) int {
	n := 0
	for data[n] != 0 {
		n += 1 + int(data[n])
	}
	return n + 1
}

// A found is the result of a lookup.
type found uint8

const (
	missing found = iota // the name does not exist
	empty                // there are only names below the name
	present              // the name has addresses
)

// lookup finds the query name, or the wildcard that matches it (RFC 4592): the one
// below the closest existing name above the query name. The zone's name, which has
// zoneLabels labels, always exists.
func (x *index) lookup(q *dns.Query, zoneLabels int) (addresses, found) {
	name := q.Name()
	if p, _, ok := x.find(name); ok {
		return x.at(p)
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
			if _, _, ok := x.find(encloser); !ok {
				continue
			}
		}
		if p, _, ok := x.find(append(append(room[:0], 1, '*'), encloser...)); ok {
			return x.at(p)
		}
		return addresses{}, missing
	}
}

// at returns the addresses of the name at a position.
func (x *index) at(p position) (addresses, found) {
	if p&above != 0 {
		return addresses{}, empty
	}
	data := x.data[p.offset():]
	data = data[nameLen(data):]
	n4, size := binary.Uvarint(data)
	data = data[size:]
	n6, size := binary.Uvarint(data)
	data = data[size:]
	return addresses{data[:4*n4], data[4*n4:][:16*n6]}, present
}

// addresses are the addresses of a name, four and sixteen bytes each. IPv4 addresses
// are sorted if they are many.
type addresses struct{ v4, v6 []byte }

// many reports whether IPv4 addresses are more than a UDP reply of 4096 bytes holds.
func many(v4 []byte) bool { return len(v4) > 4*256 }

// within returns the addresses of v4 that are in network. v4 must be sorted.
func within(v4 []byte, network netip.Prefix) []byte {
	search := func(addr uint64) int {
		return 4 * sort.Search(len(v4)/4, func(i int) bool { return uint64(binary.BigEndian.Uint32(v4[4*i:])) >= addr })
	}
	from := network.Masked().Addr().As4()
	first := uint64(binary.BigEndian.Uint32(from[:]))
	return v4[search(first):search(first+1<<(32-network.Bits()))]
}

// namesOf returns the names of an address, as offsets for name.
func (x *index) namesOf(addr netip.Addr) []uint32 {
	if !addr.IsValid() || addr.Is4In6() {
		return nil
	}
	key := addr.As16()
	i, ok := slices.BinarySearchFunc(x.addrs, key, func(a, b [16]byte) int { return bytes.Compare(a[:], b[:]) })
	if !ok {
		return nil
	}
	return x.ptrs[x.first[i]:x.first[i+1]]
}

// name returns the name at an offset, in wire form.
func (x *index) name(offset uint32) []byte {
	data := x.data[offset:]
	return data[:nameLen(data)]
}
