package etcd

import "github.com/seamark/seamark/zone/ordered"

// A keyRange iterates over the keys at a path and below it. It is a value, so it
// allocates nothing, and a copy iterates independently.
type keyRange struct {
	leaves  ordered.Cursor[chunk, *chunk]
	i       int    // the next key in the leaf
	prefix  []byte // the path up to its first wildcard label
	pattern string // the whole path, if it has a wildcard label
	grouped bool   // skip messages of groups other than group
	group   string
}

// below returns the keys at a path and below it. The caller must not modify path
// while it uses them.
func (x *index) below(path []byte) (r keyRange) {
	r.leaves, r.prefix = x.messages.Seek(path), path
	if r.leaves.Leaf != nil {
		r.i = r.leaves.Leaf.search(0, path)
	}
	return r
}

// has reports whether the index has the key of a path.
func (x *index) has(path string) bool {
	r := x.below([]byte(path))
	return r.step() && r.leaves.Leaf.path(r.i) == path
}

// step moves to the next leaf if the current one has no more keys, and reports
// whether there is a next key.
func (r *keyRange) step() bool {
	for r.leaves.Leaf != nil {
		if r.i < len(r.leaves.Leaf.starts) {
			return begins(r.leaves.Leaf.path(r.i), r.prefix)
		}
		r.leaves.Next()
		r.i = 0
	}
	return false
}

// nonEmpty reports whether a key is left, even one without records.
func (r keyRange) nonEmpty() bool {
	for ; r.step(); r.i++ {
		if r.pattern == "" || matches(r.leaves.Leaf.path(r.i), r.pattern) {
			return true
		}
	}
	return false
}

// next reads the next message into m, and reports whether there is one. It skips
// messages of other groups.
func (r *keyRange) next(m *message) bool {
	for r.step() {
		*m = message{}
		r.leaves.Leaf.message(r.i, m)
		r.i++
		switch {
		case r.pattern != "" && !matches(m.path, r.pattern):
		case r.grouped && m.group != "" && m.group != r.group:
		default:
			return true
		}
	}
	return false
}

// maxReaderLeaves is the number of leaves that a UDP reader may iterate over.
const maxReaderLeaves = 8

// exceedsReader reports whether there are too many keys for a UDP reader.
func (r *keyRange) exceedsReader() bool {
	first, ok := r.leaves.First(maxReaderLeaves)
	return ok && begins(first, r.prefix)
}

func begins(path string, prefix []byte) bool {
	return len(path) >= len(prefix) && path[:len(prefix)] == string(prefix)
}

// hasGroups reports whether the keys may have messages with a group: whether any leaf
// that holds them has one.
func (r *keyRange) hasGroups() bool {
	for leaves, first := r.leaves, true; leaves.Leaf != nil; first = false {
		if path, _ := leaves.First(0); !first && !begins(path, r.prefix) {
			break
		}
		if leaves.Leaf.grouped {
			return true
		}
		leaves.Next()
	}
	return false
}

// chooseGroup restricts the range to the group of the messages at the least
// depth, if they agree, and to messages without a group. It considers messages
// with a host and, if texts is true, the messages with a text.
func (r *keyRange) chooseGroup(texts bool) {
	group, minDepth, agreed := "", -1, true
	var m message
	for rest := *r; rest.next(&m); {
		if !m.hasHost() && (!texts || m.text == "") {
			continue
		}
		switch d := depth(m.path); {
		case minDepth < 0 || d < minDepth:
			group, minDepth, agreed = m.group, d, true
		case d > minDepth || m.group == "" || m.group == group:
		case group == "":
			group = m.group
		default:
			agreed = false
		}
	}
	if agreed && group != "" {
		r.group, r.grouped = group, true
	}
}
