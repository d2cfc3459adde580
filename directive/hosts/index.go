package hosts

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"
	"sort"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// An index has the names and addresses of all lines. It is immutable. It contains
// no pointers besides those to its few slices, so that a million names cost the
// garbage collector nothing.
//
// Names are sorted by key: the name's labels in wire form, the last label first and
// without the root. The key of a name is a prefix of the keys of all names below it.
type index struct {
	// data has for each name: the length of its key, the key, the numbers of its IPv4
	// and its IPv6 addresses as uvarints, and the addresses.
	data  []byte
	names []uint32 // offsets in data, sorted by key
	wild  bool     // a name begins with *

	// addrs is sorted. The names of addrs[i] are ptrs[first[i]:first[i+1]], as offsets
	// in data.
	addrs   [][16]byte
	first   []uint32
	ptrs    []uint32
	entries int // addresses of names and names of addresses
}

// appendReversed appends labels in wire form to buf, the last one first.
func appendReversed(buf, labels []byte) []byte {
	buf = append(buf, labels...)
	for at := len(buf); len(labels) > 0; {
		n := 1 + int(labels[0])
		at -= n
		copy(buf[at:], labels[:n])
		labels = labels[n:]
	}
	return buf
}

// key returns the key at an offset.
func (x *index) key(offset uint32) []byte { return prefixed(x.data[offset:]) }

// prefixed returns the bytes after a length byte.
func prefixed(data []byte) []byte { return data[1:][:data[0]] }

// appendName appends the name at an offset to buf, in wire form.
func (x *index) appendName(buf []byte, offset uint32) []byte {
	return append(appendReversed(buf, x.key(offset)), 0)
}

// A found is the result of a lookup.
type found uint8

const (
	missing found = iota // the name does not exist
	empty                // there are only names below the name
	present              // the name has addresses
)

// search returns the position of a key in x.names, or the position at which it would
// be inserted.
func (x *index) search(key []byte) (i int, found found) {
	// Unlike slices.BinarySearchFunc, Find does not make a key on the stack escape.
	i, ok := sort.Find(len(x.names), func(i int) int { return bytes.Compare(key, x.key(x.names[i])) })
	switch {
	case ok:
		return i, present
	case i < len(x.names) && bytes.HasPrefix(x.key(x.names[i]), key):
		return i, empty
	}
	return i, missing
}

// lookup returns the addresses of the query name, or of the wildcard that matches it.
func (x *index) lookup(q *dns.Query, apex int) (addresses, found) {
	i, found := x.find(q, apex)
	if found != present {
		return addresses{}, found
	}
	return x.addresses(x.names[i]), present
}

// find returns the position in x.names of the query name, or of the wildcard that matches it. As
// in CoreDNS, * stands for exactly one label, whether the name has names below it or not. The
// zone's name, which begins at label apex of the query name, always exists. The position is valid
// if the name is present.
func (x *index) find(q *dns.Query, apex int) (i int, found found) {
	var room [wire.MaxName + 1]byte
	labels := q.Name()[:len(q.Name())-1]
	key := appendReversed(room[:0], labels)
	i, found = x.search(key)
	if found == missing && apex == 0 {
		found = empty
	}
	if found == present || !x.wild || len(labels) == 0 {
		return i, found
	}

	parent := key[:len(key)-1-int(labels[0])]
	if at, match := x.search(append(parent, 1, '*')); match == present {
		return at, present
	}
	return i, found
}

// addresses returns the addresses of the name at an offset.
func (x *index) addresses(offset uint32) addresses {
	data := x.data[int(offset)+1+len(x.key(offset)):]
	n4, size := binary.Uvarint(data)
	data = data[size:]
	n6, size := binary.Uvarint(data)
	data = data[size:]
	return addresses{data[:4*n4], data[4*n4:][:16*n6]}
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

// namesOf returns the names of an address, as offsets for appendName.
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

// reversed reports whether a name, in wire form and lower case, is in a zone of
// reverse names. addr is its address if it is the name of a single address.
func reversed(name []byte) (addr netip.Addr, in bool) {
	if p, ok := wire.ParseReverse(name); ok && p.IsSingleIP() {
		return p.Addr(), true
	}
	return netip.Addr{}, wire.WithinReverse(name)
}
