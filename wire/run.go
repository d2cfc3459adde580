package wire

// A RRset is records of the answer section, one behind the other, that have owner
// and type in common.
type RRset struct {
	First      Record
	Len        int // how many records
	start, end int // offsets in the message
}

// ReadName writes the name at msg[off:] behind buf, written out and in its own
// spelling, and gives the offset behind it.
func ReadName(buf, msg []byte, off int) (name []byte, next int, ok bool) {
	name, next, err := expand(buf, msg, off)
	return name, next, err == nil
}

// RRsets calls f for each run of the answer section that has at least two
// records. f may put the records of that run in another order.
func (a *Answer) RRsets(f func(run RRset)) {
	off, count := a.body, a.Count[Answers]
	var run RRset
	for range count {
		r, ok := ReadRecord(a.Buf, off)
		if !ok {
			return
		}
		if run.Len > 0 && r.Type == run.First.Type && sameOwner(a.Buf, run.First, r) {
			run.Len++
		} else {
			if run.Len > 1 {
				f(run)
			}
			run = RRset{First: r, Len: 1, start: off}
		}
		off = r.Next
		run.end = off
	}
	if run.Len > 1 {
		f(run)
	}
}

// EachRecord calls f for each record of a run.
func (a *Answer) EachRecord(run RRset, f func(i int, r Record)) {
	off := run.start
	for i := range run.Len {
		r, _ := ReadRecord(a.Buf, off)
		f(i, r)
		off = r.Next
	}
}

// MoveToFront brings those records of a run to its front for which first says true;
// among themselves these and the others stay in their order. i is a record's
// place in the run.
func (a *Answer) MoveToFront(run RRset, first func(i int, r Record) bool) {
	// The memory behind the message is free: it keeps those that stay behind.
	length, to := len(a.Buf), run.start
	a.EachRecord(run, func(i int, r Record) {
		if first(i, r) {
			to += copy(a.Buf[to:], a.Buf[r.Owner:r.Next])
		} else {
			a.Buf = append(a.Buf, a.Buf[r.Owner:r.Next]...)
		}
	})
	copy(a.Buf[to:run.end], a.Buf[length:])
	a.Buf = a.Buf[:length]
}
