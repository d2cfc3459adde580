package etcd

import (
	"errors"
	"slices"
	"sort"
	"strings"
	"sync/atomic"
)

const (
	// chunkSize is how many keys a chunk has at the most: so many are copied by a
	// change of one.
	chunkSize = 128
	// listSize is how many a list puts into one: the next few changes find room.
	listSize = 112
	// chunkBytes is from where on a chunk of several keys is split: texts may be long.
	chunkBytes = 64 << 10
)

var errNoName = errors.New("no name has such a key: a part of it is longer than a label can be or has a zero byte, all of it is longer than a name, or it is the path alone")

// chunks are all keys in order. What belongs to which chunk never changes, so that
// a change replaces only the chunks that it touches; another list is made when one
// gets too large or too small. A nil list is empty.
type chunks struct {
	firsts string                  // the paths at which the chunks begin, or began when the list was made
	ends   []uint32                // of each of them in firsts
	slots  []atomic.Pointer[chunk] // never nil
}

// A chunk is some keys: for each the length of its path, the path, the number of
// its lease, and its message. It is immutable but for seen, and not empty.
type chunk struct {
	data    string
	at      []uint32               // where each key is in data
	leases  []*lease               // by their number, which is one more than the place
	grouped bool                   // some keys have a group
	seen    [chunkSize / 64]uint64 // the writer's: which keys have been put since begin
}

func (c *chunk) path(i int) string {
	s := c.data[c.at[i]:]
	return s[1 : 1+int(s[0])]
}

// packed is the message of key i, and what is behind it.
func (c *chunk) packed(i int) string {
	s := c.data[c.at[i]:]
	return s[1+int(s[0])+1:]
}

// lease is that of key i.
func (c *chunk) lease(i int) *lease {
	s := c.data[c.at[i]:]
	if n := s[1+int(s[0])]; n > 0 {
		return c.leases[n-1]
	}
	return nil
}

// end is where key i ends in data.
func (c *chunk) end(i int) int {
	if i+1 < len(c.at) {
		return int(c.at[i+1])
	}
	return len(c.data)
}

// message reads key i into m, which must be zero.
func (c *chunk) message(i int, m *message) {
	m.path = c.path(i)
	m.lease = c.lease(i)
	m.unpack(c.packed(i))
}

// search counts the keys of c before path.
func (c *chunk) search(path []byte) int {
	from, to := 0, len(c.at)
	for from < to {
		if i := (from + to) / 2; c.path(i) < string(path) {
			from = i + 1
		} else {
			to = i
		}
	}
	return from
}

func (c *chunk) saw(i int) bool { return c.seen[i/64]&(1<<(i%64)) != 0 }

func (c *chunk) see(i int) { c.seen[i/64] |= 1 << (i % 64) }

// first is the path at which chunk i begins.
func (cs *chunks) first(i int) string {
	from := uint32(0)
	if i > 0 {
		from = cs.ends[i-1]
	}
	return cs.firsts[from:cs.ends[i]]
}

// place is the number of the chunk that path belongs to. There must be one.
func (cs *chunks) place(path []byte) int {
	from, to := 1, len(cs.slots)
	for from < to {
		if i := (from + to) / 2; cs.first(i) <= string(path) {
			from = i + 1
		} else {
			to = i
		}
	}
	return from - 1
}

// each calls f for each chunk.
func (cs *chunks) each(f func(c *chunk)) {
	if cs == nil {
		return
	}
	for i := range cs.slots {
		f(cs.slots[i].Load())
	}
}

// A change is what becomes of a key.
type change struct {
	path, packed string
	lease        *lease
	grouped      bool
	gone         bool
	seen         bool
}

// scratch is the writer's memory.
type scratch struct {
	room    []byte
	changes []change
	merged  []change
}

// An edit is what a chunk is to hold.
type edit struct {
	slot int
	to   []*chunk // of a right size, unless it is alone; none if nothing is left
}

// apply makes changes, which are in order, and says whether they were any. Keys
// change one chunk after the other.
func (x *index) apply(changes []change) (changed bool) {
	cs := x.list.Load()
	if cs == nil {
		cs = new(chunks)
	}
	var edits []edit
	rearrange := false
	for len(changes) > 0 {
		i, n := 0, len(changes)
		from := new(chunk)
		if len(cs.slots) > 0 {
			i = cs.place([]byte(changes[0].path))
			from = cs.slots[i].Load()
			if i+1 < len(cs.slots) {
				limit := cs.first(i + 1)
				n = sort.Search(n, func(j int) bool { return changes[j].path >= limit })
			}
		}
		if x.merge(from, changes[:n]) {
			e := edit{i, pack(x.merged)}
			clear(x.merged) // it holds on to old chunks
			edits = append(edits, e)
			rearrange = rearrange || cs.misfits(e)
		}
		changes = changes[n:]
	}
	switch {
	case len(edits) == 0:
		return false
	case rearrange:
		x.list.Store(cs.rearranged(edits))
	default:
		for _, e := range edits {
			cs.slots[e.slot].Store(e.to[0])
		}
	}
	return true
}

// merge leaves in x.merged what c holds after changes, and says whether that is
// something else. If it is not, c has noted what was put.
func (x *index) merge(c *chunk, changes []change) (differs bool) {
	out := x.merged[:0]
	i := 0
	for _, ch := range changes {
		n := i + c.from(i).search([]byte(ch.path))
		for ; i < n; i++ {
			out = append(out, c.kept(i))
		}
		there := i < len(c.at) && c.path(i) == ch.path
		if there {
			old := c.kept(i)
			i++
			if !ch.gone && old.packed == ch.packed && old.lease == ch.lease {
				c.see(i - 1)
				old.seen = true
				out = append(out, old)
				continue
			}
			x.keys.Add(-1)
		}
		if differs = differs || there || !ch.gone; !ch.gone {
			ch.seen = true
			x.keys.Add(1)
			out = append(out, ch)
		}
	}
	for ; i < len(c.at); i++ {
		out = append(out, c.kept(i))
	}
	x.merged = out
	return differs
}

// from is a view of c's keys from i on, to be searched.
func (c *chunk) from(i int) *chunk { return &chunk{data: c.data, at: c.at[i:]} }

// kept is key i as a change that leaves it as it is.
func (c *chunk) kept(i int) change {
	s := c.data[c.at[i]:c.end(i)]
	path := s[1 : 1+int(s[0])]
	packed := s[len(path)+2:]
	grouped := packed[0]&hasMore != 0 && packed[1]&hasGroup != 0
	return change{path: path, packed: packed, lease: c.lease(i), grouped: grouped, seen: c.saw(i)}
}

// pack makes chunks of keys, none if there are no keys.
func pack(keys []change) (cs []*chunk) {
	size := listSize
	switch n := len(keys); {
	case n <= chunkSize:
		size = chunkSize
	case n <= 2*chunkSize:
		size = (n + 1) / 2 // what grows by and by will grow here again
	}
	for len(keys) > 0 {
		n, bytes := 0, 0
		for n < min(size, len(keys)) && (n == 0 || bytes < chunkBytes) {
			bytes += len(keys[n].path) + len(keys[n].packed) + 2
			n++
		}
		cs = append(cs, newChunk(keys[:n], bytes))
		keys = keys[n:]
	}
	return cs
}

func newChunk(keys []change, bytes int) *chunk {
	c := &chunk{at: make([]uint32, len(keys))}
	var data strings.Builder
	data.Grow(bytes)
	for i, k := range keys {
		c.at[i] = uint32(data.Len())
		data.WriteByte(byte(len(k.path)))
		data.WriteString(k.path)
		data.WriteByte(c.number(k.lease))
		data.WriteString(k.packed)
		c.grouped = c.grouped || k.grouped
		if k.seen {
			c.see(i)
		}
	}
	c.data = data.String()
	return c
}

// number gives a lease a number in c.
func (c *chunk) number(l *lease) byte {
	if l == nil {
		return 0
	}
	i := slices.Index(c.leases, l)
	if i < 0 {
		i = len(c.leases)
		c.leases = append(c.leases, l)
	}
	return byte(i + 1)
}

// misfits says whether a chunk gets too large or too small for its slot.
func (cs *chunks) misfits(e edit) bool {
	if len(e.to) != 1 || len(cs.slots) == 0 {
		return true
	}
	for _, i := range [2]int{e.slot - 1, e.slot + 1} {
		if i >= 0 && i < len(cs.slots) && joins(e.to[0], cs.slots[i].Load()) {
			return true
		}
	}
	return false
}

// joins says whether neighbours of such sizes go together. If they did not,
// deletions would leave crumbs.
func joins(a, b *chunk) bool {
	return len(a.at)+len(b.at) <= chunkSize/2 && len(a.data)+len(b.data) <= chunkBytes/2
}

// rearranged makes a list in which every chunk has a right size; nil if nothing is
// left. It does not look into chunks that are far from any edit.
func (cs *chunks) rearranged(edits []edit) *chunks {
	list := make([]*chunk, 0, len(cs.slots)+2)
	names := make([]string, 0, len(cs.slots)+2)
	size, edited := 0, false // the last one of list was
	put := func(c *chunk, name string, fresh bool) {
		if last := len(list) - 1; last >= 0 && (edited || fresh) && joins(list[last], c) {
			var both []change
			for _, part := range [2]*chunk{list[last], c} {
				for i := range part.at {
					both = append(both, part.kept(i))
				}
			}
			list[last], edited = newChunk(both, len(list[last].data)+len(c.data)), true
			return
		}
		list, names = append(list, c), append(names, name)
		size += len(name)
		edited = fresh
	}
	for i := range max(1, len(cs.slots)) {
		if len(edits) == 0 || edits[0].slot != i {
			put(cs.slots[i].Load(), cs.first(i), false)
			continue
		}
		for _, c := range edits[0].to {
			put(c, c.path(0), true)
		}
		edited = edited || len(edits[0].to) == 0
		edits = edits[1:]
	}
	if len(list) == 0 {
		return nil
	}
	next := &chunks{ends: make([]uint32, len(list)), slots: make([]atomic.Pointer[chunk], len(list))}
	var firsts strings.Builder
	firsts.Grow(size)
	for i, c := range list {
		firsts.WriteString(names[i])
		next.ends[i] = uint32(firsts.Len())
		next.slots[i].Store(c)
	}
	next.firsts = firsts.String()
	return next
}
