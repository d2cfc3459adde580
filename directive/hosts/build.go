package hosts

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math"
	"net/netip"
	"slices"

	"github.com/seamark/seamark/wire"
)

// A builder collects the lines of all sources and builds an index.
type builder struct {
	zones   []wire.Name // names outside are ignored
	reverse bool        // the index has names of addresses

	keys    []byte // of all pairs, each after its length
	pairs   []pair
	ignored int // pairs for which the index has no room
}

// A pair is an address and one of its names: the offset of its key in a builder, or
// of the name in an index. line is the offset of the name's first key in a builder:
// it keeps the order of the lines.
type pair struct {
	addr       [16]byte
	name, line uint32
}

func newBuilder(zones []wire.Name, reverse bool) *builder {
	return &builder{zones: zones, reverse: reverse}
}

// expect allocates memory for a number of lines, with one name each, and their
// total size in bytes. It is an optimization.
func (b *builder) expect(lines, size int) {
	const short = 16 // bytes; a file of empty lines needs no memory
	b.keys, b.pairs = slices.Grow(b.keys, size), slices.Grow(b.pairs, min(lines, size/short))
}

// add adds an address of a name.
func (b *builder) add(addr netip.Addr, name []byte) {
	const most = 16 + 10 // bytes of a pair in an index, besides its key
	switch {
	case !slices.ContainsFunc(b.zones, func(zone wire.Name) bool { return wire.Within(name, zone) }):
	case uint64(len(b.keys)+most*len(b.pairs)) > math.MaxUint32-wire.MaxName-most: // offsets in the index might not fit
		b.ignored++
	default:
		at := uint32(len(b.keys))
		b.pairs = append(b.pairs, pair{addr.As16(), at, at})
		b.keys = append(b.keys, byte(len(name)-1))
		b.keys = appendReversed(b.keys, name[:len(name)-1])
	}
}

// index builds the index. The builder must not be used afterwards.
func (b *builder) index() *index {
	x := &index{data: make([]byte, 0, len(b.keys)+8*len(b.pairs))}
	key := func(p pair) []byte { return prefixed(b.keys[p.name:]) }
	slices.SortFunc(b.pairs, func(p, q pair) int {
		return cmp.Or(bytes.Compare(key(p), key(q)), cmp.Compare(p.line, q.line))
	})

	ptrs := b.pairs[:0] // of x
	for rest := b.pairs; len(rest) > 0; {
		name, end := key(rest[0]), 1
		for end < len(rest) && bytes.Equal(key(rest[end]), name) {
			end++
		}

		line, offset := rest[0].line, uint32(len(x.data))
		addrs := unique(rest[:end])
		rest = rest[end:]

		wild := bytes.HasSuffix(name, []byte("\x01*"))
		x.wild = x.wild || wild
		x.addName(name, addrs)
		if b.reverse && !wild {
			for _, p := range addrs {
				ptrs = append(ptrs, pair{p.addr, offset, line})
			}
		}
	}

	x.addReverse(ptrs)
	x.data, x.names = slices.Clip(x.data), slices.Clip(x.names)
	return x
}

// unique removes duplicates from the pairs of one name. It keeps the order of the
// lines, and overwrites pairs.
func unique(pairs []pair) []pair {
	byLine := func(p, q pair) int { return cmp.Compare(p.line, q.line) }
	slices.SortFunc(pairs, func(p, q pair) int { return cmp.Or(bytes.Compare(p.addr[:], q.addr[:]), byLine(p, q)) })
	pairs = slices.CompactFunc(pairs, func(p, q pair) bool { return p.addr == q.addr })
	slices.SortFunc(pairs, byLine)
	return pairs
}

// addName adds the next name, by its key, and its addresses.
func (x *index) addName(key []byte, addrs []pair) {
	var v4, v6 int
	for _, p := range addrs {
		if isIPv4(p.addr) {
			v4++
		} else {
			v6++
		}
	}

	x.names = append(x.names, uint32(len(x.data)))
	x.data = append(append(x.data, byte(len(key))), key...)
	x.data = binary.AppendUvarint(x.data, uint64(v4))
	x.data = binary.AppendUvarint(x.data, uint64(v6))

	begin := len(x.data)
	for _, p := range addrs {
		if isIPv4(p.addr) {
			x.data = append(x.data, p.addr[12:]...)
		}
	}
	if many(x.data[begin:]) {
		sortAddresses(x.data[begin:])
	}

	for _, p := range addrs {
		if !isIPv4(p.addr) {
			x.data = append(x.data, p.addr[:]...)
		}
	}
	x.entries += len(addrs)
}

func isIPv4(addr [16]byte) bool { return netip.AddrFrom16(addr).Is4In6() }

// sortAddresses sorts IPv4 addresses of four bytes each.
func sortAddresses(v4 []byte) {
	sorted := slices.SortedFunc(slices.Chunk(slices.Clone(v4), 4), bytes.Compare)
	for i, addr := range sorted {
		copy(v4[4*i:], addr)
	}
}

// addReverse sets the names of the addresses, in the order of their lines.
func (x *index) addReverse(ptrs []pair) {
	slices.SortFunc(ptrs, func(a, b pair) int {
		return cmp.Or(bytes.Compare(a.addr[:], b.addr[:]), cmp.Compare(a.line, b.line))
	})

	x.entries += len(ptrs)
	x.ptrs = make([]uint32, 0, len(ptrs))
	for i, p := range ptrs {
		if i == 0 || p.addr != ptrs[i-1].addr {
			x.addrs = append(x.addrs, p.addr)
			x.first = append(x.first, uint32(i))
		}
		x.ptrs = append(x.ptrs, p.name)
	}
	x.first = append(x.first, uint32(len(ptrs)))
	x.addrs, x.first = slices.Clip(x.addrs), slices.Clip(x.first)
}
