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
		if s > wire.Answers {
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
		if err := q.adopt(s, sub); err != nil {
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

// adopt adds the records of a section of sub's answer, as long as they may fit:
// of what is more something is cut, so the client hears of it.
func (q *Query) adopt(s wire.Section, sub *Query) (err error) {
	sub.Answer.Walk(func(section wire.Section, r wire.Record) bool {
		if section == s {
			_, err = q.Answer.AppendRecord(s, sub.Answer.Buf, r.Owner)
		}
		return section <= s && err == nil && !q.ExceedsLimit()
	})
	return err
}
