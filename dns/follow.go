package dns

import (
	"slices"

	"github.com/seamark/seamark/wire"
)

const (
	// shrink is more than compression can make a record smaller: two names of 255
	// bytes, the owner and the one in the RDATA, become pointers, and ten bytes stay.
	shrink = 40
	// smallest is the size of the smallest record: an owner that is the root, and
	// no RDATA.
	smallest = 11
)

// ExceedsLimit reports whether the answer is too large for the reply even if it is
// compressed. Records that are added to it are cut off, and the client sees TC.
func (q *Query) ExceedsLimit() bool {
	a, limit := &q.Answer, q.SizeLimit()
	if len(a.Buf) <= limit {
		return false
	}
	records := 0
	for _, n := range a.Count {
		records += int(n)
	}
	return records*smallest > limit || len(a.Buf) > shrink*limit
}

// FollowCNAME adds what SubQuery or ResumeSubQuery gave for the target of the CNAME in which q's
// answer ends: the records of each section behind those that are there, and the
// response code, which is that of the last name (RFC 6604). Where the target has
// addresses that were asked for, the rest of its answer is about other things and
// stays away, but for DO, with which it may be proofs. It says false, and changes
// nothing, if nobody here serves the target: then the CNAME is the answer, and
// the client goes on from there (RFC 1034 §4.3.2).
func (q *Query) FollowCNAME(sub *Query) (served bool) {
	if sub.Unanswered() {
		return false
	}
	q.RCode, q.RA, q.TC, q.Err = sub.RCode, sub.RA, sub.TC, sub.Err
	a := &q.Answer
	end := a.RecordsOffset() // of the answers
	a.Walk(func(s wire.Section, r wire.Record) bool {
		if s == wire.Answers {
			end = r.Next
		}
		return s == wire.Answers
	})
	all := q.DO || !sub.addressed()
	behind, count := slices.Clone(a.Buf[end:]), a.Count
	a.Buf, a.Count = a.Buf[:end], [3]uint16{count[wire.Answers]}
	for s := wire.Answers; s <= wire.Additional; s++ {
		first := a.RecordsOffset() // of q's own records in the section
		if s > wire.Answers {
			first = len(a.Buf)
			n := 0
			for range count[s] {
				r, _ := wire.ReadRecord(behind, n)
				n = r.Next
			}
			a.Append(s, behind[:n], int(count[s]))
			behind = behind[n:]
			if !all {
				continue
			}
		}
		if err := q.adopt(s, sub, first); err != nil {
			q.Fail(wire.ServFail)
			q.Err = err
			return true
		}
	}
	return true
}

// addressed says that q asked for addresses and has some.
func (q *Query) addressed() (has bool) {
	if q.Type != wire.TypeA && q.Type != wire.TypeAAAA {
		return false
	}
	q.Answer.Walk(func(s wire.Section, r wire.Record) bool {
		has = has || s == wire.Answers && r.Type == q.Type
		return s == wire.Answers && !has
	})
	return has
}

// adopt adds the records of a section of sub's answer, except those that are among
// q's own, which begin at first. It stops when no more records fit into a reply; the
// client then sees TC.
func (q *Query) adopt(s wire.Section, sub *Query, first int) (err error) {
	own := len(q.Answer.Buf)
	sub.Answer.Walk(func(section wire.Section, r wire.Record) bool {
		if section == s {
			at, count := len(q.Answer.Buf), q.Answer.Count
			if _, err = q.Answer.AppendRecord(s, sub.Answer.Buf, r.Owner); err == nil && q.repeats(first, own, at) {
				q.Answer.Buf, q.Answer.Count = q.Answer.Buf[:at], count
			}
		}
		return section <= s && err == nil && !q.ExceedsLimit()
	})
	return err
}

// repeats reports whether the record at offset at, the last one of the answer, is
// among those from first to end. The DNAME and NSEC records of a zone can be part
// of the answers for several names of a CNAME chain.
func (q *Query) repeats(first, end, at int) bool {
	buf := q.Answer.Buf
	last, _ := wire.ReadRecord(buf, at)
	var room, name [wire.MaxName]byte
	for off := first; off < end; {
		r, ok := wire.ReadRecord(buf, off)
		if !ok {
			return false
		}
		if r.Type == last.Type && string(buf[r.RData:r.Next]) == string(buf[last.RData:last.Next]) {
			old, _, ok1 := wire.ReadName(room[:0], buf, off)
			added, _, ok2 := wire.ReadName(name[:0], buf, at)
			if ok1 && ok2 && wire.SameName(old, added) {
				return true
			}
		}
		off = r.Next
	}
	return false
}
