package dns

import (
	"slices"

	"github.com/seamark/seamark/wire"
)

// shrink is more than compression can make a record smaller: two names of 255
// bytes, the owner and the one in the RDATA, become pointers, and ten bytes stay.
const shrink = 40

// Follow adds what Ask or Asked gave for the target of the CNAME in which q's
// answer ends: its answers, behind those that are there, and the response code,
// which is that of the last name (RFC 6604). What else it has comes along if
// there are no answers, as a SOA record or a referral, and with DO, as proofs.
// It says false, and changes nothing, if nobody here serves the target: then the
// CNAME is the answer, and the client goes on from there (RFC 1034 §4.3.2).
func (q *Query) Follow(sub *Query) (served bool) {
	if sub.Unanswered() {
		return false
	}
	q.RCode, q.RA, q.TC, q.Err = sub.RCode, sub.RA, sub.TC, sub.Err
	a := &q.Answer
	end := a.Body() // of the answers
	a.Walk(func(s wire.Section, r wire.Record) bool {
		if s == wire.Answers {
			end = r.Next
		}
		return s == wire.Answers
	})
	all := q.DO || sub.Answer.Count[wire.Answers] == 0
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

// adopt adds the records of a section of sub's answer, as long as they may fit:
// of what is more something is cut, so the client hears of it.
func (q *Query) adopt(s wire.Section, sub *Query) (err error) {
	sub.Answer.Walk(func(section wire.Section, r wire.Record) bool {
		if section == s {
			_, err = q.Answer.AppendRecord(s, sub.Answer.Buf, r.Owner)
		}
		return section <= s && err == nil && len(q.Answer.Buf) <= shrink*q.Limit()
	})
	return err
}
