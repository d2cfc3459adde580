package wire

// An RRset is a run of adjacent records of the answer section with the same owner
// and type.
type RRset struct {
	First      Record
	Len        int // number of records
	start, end int // offsets in the message
}

// RRsets calls f for each RRset of the answer section that has at least two records.
// f may reorder the records of that RRset.
func (a *Answer) RRsets(f func(set RRset)) {
	off, count := a.body, a.Count[Answers]
	var set RRset
	for range count {
		r, ok := ReadRecord(a.Buf, off)
		if !ok {
			return
		}
		if set.Len > 0 && r.Type == set.First.Type && SameOwner(a.Buf, set.First, r) {
			set.Len++
		} else {
			if set.Len > 1 {
				f(set)
			}
			set = RRset{First: r, Len: 1, start: off}
		}
		off = r.Next
		set.end = off
	}
	if set.Len > 1 {
		f(set)
	}
}

// EachRecord calls f for each record of an RRset.
func (a *Answer) EachRecord(set RRset, f func(i int, r Record)) {
	off := set.start
	for i := range set.Len {
		r, _ := ReadRecord(a.Buf, off)
		f(i, r)
		off = r.Next
	}
}

// MoveToFront moves the records of an RRset for which first returns true before the
// others. It keeps the order within both groups. i is the index of a record in the
// RRset.
func (a *Answer) MoveToFront(set RRset, first func(i int, r Record) bool) {
	// The spare capacity of the buffer holds the records of the second group.
	length, to := len(a.Buf), set.start
	a.EachRecord(set, func(i int, r Record) {
		if first(i, r) {
			to += copy(a.Buf[to:], a.Buf[r.Owner:r.Next])
		} else {
			a.Buf = append(a.Buf, a.Buf[r.Owner:r.Next]...)
		}
	})
	copy(a.Buf[to:set.end], a.Buf[length:])
	a.Buf = a.Buf[:length]
}
