package etcd

// A run is the keys at a path and below it, one after the other. It allocates
// nothing, and a copy of it goes on from where it is.
type run struct {
	cs      *chunks
	c       *chunk
	i, j    int    // the next key is key j of chunk i
	prefix  []byte // the path, as far as no label in it stands for any
	pattern string // the whole of it, if one does
	group   string // of those with a group only these
	grouped bool   // there is a group to look at
}

// below begins at the first key that is at a path or below it. The path is read as
// long as the run is.
func (x *index) below(path []byte) (r run) {
	r.cs, r.prefix = x.list.Load(), path
	if r.cs != nil {
		r.i = r.cs.place(path)
		r.c = r.cs.slots[r.i].Load()
		r.j = r.c.search(path)
	}
	return r
}

// has says whether there is a key of exactly this path.
func (x *index) has(path string) bool {
	r := x.below([]byte(path))
	return r.step() && r.c.path(r.j) == path
}

// step goes to the next key, if there is one, and stays in front of it.
func (r *run) step() bool {
	for r.c != nil {
		if r.j < len(r.c.at) {
			return begins(r.c.path(r.j), r.prefix)
		}
		if r.i++; r.i >= len(r.cs.slots) {
			r.c = nil
			break
		}
		r.c, r.j = r.cs.slots[r.i].Load(), 0
	}
	return false
}

// any says whether a key is left, whatever its value.
func (r run) any() bool {
	for ; r.step(); r.j++ {
		if r.pattern == "" || matches(r.c.path(r.j), r.pattern) {
			return true
		}
	}
	return false
}

// next reads the next message into m. It leaves out the groups that are not asked
// for.
func (r *run) next(m *message) bool {
	for r.step() {
		*m = message{}
		r.c.message(r.j, m)
		r.j++
		switch {
		case r.pattern != "" && !matches(m.path, r.pattern):
		case r.grouped && m.group != "" && m.group != r.group:
		default:
			return true
		}
	}
	return false
}

// wideChunks is how many chunks a reader walks over for an answer.
const wideChunks = 8

// wide says whether there are so many keys that a reader should not walk over
// them.
func (r *run) wide() bool {
	if r.c == nil || r.i+wideChunks >= len(r.cs.slots) {
		return false
	}
	return begins(r.cs.first(r.i+wideChunks), r.prefix)
}

func begins(path string, prefix []byte) bool {
	return len(path) >= len(prefix) && path[:len(prefix)] == string(prefix)
}

// groups says whether a chunk with any of the keys has one with a group.
func (r *run) groups() bool {
	if r.c == nil {
		return false
	}
	for i := r.i; i < len(r.cs.slots) && (i == r.i || begins(r.cs.first(i), r.prefix)); i++ {
		if r.cs.slots[i].Load().grouped {
			return true
		}
	}
	return false
}

// only leaves the group that the shallowest of the messages have, if it is one.
// Those without a group stay. Only messages with a host count, or with a text as
// well.
func (r *run) only(texts bool) {
	group, shallow, agreed := "", -1, true
	var m message
	for all := *r; all.next(&m); {
		if !m.hosted() && (!texts || m.text == "") {
			continue
		}
		switch d := depth(m.path); {
		case shallow < 0 || d < shallow:
			group, shallow, agreed = m.group, d, true
		case d > shallow || m.group == "" || m.group == group:
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
