package objects

import (
	"maps"
	"slices"
	"strings"

	"github.com/seamark/seamark/wire"
)

// replace replaces the names of an object.
func (x *Objects) replace(o *Object, packed string) {
	before := o.packed()
	o.text = strings.Join([]string{o.key(), packed}, "") // a copy: the key alone would keep the old content in memory

	affected := map[*Object]bool{}
	now := map[wire.Name]bool{}
	for owner, value := range Owners(o.packed()) {
		now[owner] = true
		x.take(owner, &Entry{o, value}, affected)
	}
	for owner := range Owners(before) {
		if !now[owner] {
			x.leave(owner, o, affected)
		}
	}
	delete(affected, o) // the caller reports it
	for _, other := range slices.SortedFunc(maps.Keys(affected), (*Object).compareKey) {
		x.report(other, x.faults.contentOf(other))
	}
}

// take gives a name to the object of e, unless an older one has it.
func (x *Objects) take(owner wire.Name, e *Entry, affected map[*Object]bool) {
	own := x.table.Get(owner)
	switch {
	case own == nil || own.From == e.From:
		x.table.Set(owner, e)
	case e.From.compareAge(own.From) < 0:
		x.table.Set(owner, e)
		x.dropRival(owner, e.From)
		x.addRival(owner, own)
		affected[own.From] = true
		x.affect(owner, affected)
	default:
		x.addRival(owner, e)
	}
}

// leave takes a name from an object, and gives it to the oldest of the others that have it.
func (x *Objects) leave(owner wire.Name, o *Object, affected map[*Object]bool) {
	if own := x.table.Get(owner); own == nil || own.From != o {
		x.dropRival(owner, o)
		return
	}
	if len(x.rivals[owner]) == 0 {
		x.table.Delete(owner)
		return
	}
	heir := slices.MinFunc(x.rivals[owner], func(a, b *Entry) int { return a.From.compareAge(b.From) })
	x.table.Set(owner, heir)
	x.dropRival(owner, heir.From)
	affected[heir.From] = true
	x.affect(owner, affected)
}

// rivalsTold is how many rivals are told that another object than before has their name. The others
// know already that they do not have it, and a namespace may have thousands, and change the first often.
const rivalsTold = 20

// affect adds the objects that have a name which another one has got.
func (x *Objects) affect(owner wire.Name, affected map[*Object]bool) {
	rivals := x.rivals[owner]
	for _, r := range rivals[:min(rivalsTold, len(rivals))] {
		affected[r.From] = true
	}
}

func (x *Objects) addRival(owner wire.Name, e *Entry) {
	x.dropRival(owner, e.From)
	x.rivals[owner] = append(x.rivals[owner], e)
}

func (x *Objects) dropRival(owner wire.Name, o *Object) {
	left := slices.DeleteFunc(x.rivals[owner], func(r *Entry) bool { return r.From == o })
	if len(left) == 0 {
		delete(x.rivals, owner)
		return
	}
	x.rivals[owner] = left
}
