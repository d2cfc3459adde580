package hosts

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"hash/maphash"
	"net/netip"
	"slices"

	"github.com/seamark/seamark/wire"
)

// A builder collects the lines of all sources and builds an index.
type builder struct {
	zones   []wire.Name // names outside are ignored
	reverse bool        // the index has names of addresses

	names   index    // has data and names only; data has each name after its number
	offsets []uint32 // of the names in names.data, by number
	pairs   []pair
	ignored int // names for which the index has no room
}

// A pair is an address and one of its names: its number in a builder, or its offset
// in an index. line keeps the order of the lines.
type pair struct {
	addr       [16]byte
	name, line uint32
}

func newBuilder(zones []wire.Name, reverse bool) *builder {
	return &builder{zones: zones, reverse: reverse, names: index{seed: maphash.MakeSeed(), names: map[uint64]position{}}}
}

// expect allocates memory for a number of lines, with one name each, and their
// total size in bytes. It is an optimization.
func (b *builder) expect(lines, size int) {
	const short = 16 // bytes; a file of empty lines needs no memory
	lines = min(lines, size/short)
	b.offsets, b.pairs = slices.Grow(b.offsets, lines), slices.Grow(b.pairs, lines)
	b.names.data = slices.Grow(b.names.data, size)
	b.names.names = make(map[uint64]position, lines)
}

// full reports whether the offsets of another name might not fit.
func (b *builder) full() bool {
	return len(b.names.data)+len(b.pairs)*(16+10) > maxData-wire.MaxName-16
}

// add adds an address of a name.
func (b *builder) add(addr netip.Addr, name []byte) {
	if _, ok := b.zoneOf(name); !ok {
		return
	}
	if b.full() {
		b.ignored++
		return
	}
	x := &b.names
	p, key, ok := x.find(name)
	var number uint32
	if ok {
		number = binary.BigEndian.Uint32(x.data[p.offset()-4:])
	} else {
		number = uint32(len(b.offsets))
		x.data = binary.BigEndian.AppendUint32(x.data, number)
		p = position(len(x.data))
		x.data = append(x.data, name...)
		x.names[key] = p
		b.offsets = append(b.offsets, p.offset())
	}
	b.pairs = append(b.pairs, pair{addr.As16(), number, uint32(len(b.pairs))})
}

// zoneOf returns the shortest zone that contains name.
func (b *builder) zoneOf(name []byte) (zone wire.Name, ok bool) {
	for _, z := range b.zones {
		if (!ok || len(z) < len(zone)) && wire.Within(name, z) {
			zone, ok = z, true
		}
	}
	return zone, ok
}

// index builds the index. The builder must not be used afterwards.
func (b *builder) index() *index {
	old := b.names.data
	x := &index{seed: b.names.seed, names: b.names.names}
	x.data = make([]byte, 0, len(old)+2*len(b.offsets)+8*len(b.pairs))
	slices.SortFunc(b.pairs, func(a, c pair) int { return cmp.Or(cmp.Compare(a.name, c.name), cmp.Compare(a.line, c.line)) })
	ptrs := b.pairs[:0] // with offsets in x.data
	for rest := b.pairs; len(rest) > 0; {
		number, end := rest[0].name, 1
		for end < len(rest) && rest[end].name == number {
			end++
		}
		addrs := unique(rest[:end])
		rest = rest[end:]
		offset := uint32(len(x.data))
		name := b.names.name(b.offsets[number])
		x.addName(name, addrs)
		b.offsets[number] = offset
		if b.reverse && !isWildcard(name) {
			for _, p := range addrs {
				ptrs = append(ptrs, pair{p.addr, offset, 0})
			}
		}
	}
	for key, p := range x.names { // now the positions in x.data
		x.names[key] = position(b.offsets[binary.BigEndian.Uint32(old[p.offset()-4:])])
	}
	for _, offset := range b.offsets {
		zone, _ := b.zoneOf(x.name(offset))
		x.addAbove(offset, len(zone))
	}
	x.addReverse(ptrs)
	x.data = slices.Clip(x.data)
	return x
}

// unique returns pairs of one name without duplicates. It keeps their order, and
// overwrites pairs.
func unique(pairs []pair) []pair {
	const few = 16 // addresses are compared one by one
	var seen map[[16]byte]struct{}
	if len(pairs) > few {
		seen = make(map[[16]byte]struct{}, len(pairs))
	}
	kept := pairs[:0]
	for _, p := range pairs {
		if seen == nil {
			if slices.ContainsFunc(kept, func(k pair) bool { return k.addr == p.addr }) {
				continue
			}
		} else if _, ok := seen[p.addr]; ok {
			continue
		} else {
			seen[p.addr] = struct{}{}
		}
		kept = append(kept, p)
	}
	return kept
}

// addName adds a name and its addresses to x.data.
func (x *index) addName(name []byte, addrs []pair) {
	var v4, v6 int
	for _, p := range addrs {
		if isIPv4(p.addr) {
			v4++
		} else {
			v6++
		}
	}
	x.data = append(x.data, name...)
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
	x.depth = max(x.depth, wire.Name(name).Labels())
	x.wild = x.wild || isWildcard(name)
}

func isIPv4(addr [16]byte) bool { return netip.AddrFrom16(addr).Is4In6() }

// sortAddresses sorts IPv4 addresses of four bytes each.
func sortAddresses(v4 []byte) {
	sorted := slices.SortedFunc(slices.Chunk(slices.Clone(v4), 4), bytes.Compare)
	for i, addr := range sorted {
		copy(v4[4*i:], addr)
	}
}

// addAbove adds the names above the name at offset, down to the zone whose name has
// zoneLen bytes.
func (x *index) addAbove(offset uint32, zoneLen int) {
	name := x.name(offset)
	for rest := name; len(rest) > zoneLen; {
		rest = rest[1+int(rest[0]):]
		_, key, ok := x.find(rest)
		if ok {
			return // so are those above it, or they will be
		}
		x.names[key] = position(offset+uint32(len(name)-len(rest))) | above
	}
}

// addReverse sets the names of the addresses, in the order of their lines.
func (x *index) addReverse(ptrs []pair) {
	slices.SortFunc(ptrs, func(a, b pair) int {
		return cmp.Or(bytes.Compare(a.addr[:], b.addr[:]), cmp.Compare(a.name, b.name))
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
