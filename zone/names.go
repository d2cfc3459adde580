package zone

import (
	"hash/maphash"
	"math/bits"
	"slices"

	"github.com/seamark/seamark/wire"
)

// names is the nodes of one version of a zone: a hash table of buckets, in groups. A version
// shares the groups and buckets that it has not changed with the version that it was made
// from. The keys are names in lower case without the zone's name.
type names struct {
	origin int // length of the zone's name
	seed   maphash.Seed
	shift  uint // of a hash, for the number of its bucket
	count  int
	groups [][][]node
}

const (
	// groupBits is log2 of the number of buckets in a group.
	groupBits = 6
	// maxFill is the number of nodes per bucket, on average, from which on there are more
	// buckets.
	maxFill = 8
)

// hash returns the hash of a key. A wildcard has the hash of the name above it, and so it is in
// the same bucket.
func (t *names) hash(key []byte) uint32 {
	for isWildcard(key) {
		key = key[2:]
	}
	return uint32(maphash.Bytes(t.seed, key))
}

// get returns the node of a key, or nil.
func (t *names) get(key []byte) *node {
	h := t.hash(key)
	bucket := t.bucket(h)
	for i := range bucket {
		if n := &bucket[i]; n.hash == h && t.matches(n, key) {
			return n
		}
	}
	return nil
}

func (t *names) bucket(h uint32) []node {
	i := h >> t.shift
	return t.groups[i>>groupBits][i&(1<<groupBits-1)]
}

// wildcard returns the node named "*" below another one, or nil. It has the hash of that one.
func (t *names) wildcard(above *node) *node {
	if above.meta&hasWildcard == 0 {
		return nil
	}
	name := t.spelled(above)
	bucket := t.bucket(above.hash)
	for i := range bucket {
		n := &bucket[i]
		if n.hash != above.hash {
			continue
		}
		if key := t.spelled(n); len(key) == len(name)+2 && isWildcard(key) && wire.SameName(key[2:], name) {
			return n
		}
	}
	return nil
}

// spelled returns the key of a node in the zone file's spelling.
func (t *names) spelled(n *node) string {
	name := n.spelled()
	if n.is(isComplete) {
		name = name[:len(name)-t.origin]
	}
	return name
}

// matches reports whether a node has a key.
func (t *names) matches(n *node, key []byte) bool { return wire.SameName(t.spelled(n), key) }

// all yields the nodes in no particular order.
func (t *names) all(yield func(*node) bool) {
	for _, group := range t.groups {
		for _, bucket := range group {
			for i := range bucket {
				if !yield(&bucket[i]) {
					return
				}
			}
		}
	}
}

// A namesEdit changes names. It copies the groups and buckets that other versions have.
type namesEdit struct {
	*names
	ownGroups  []bool   // that are copied
	ownBuckets []uint64 // of each group
}

// edit returns an edit of a copy of t.
func (t *names) edit() namesEdit {
	e := namesEdit{names: new(names), ownGroups: make([]bool, len(t.groups)), ownBuckets: make([]uint64, len(t.groups))}
	*e.names = *t
	e.groups = append([][][]node(nil), t.groups...)
	return e
}

// newNames returns an edit of no nodes.
func newNames(origin wire.Name) namesEdit {
	t := &names{origin: len(origin), seed: maphash.MakeSeed(), shift: 32, groups: [][][]node{{nil}}}
	return t.edit()
}

// own returns the bucket of a hash for changes.
func (e *namesEdit) own(h uint32) *[]node {
	i := h >> e.shift
	g, at := i>>groupBits, i&(1<<groupBits-1)
	if !e.ownGroups[g] {
		e.ownGroups[g] = true
		e.groups[g] = append([][]node(nil), e.groups[g]...)
	}

	b := &e.groups[g][at]
	if e.ownBuckets[g]&(1<<at) == 0 {
		e.ownBuckets[g] |= 1 << at
		*b = append(make([]node, 0, len(*b)+1), *b...)
	}
	return b
}

// change returns the node of a key for changes, or nil. The node is valid until the next
// change.
func (e *namesEdit) change(key []byte) *node {
	n := e.get(key)
	if n == nil {
		return nil
	}
	e.own(n.hash)
	return e.get(key)
}

// add adds a node that does not exist.
func (e *namesEdit) add(key []byte, data string) {
	if e.count++; e.count > maxFill<<(32-e.shift) {
		e.rehash()
	}
	h := e.hash(key)
	b := e.own(h)
	*b = append(*b, node{hash: h, data: data})
}

// remove removes a node.
func (e *namesEdit) remove(key []byte) {
	h := e.hash(key)
	b := e.own(h)
	*b = slices.DeleteFunc(*b, func(n node) bool { return n.hash == h && e.matches(&n, key) })
	e.count--
}

// rehash moves the nodes to new buckets, as many as there should be for the nodes. The
// buckets of a group are adjacent in memory.
func (e *namesEdit) rehash() {
	size := bits.Len(uint(e.count * 3 / (2 * maxFill)))
	next := *e.names
	next.shift = uint(32 - size)

	fill := make([]uint32, 1<<size)
	for n := range e.all {
		fill[n.hash>>next.shift]++
	}

	next.groups = make([][][]node, max(1, len(fill)>>groupBits))
	for g := range next.groups {
		group := make([][]node, min(len(fill), 1<<groupBits))
		first := g << groupBits
		total := 0
		for i := range group {
			total += int(fill[first+i])
		}
		room := make([]node, total)
		for i := range group {
			n := int(fill[first+i])
			group[i], room = room[:0:n], room[n:]
		}
		next.groups[g] = group
	}

	for n := range e.all {
		i := n.hash >> next.shift
		b := &next.groups[i>>groupBits][i&(1<<groupBits-1)]
		*b = append(*b, *n)
	}

	*e.names = next
	e.ownGroups, e.ownBuckets = make([]bool, len(next.groups)), make([]uint64, len(next.groups))
	for g := range next.groups {
		e.ownGroups[g], e.ownBuckets[g] = true, ^uint64(0)
	}
}
