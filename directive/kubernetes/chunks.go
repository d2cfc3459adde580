package kubernetes

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"
	"sort"
	"sync/atomic"
)

const (
	// chunkSize is how many pairs a chunk holds at the most: so many are copied by
	// a change of one.
	chunkSize = 128
	// listSize is how many a list puts into one: the next few changes find room.
	listSize = 112
)

// A shelf is all pairs of one family of addresses.
type shelf struct{ list atomic.Pointer[chunks] }

// chunks are pairs in order. What belongs to which chunk never changes, so that
// a change replaces only the chunks that it touches, whatever the size of the
// index; another list is made when one gets too large or too small. A nil list
// is empty.
type chunks struct {
	width int // bytes of an address
	firsts
	slots []atomic.Pointer[chunk] // never nil
}

// firsts are the pairs at which the chunks begin, or began when the list was
// made.
type firsts struct {
	keys  []byte
	homes []*home
}

// A chunk is some pairs: their addresses in one piece, and the Services that
// have them. It is immutable, and not empty.
type chunk struct {
	keys  []byte
	homes []*home
}

// at is the address of pair i.
func (c *chunk) at(i, width int) []byte { return c.keys[i*width:][:width] }

// seek finds the first pair with an address of at least low: its chunk, and its
// number in that, which may be one more than there are.
func (cs *chunks) seek(low []byte) (i int, c *chunk, j int) {
	if cs == nil {
		return 0, nil, 0
	}
	// The last chunk that begins before low may hold it too.
	i = max(0, search(cs.keys, low)-1)
	c = cs.slots[i].Load()
	return i, c, search(c.keys, low)
}

// search counts the addresses before low. All have its size.
func search(keys, low []byte) int {
	from, to := 0, len(keys)/len(low)
	if len(low) == 4 { // nearly all are IPv4
		for key := binary.BigEndian.Uint32(low); from < to; {
			if i := (from + to) / 2; binary.BigEndian.Uint32(keys[4*i:]) < key {
				from = i + 1
			} else {
				to = i
			}
		}
		return from
	}
	for from < to {
		if i := (from + to) / 2; bytes.Compare(keys[i*len(low):][:len(low)], low) < 0 {
			from = i + 1
		} else {
			to = i
		}
	}
	return from
}

// place finds the chunk that the pair belongs to.
func (cs *chunks) place(p pair) int {
	var room [16]byte
	key := appendKey(room[:0], p.addr)
	return max(0, sort.Search(len(cs.slots), func(i int) bool {
		c := bytes.Compare(cs.keys[i*cs.width:][:cs.width], key)
		return cmp.Or(c, cmp.Compare(cs.homes[i].key, p.home.key)) > 0
	})-1)
}

// first is the pair at which chunk i begins.
func (cs *chunks) first(i int) pair {
	ip, _ := netip.AddrFromSlice(cs.keys[i*cs.width:][:cs.width])
	return pair{ip, cs.homes[i]}
}

// find counts the pairs of c before p, whose address is key, and says whether p
// is the next.
func (c *chunk) find(p pair, key []byte) (int, bool) {
	j := search(c.keys, key)
	for ; j < len(c.homes) && bytes.Equal(c.at(j, len(key)), key); j++ {
		if order := cmp.Compare(c.homes[j].key, p.home.key); order >= 0 {
			return j, order == 0
		}
	}
	return j, false
}

// add puts pairs i to j of o behind c's own.
func (c *chunk) add(o *chunk, i, j, width int) {
	c.keys = append(c.keys, o.keys[i*width:j*width]...)
	c.homes = append(c.homes, o.homes[i:j]...)
}

// copied is pairs i to j in memory of their own.
func (c *chunk) copied(i, j, width int) *chunk {
	return &chunk{slices.Clone(c.keys[i*width : j*width]), slices.Clone(c.homes[i:j])}
}

func appendKey(buf []byte, ip netip.Addr) []byte {
	if ip.Is4() {
		b := ip.As4()
		return append(buf, b[:]...)
	}
	b := ip.As16()
	return append(buf, b[:]...)
}

// An edit is what a chunk is to hold.
type edit struct {
	slot          int
	adds, removes bool   // it brings pairs, or takes some
	to            *chunk // of any size
}

// apply adds and removes pairs, which are in order and have addresses of width
// bytes. Readers see those that come before they miss those that go.
func (s *shelf) apply(width int, add, remove []pair) {
	if len(add)+len(remove) == 0 {
		return
	}
	cs := s.list.Load()
	if cs == nil {
		cs = &chunks{width: width}
	}
	edits := cs.edits(add, remove)
	switch {
	case slices.ContainsFunc(edits, cs.misfits):
		s.list.Store(cs.rearranged(edits))
	case len(edits) > 1 && slices.ContainsFunc(edits, func(e edit) bool { return e.adds && e.removes }):
		s.apply(width, add, nil)
		s.apply(width, nil, remove)
	default:
		for _, adds := range [2]bool{true, false} {
			for _, e := range edits {
				if e.adds == adds {
					cs.slots[e.slot].Store(e.to)
				}
			}
		}
	}
}

// edits finds out what becomes of the chunks that the changes touch.
func (cs *chunks) edits(add, remove []pair) (edits []edit) {
	for len(add)+len(remove) > 0 {
		var first pair
		if len(remove) == 0 || len(add) > 0 && add[0].compare(remove[0]) < 0 {
			first = add[0]
		} else {
			first = remove[0]
		}
		i := cs.place(first)
		adds, removes := len(add), len(remove)
		if i+1 < len(cs.slots) {
			adds, removes = until(add, cs.first(i+1)), until(remove, cs.first(i+1))
		}
		from := new(chunk)
		if i < len(cs.slots) {
			from = cs.slots[i].Load()
		}
		edits = append(edits, edit{i, adds > 0, removes > 0, from.merge(add[:adds], remove[:removes], cs.width)})
		add, remove = add[adds:], remove[removes:]
	}
	return edits
}

// misfits says whether an edit's pairs are too many or too few for a chunk.
func (cs *chunks) misfits(e edit) bool {
	n := len(e.to.homes)
	if n == 0 || n > chunkSize || e.slot >= len(cs.slots) {
		return true
	}
	for _, i := range [2]int{e.slot - 1, e.slot + 1} {
		if i >= 0 && i < len(cs.slots) && joins(n, len(cs.slots[i].Load().homes)) {
			return true
		}
	}
	return false
}

// joins says whether neighbours of such sizes go together. If they did not,
// deletions would leave crumbs.
func joins(a, b int) bool { return a+b <= chunkSize/2 }

// rearranged makes a list in which every chunk has a right size; nil if nothing
// is left. It does not look into chunks that are far from any edit.
func (cs *chunks) rearranged(edits []edit) *chunks {
	next := &chunks{width: cs.width, firsts: firsts{make([]byte, 0, len(cs.keys)+2*cs.width), make([]*home, 0, len(cs.homes)+2)}}
	list := make([]*chunk, 0, len(cs.slots)+2)
	edited := false // the last one of list was
	put := func(c *chunk, key []byte, first *home, fresh bool) {
		if last := len(list) - 1; last >= 0 && (edited || fresh) && joins(len(list[last].homes), len(c.homes)) {
			both := list[last].copied(0, len(list[last].homes), cs.width)
			both.add(c, 0, len(c.homes), cs.width)
			list[last], edited = both, true
			return
		}
		list = append(list, c)
		next.keys, next.homes = append(next.keys, key...), append(next.homes, first)
		edited = fresh
	}
	for i := range max(1, len(cs.slots)) {
		if len(edits) == 0 || edits[0].slot != i {
			put(cs.slots[i].Load(), cs.keys[i*cs.width:][:cs.width], cs.homes[i], false)
			continue
		}
		all := edits[0].to
		edits = edits[1:]
		n, size := len(all.homes), listSize
		switch {
		case n == 0:
			edited = true
		case n <= chunkSize:
			size = n
		case n <= 2*chunkSize:
			size = (n + 1) / 2 // what grows by and by will grow here again
		}
		for j := 0; j < n; j += size {
			c := all.copied(j, min(n, j+size), cs.width)
			put(c, c.at(0, cs.width), c.homes[0], true)
		}
	}
	if len(list) == 0 {
		return nil
	}
	next.slots = make([]atomic.Pointer[chunk], len(list))
	for i, c := range list {
		next.slots[i].Store(c)
	}
	return next
}

// until counts those of ps that come before limit.
func until(ps []pair, limit pair) int {
	n, _ := slices.BinarySearchFunc(ps, limit, pair.compare)
	return n
}

// merge returns c and add without remove, all in order.
func (c *chunk) merge(add, remove []pair, width int) *chunk {
	room := len(c.homes) + len(add)
	out := &chunk{make([]byte, 0, room*width), make([]*home, 0, room)}
	i := 0 // pairs of c that are done
	for len(add)+len(remove) > 0 {
		var p pair
		order := 0 // which of the two p is of
		switch {
		case len(add) == 0:
			p, order = remove[0], 1
		case len(remove) == 0:
			p, order = add[0], -1
		case add[0].compare(remove[0]) < 0:
			p, order = add[0], -1
		default: // one that is in both goes
			p, order = remove[0], 1
		}
		for len(add) > 0 && add[0] == p {
			add = add[1:]
		}
		for len(remove) > 0 && remove[0] == p {
			remove = remove[1:]
		}
		var room [16]byte
		key := appendKey(room[:0], p.addr)
		j, found := c.find(p, key)
		out.add(c, i, j, width)
		if i = j; found {
			i++
		}
		if order < 0 {
			out.keys, out.homes = append(out.keys, key...), append(out.homes, p.home)
		}
	}
	out.add(c, i, len(c.homes), width)
	return out
}
