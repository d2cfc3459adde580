package kube2sky

import (
	"maps"
	"slices"
)

// maxOperations is etcd's default limit per transaction (--max-txn-ops).
// Conditions count separately.
const maxOperations = 128

// A found is a value in etcd.
type found struct {
	value    string
	revision int64 // of its last change
}

// An edit is a change of one path.
type edit struct {
	operation operation
	path      string
	value     string
	revision  int64 // of the last change before; 0 if the key is absent
	hasMark   bool  // for put and adopt: the mark exists already
}

type operation uint8

const (
	put    operation = iota // write the value and the mark
	adopt                   // write the mark: the value is there already
	remove                  // delete both
	forget                  // delete the mark: the value is gone, or was written by another program
)

// A change has the edits of one key group.
type change struct {
	puts, removals []edit
	foreign        []string // wanted paths with the values of other programs
}

// plan compares the wanted records with the tree and the marks. kube2sky owns a
// key if its mark is the hash of its value.
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
				c.removals = append(c.removals, edit{operation: forget, path: r.path, revision: at.revision})
			}
		}
	}

	for _, path := range slices.Sorted(maps.Keys(marks)) {
		if _, ok := want[path]; ok {
			continue
		}
		at, there := tree[path]
		e := edit{operation: forget, path: path, revision: at.revision}
		if there && marks[path] == sum(at.value) {
			e.operation = remove
		}
		c.removals = append(c.removals, e)
	}
	return c
}

// transactions groups changes into transactions. A change that fits into one is
// not split. Of a larger one the puts precede the removals.
func transactions(changes []change) (all [][]edit) {
	const maxEdits = maxOperations / 2 // an edit is at most two operations
	var now []edit
	flush := func() {
		if len(now) > 0 {
			all, now = append(all, now), nil
		}
	}

	for _, c := range changes {
		if len(now)+len(c.puts)+len(c.removals) > maxEdits {
			flush()
		}
		if len(c.puts)+len(c.removals) <= maxEdits {
			now = append(append(now, c.puts...), c.removals...)
			continue
		}
		all = slices.AppendSeq(all, slices.Chunk(c.puts, maxEdits))
		all = slices.AppendSeq(all, slices.Chunk(c.removals, maxEdits))
	}
	flush()
	return all
}
