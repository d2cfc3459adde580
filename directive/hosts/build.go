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

// A builder gathers the lines of all sources and makes an index of them.
type builder struct {
	zones   []wire.Name // what is outside of them is left out
	reverse bool        // there are reverse names

	names index // of the names so far: data and cells alone
	taken int   // cells
	hosts []host
	links []link
	lost  int // names that there was no room for
}

// A host is a name so far, with the first and the last of its addresses.
type host struct{ name, first, last uint32 }

// A link is one address of a name, and the place of the next one.
type link struct {
	addr [16]byte
	next uint32
}

const noLink = 1<<32 - 1

func newBuilder(zones []wire.Name, reverse bool) *builder {
	return &builder{zones: zones, reverse: reverse, names: index{seed: maphash.MakeSeed(), cells: make([]cell, 16)}}
}

// expect makes room for lines of so many bytes altogether, of which most have
// one name. It need not be right: what is too small grows.
func (b *builder) expect(lines, size int) {
	const short = 16 // bytes; a file of empty lines needs no room
	lines = min(lines, size/short)
	b.hosts, b.links = slices.Grow(b.hosts, lines), slices.Grow(b.links, lines)
	b.names.data = slices.Grow(b.names.data, size)
	b.names.grow(cellsFor(lines))
}

// cellsFor is how many cells so many names need.
func cellsFor(names int) int {
	size := 16
	for size*cellsLoad < names*4 {
		size *= 2
	}
	return size
}

// full says that an index cannot hold more: the names, or the addresses, could
// have offsets that do not fit.
func (b *builder) full() bool {
	return len(b.names.data)+len(b.links)*(16+10) > maxData-wire.MaxName-16
}

// add takes in one address of one name.
func (b *builder) add(addr netip.Addr, name []byte) {
	if _, ok := b.zoneOf(name); !ok {
		return
	}
	if b.full() {
		b.lost++
		return
	}
	at := uint32(len(b.links))
	b.links = append(b.links, link{addr.As16(), noLink})
	x := &b.names
	c, free := x.find(name)
	if c != 0 {
		h := &b.hosts[b.number(c)]
		b.links[h.last].next = at
		h.last = at
		return
	}
	b.hosts = append(b.hosts, host{uint32(len(x.data)) + 4, at, at})
	x.data = binary.BigEndian.AppendUint32(x.data, uint32(len(b.hosts)-1))
	offset := uint32(len(x.data))
	x.data = append(x.data, name...)
	x.insert(name, free, offset, 0, &b.taken)
}

// number is the place in hosts of the name in a cell: it stands before it.
func (b *builder) number(c cell) uint32 {
	return binary.BigEndian.Uint32(b.names.data[c.offset()-4:])
}

// zoneOf is the shortest zone that a name is in.
func (b *builder) zoneOf(name []byte) (zone wire.Name, ok bool) {
	for _, z := range b.zones {
		if (!ok || len(z) < len(zone)) && wire.Within(name, z) {
			zone, ok = z, true
		}
	}
	return zone, ok
}

// A pair is an address and one of its names.
type pair struct {
	addr [16]byte
	name uint32
}

// index makes the index. The builder is of no use afterwards.
func (b *builder) index() *index {
	x := &index{seed: maphash.MakeSeed(), cells: make([]cell, cellsFor(len(b.hosts)))}
	x.data = make([]byte, 0, len(b.names.data)+2*len(b.hosts)+8*len(b.links))
	taken := 0
	var pairs []pair
	if b.reverse {
		pairs = make([]pair, 0, len(b.links))
	}
	var known addressSet
	for i := range b.hosts {
		offset := uint32(len(x.data))
		name := b.names.name(b.hosts[i].name)
		x.data = append(x.data, name...)
		_, at := x.find(name)
		x.insert(name, at, offset, 0, &taken)
		known.gather(b, b.hosts[i])
		b.hosts[i].name = offset
		x.data = binary.AppendUvarint(x.data, uint64(len(known.v4)))
		x.data = binary.AppendUvarint(x.data, uint64(len(known.v6)))
		for _, addr := range known.v4 {
			x.data = append(x.data, addr[12:]...)
		}
		for _, addr := range known.v6 {
			x.data = append(x.data, addr[:]...)
		}
		x.entries += len(known.v4) + len(known.v6)
		x.depth = max(x.depth, wire.Name(name).Labels())
		if isWildcard(name) {
			x.wild = true // of which there is no reverse name
		} else if b.reverse {
			for _, addr := range known.v4 {
				pairs = append(pairs, pair{addr, offset})
			}
			for _, addr := range known.v6 {
				pairs = append(pairs, pair{addr, offset})
			}
		}
	}
	b.links, b.names = nil, index{} // they are large, and of no use any more
	b.addBetween(x, &taken)
	x.addReverse(pairs)
	x.data = slices.Clip(x.data)
	return x
}

// addBetween adds the names that others are below, in the directive's zones.
func (b *builder) addBetween(x *index, taken *int) {
	for _, h := range b.hosts {
		name := x.name(h.name)
		zone, _ := b.zoneOf(name)
		for rest := name; len(rest) > len(zone); {
			rest = rest[1+int(rest[0]):]
			c, at := x.find(rest)
			if c != 0 {
				break // what is above it is there, or comes with it
			}
			x.insert(rest, at, h.name+uint32(len(name)-len(rest)), between, taken)
		}
	}
}

// addReverse orders the names of each address as their lines were.
func (x *index) addReverse(pairs []pair) {
	slices.SortFunc(pairs, func(a, b pair) int {
		return cmp.Or(bytes.Compare(a.addr[:], b.addr[:]), cmp.Compare(a.name, b.name))
	})
	x.entries += len(pairs)
	x.names = make([]uint32, 0, len(pairs))
	for i, p := range pairs {
		if i == 0 || p.addr != pairs[i-1].addr {
			x.addrs = append(x.addrs, p.addr)
			x.first = append(x.first, uint32(i))
		}
		x.names = append(x.names, p.name)
	}
	x.first = append(x.first, uint32(len(pairs)))
	x.addrs, x.first = slices.Clip(x.addrs), slices.Clip(x.first)
}

// An addressSet is the different addresses of one name, in their order.
type addressSet struct {
	v4, v6 [][16]byte
	seen   map[[16]byte]struct{} // only if there are many
}

// few addresses are compared with each other.
const few = 16

func (s *addressSet) gather(b *builder, h host) {
	s.v4, s.v6, s.seen = s.v4[:0], s.v6[:0], nil
	for at := h.first; at != noLink; at = b.links[at].next {
		addr := b.links[at].addr
		if s.has(addr) {
			continue
		}
		if netip.AddrFrom16(addr).Is4In6() {
			s.v4 = append(s.v4, addr)
		} else {
			s.v6 = append(s.v6, addr)
		}
	}
}

// has says whether the address is there already, and remembers it.
func (s *addressSet) has(addr [16]byte) bool {
	if s.seen == nil {
		if len(s.v4)+len(s.v6) < few {
			return slices.Contains(s.v4, addr) || slices.Contains(s.v6, addr)
		}
		s.seen = map[[16]byte]struct{}{}
		for _, a := range slices.Concat(s.v4, s.v6) {
			s.seen[a] = struct{}{}
		}
	}
	_, ok := s.seen[addr]
	s.seen[addr] = struct{}{}
	return ok
}
