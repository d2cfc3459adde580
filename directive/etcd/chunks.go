package etcd

import (
	"errors"
	"slices"
	"sort"
	"strings"

	"github.com/seamark/seamark/zone/ordered"
)

var errNoName = errors.New("no name has this key: a part is longer than a label or has a zero byte, " +
	"the key is longer than a name, or it is the path alone")

// A chunk is a leaf of the index: consecutive keys. For each key, data has the length
// of its path, the path, the number of its lease, and its message. A chunk is
// immutable except for seen, which only the writer uses.
type chunk struct {
	data    string
	starts  []uint32                      // offset of each key in data
	leases  []*lease                      // lease n is leases[n-1]
	grouped bool                          // some messages have a group
	seen    [ordered.MaxItems / 64]uint64 // the keys that have been put since beginList
}

// Size returns the number of keys and the bytes of c.
func (c *chunk) Size() (items, bytes int) { return len(c.starts), len(c.data) }

// AppendFirst appends the path of the first key to buf.
func (c *chunk) AppendFirst(buf []byte) []byte { return append(buf, c.path(0)...) }

// Join returns a chunk with the keys of c and next.
func (c *chunk) Join(next *chunk) *chunk {
	return newChunk(next.appendEntries(c.appendEntries(nil)), len(c.data)+len(next.data))
}

func (c *chunk) appendEntries(entries []change) []change {
	for i := range c.starts {
		entries = append(entries, c.entry(i))
	}
	return entries
}

func (c *chunk) path(i int) string {
	s := c.data[c.starts[i]:]
	return s[1 : 1+int(s[0])]
}

// packed returns the message of key i, and the data after it.
func (c *chunk) packed(i int) string {
	s := c.data[c.starts[i]:]
	return s[1+int(s[0])+1:]
}

// lease returns the lease of key i.
func (c *chunk) lease(i int) *lease {
	s := c.data[c.starts[i]:]
	if n := s[1+int(s[0])]; n > 0 {
		return c.leases[n-1]
	}
	return nil
}

// end returns the offset in data after key i.
func (c *chunk) end(i int) int {
	if i+1 < len(c.starts) {
		return int(c.starts[i+1])
	}
	return len(c.data)
}

// message reads key i into m, which must be zero.
func (c *chunk) message(i int, m *message) {
	m.path = c.path(i)
	m.lease = c.lease(i)
	m.unpack(c.packed(i))
}

// search returns the number of keys of c before path, which is not before key from.
func (c *chunk) search(from int, path []byte) int {
	return from + sort.Search(len(c.starts)-from, func(i int) bool { return c.path(from+i) >= string(path) })
}

func (c *chunk) isSeen(i int) bool { return c.seen[i/64]&(1<<(i%64)) != 0 }

func (c *chunk) setSeen(i int) { c.seen[i/64] |= 1 << (i % 64) }

// A change puts or deletes a key. An entry of a chunk is a change that puts it.
type change struct {
	path, packed string
	lease        *lease
	grouped      bool // the message has a group
	deleted      bool
	seen         bool // put since beginList
}

func appendChangeKey(buf []byte, ch *change) []byte { return append(buf, ch.path...) }

// apply applies changes, which are sorted, and reports whether the keys differ then.
func (x *index) apply(changes []change) (changed bool) {
	return ordered.Apply(&x.messages, changes, appendChangeKey, x.merge)
}

// merge applies the changes of one chunk, for ordered.Apply. A put that changes nothing
// marks its key as seen.
func (x *index) merge(c *chunk, changes []change) (chunks []*chunk, changed bool) {
	if c == nil {
		c = new(chunk)
	}

	out := x.entries[:0]
	i := 0
	for _, ch := range changes {
		for n := c.search(i, []byte(ch.path)); i < n; i++ {
			out = append(out, c.entry(i))
		}

		exists := i < len(c.starts) && c.path(i) == ch.path
		if exists {
			old := c.entry(i)
			i++
			if !ch.deleted && old.packed == ch.packed && old.lease == ch.lease {
				c.setSeen(i - 1)
				old.seen = true
				out = append(out, old)
				continue
			}
			x.keys.Add(-1)
		}

		changed = changed || exists || !ch.deleted
		if !ch.deleted {
			ch.seen = true
			x.keys.Add(1)
			out = append(out, ch)
		}
	}

	for ; i < len(c.starts); i++ {
		out = append(out, c.entry(i))
	}

	if x.entries = out; changed {
		chunks = newChunks(out)
	}
	clear(out) // release the strings of old chunks
	return chunks, changed
}

// entry returns entry i.
func (c *chunk) entry(i int) change {
	s := c.data[c.starts[i]:c.end(i)]
	path := s[1 : 1+int(s[0])]
	packed := s[len(path)+2:]
	grouped := packed[0]&hasMore != 0 && packed[1]&hasGroup != 0
	return change{path: path, packed: packed, lease: c.lease(i), grouped: grouped, seen: c.isSeen(i)}
}

// newChunks returns chunks with the entries, which are sorted.
func newChunks(entries []change) (chunks []*chunk) {
	size := ordered.LeafItems(len(entries))
	for len(entries) > 0 {
		n, bytes := 0, 0
		for n < min(size, len(entries)) && (n == 0 || bytes < ordered.MaxBytes) {
			bytes += len(entries[n].path) + len(entries[n].packed) + 2
			n++
		}
		chunks = append(chunks, newChunk(entries[:n], bytes))
		entries = entries[n:]
	}
	return chunks
}

// newChunk returns a chunk with the entries, whose data has that many bytes.
func newChunk(entries []change, bytes int) *chunk {
	c := &chunk{starts: make([]uint32, len(entries))}
	var data strings.Builder
	data.Grow(bytes)

	for i, e := range entries {
		c.starts[i] = uint32(data.Len())
		data.WriteByte(byte(len(e.path)))
		data.WriteString(e.path)
		data.WriteByte(c.leaseNumber(e.lease))
		data.WriteString(e.packed)
		c.grouped = c.grouped || e.grouped
		if e.seen {
			c.setSeen(i)
		}
	}

	c.data = data.String()
	return c
}

// leaseNumber returns the number of a lease in c, and adds it if necessary.
func (c *chunk) leaseNumber(l *lease) byte {
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
