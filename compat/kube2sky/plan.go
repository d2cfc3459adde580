package kube2sky

import (
	"maps"
	"slices"
)

// maxOperations is how many a transaction may have by etcd's default
// (--max-txn-ops); the condition that we lead is not one of them.
const maxOperations = 128

// A found is a key as etcd has it.
type found struct {
	value    string
	revision int64 // of its last change
}

// An edit is a change of one path.
type edit struct {
	what     what
	path     string
	value    string
	revision int64 // that the key has until then; 0: there is none
	counted  bool  // of a put or adopt: there is a mark already
}

type what uint8

const (
	put    what = iota // the value, and the mark that it is ours
	adopt              // the mark: the value is there
	remove             // both
	forget             // the mark: the value has gone, or is somebody else's now
)

// A change is what is to be done at one place: the puts first.
type change struct {
	puts, removals []edit
	foreign        []string // wanted paths that have somebody else's value
}

// plan compares what is wanted with the tree and the marks. A key is ours if it has
// a mark, and the value that the mark was made with.
func plan(wanted []record, tree map[string]found, marks map[string]string) (c change) {
	want := make(map[string]struct{}, len(wanted))
	for _, r := range wanted {
		want[r.path] = struct{}{}
		at, there := tree[r.path]
		mark, marked := marks[r.path]
		switch {
		case there && at.value == r.value && mark == sum(r.value):
		case there && at.value == r.value:
			c.puts = append(c.puts, edit{adopt, r.path, r.value, at.revision, marked})
		case !there || marked && mark == sum(at.value):
			c.puts = append(c.puts, edit{put, r.path, r.value, at.revision, marked})
		default:
			c.foreign = append(c.foreign, r.path)
			if marked {
				c.removals = append(c.removals, edit{what: forget, path: r.path, revision: at.revision})
			}
		}
	}
	for _, path := range slices.Sorted(maps.Keys(marks)) {
		if _, ok := want[path]; ok {
			continue
		}
		at, there := tree[path]
		e := edit{what: forget, path: path, revision: at.revision}
		if there && marks[path] == sum(at.value) {
			e.what = remove
		}
		c.removals = append(c.removals, e)
	}
	return c
}

// transactions packs changes. One that fits into a transaction is not torn; one that
// does not is several, of which those that take away are the last.
func transactions(changes []change) (all [][]edit) {
	const room = maxOperations / 2 // an edit is two operations at most
	var now []edit
	flush := func() {
		if len(now) > 0 {
			all, now = append(all, now), nil
		}
	}
	for _, c := range changes {
		if len(now)+len(c.puts)+len(c.removals) > room {
			flush()
		}
		if len(c.puts)+len(c.removals) <= room {
			now = append(append(now, c.puts...), c.removals...)
			continue
		}
		for _, edits := range [][]edit{c.puts, c.removals} {
			for part := range slices.Chunk(edits, room) {
				all = append(all, part)
			}
		}
	}
	flush()
	return all
}
