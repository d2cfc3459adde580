package dns

import (
	"bytes"
	"context"
	"errors"
	"slices"

	"github.com/seamark/seamark/wire"
)

// maxDepth is the longest chain of sub-queries: as many CNAMEs as one answer may
// have.
const maxDepth = 8

var (
	errDepth = errors.New("the answer needs more than 8 sub-queries, each made by the one before")
	errLoop  = errors.New("the answer leads back to its own question")
)

// SubQuery sends another question, from the client's address, to the query's own
// Mux, so that all server blocks and their handlers apply to it. name is in wire
// form and may have any letter case. If ok, the answer is complete, and valid as
// long as q; otherwise the handler must return Wait and call ResumeSubQuery in
// Resolve.
//
// A question that q or one of its ancestors asks is a loop. The answer to a loop, and
// to a sub-query with more than eight ancestors, is SERVFAIL without records. A query
// has at most one unfinished sub-query.
func (q *Query) SubQuery(name []byte, t wire.Type) (sub *Query, ok bool) {
	q.subQueried = true
	if q.sub == nil {
		q.sub = NewQuery(nil)
	}
	sub = q.sub
	packet := wire.AppendRequest(sub.packet[:0], 0, q.Flags&(wire.FlagRD|wire.FlagCD), name, t)
	sub.Reset(packet, q.Proto, q.Start)
	sub.parent, sub.detached = q, q.detached
	sub.Peer, sub.Local, sub.Interface, sub.mux = q.Peer, q.Local, q.Interface, q.mux
	sub.ProxyTLVs = q.ProxyTLVs

	fault := sub.Parse(packet)
	sub.EDNS, sub.DO, sub.UDPSize, sub.ReplyLimit, sub.Options = q.EDNS, q.DO, q.UDPSize, q.ReplyLimit, q.Options
	sub.Answer.Reset(sub.Answer.Buf, sub.Question()) // the memory of the sub-query before
	switch {
	case fault != wire.NoFault:
		sub.RCode = wire.ServFail
		return sub, true
	case sub.Depth() > maxDepth:
		sub.RCode, sub.Err = wire.ServFail, errDepth
		return sub, true
	case sub.IsLoop():
		sub.RCode, sub.Err = wire.ServFail, errLoop
		return sub, true
	}

	sub.trace = q.trace
	chain := sub.mux.find(sub)
	if chain == nil || chain.empty() {
		sub.RCode = wire.Refused
		return sub, true
	}
	if sub.trace != nil && chain.traced != nil {
		chain = chain.traced
	}

	sub.enter(chain)
	if sub.walk(0) == Wait {
		return nil, false
	}
	sub.finishSub()
	return sub, true
}

// ResumeSubQuery blocks until the answer to the last SubQuery is complete.
func (q *Query) ResumeSubQuery(ctx context.Context) *Query {
	q.sub.detached = true
	if err := q.place.addStack(); err != nil {
		q.sub.failUnparked(err, 0)
	} else {
		q.sub.resume(ctx, 0)
	}
	q.sub.finishSub()
	return q.sub
}

// ResolveSubQuery sends a sub-query and blocks until its answer is complete. Call it only while Resolve runs.
func (q *Query) ResolveSubQuery(ctx context.Context, name []byte, t wire.Type) *Query {
	if sub, ok := q.SubQuery(name, t); ok {
		return sub
	}
	return q.ResumeSubQuery(ctx)
}

// FollowTarget sends a sub-query for target, to which the CNAME record at the end of q's answer
// section leads, and adds its answer by FollowCNAME. If it returns Wait, the handler must return
// Wait too, and call ResumeTarget in Resolve.
func (q *Query) FollowTarget(target []byte) Verdict {
	sub, ok := q.SubQuery(target, q.Type)
	if !ok {
		return Wait
	}
	q.FollowCNAME(sub)
	return Done
}

// ResumeTarget blocks until the sub-query of FollowTarget is answered, and adds its answer.
func (q *Query) ResumeTarget(ctx context.Context) error {
	q.FollowCNAME(q.ResumeSubQuery(ctx))
	return nil
}

func (q *Query) finishSub() {
	if q.dropped {
		q.Fail(wire.ServFail)
	}
}

// Parent returns the query for which q was sent; nil for a client's own query.
func (q *Query) Parent() *Query { return q.parent }

// Depth returns the number of q's ancestors: zero for a client's own query.
func (q *Query) Depth() (depth int) {
	for p := q.parent; p != nil; p = p.parent {
		depth++
	}
	return depth
}

// IsLoop reports whether one of q's ancestors asks the same question, perhaps because
// SetQuestion changed it. Such a query would wait for itself.
func (q *Query) IsLoop() bool { return q.AskedAs(q.Type) }

// AskedAs reports whether one of q's ancestors asks for q's name with type t.
func (q *Query) AskedAs(t wire.Type) bool {
	for p := q.parent; p != nil; p = p.parent {
		if p.Type == t && bytes.Equal(p.Name(), q.Name()) {
			return true
		}
	}
	return false
}

// FollowCNAME adds the answer for the target of the CNAME record that ends q's answer
// section: it appends the records of each section to q's, adds the extended errors, and
// sets the response code of the last name (RFC 6604). If sub has addresses of the query
// type, its other sections are left out, unless DO is set, since they may hold proofs.
// FollowCNAME returns false and changes nothing if no server block has the target: then
// the CNAME record is the answer, and the client resolves its target (RFC 1034 §4.3.2).
func (q *Query) FollowCNAME(sub *Query) (served bool) {
	if sub.Unanswered() {
		return false
	}
	q.RCode, q.RA, q.TC, q.Err = sub.RCode, sub.RA, sub.TC, sub.Err
	q.AddExtendedErrors(sub)

	a := &q.Answer
	end := a.RecordsOffset() // of the answer section
	a.Walk(func(s wire.Section, r wire.Record) bool {
		if s == wire.Answers {
			end = r.Next
		}
		return s == wire.Answers
	})

	sections := wire.Additional
	if !q.DO && sub.hasAddresses() {
		sections = wire.Answers
	}

	// The sections behind are removed, and written again after sub's records of the section before.
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
		}

		if s > sections {
			continue
		}
		if err := q.appendSection(s, sub, first); err != nil {
			q.Fail(wire.ServFail)
			q.Err = err
			return true
		}
	}
	return true
}

// hasAddresses reports whether q is a query for addresses and its answer has some.
func (q *Query) hasAddresses() (has bool) {
	if q.Type != wire.TypeA && q.Type != wire.TypeAAAA {
		return false
	}
	q.Answer.Walk(func(s wire.Section, r wire.Record) bool {
		has = has || s == wire.Answers && r.Type == q.Type
		return s == wire.Answers && !has
	})
	return has
}

// appendSection adds the records of one section of sub's answer, except records that
// are among q's own, which begin at first. It stops when no more records fit into a
// reply. The answer then has TC, so that no cache keeps it for clients with more room.
func (q *Query) appendSection(s wire.Section, sub *Query, first int) (err error) {
	own := len(q.Answer.Buf)
	sub.Answer.Walk(func(section wire.Section, r wire.Record) bool {
		if section == s {
			if q.ExceedsLimit() {
				q.TC = q.TC || s != wire.Additional
				return false
			}

			at, count := len(q.Answer.Buf), q.Answer.Count
			_, err = q.Answer.AppendRecord(s, sub.Answer.Buf, r.Owner)
			if err == nil && q.repeats(first, own, at, r.Type) {
				q.Answer.Buf, q.Answer.Count = q.Answer.Buf[:at], count
			}
		}
		return section <= s && err == nil
	})
	return err
}

// repeats reports whether the record of type t at offset at, the last one of the
// answer, is among those from first to end. The DNAME and NSEC records of a zone can
// be part of the answers for several names of a CNAME chain.
func (q *Query) repeats(first, end, at int, t wire.Type) bool {
	buf := q.Answer.Buf
	for off := first; off < end; {
		r, ok := wire.ReadRecord(buf, off)
		if !ok {
			return false
		}
		if r.Type == t && sameRecord(buf, r, at) {
			return true
		}
		off = r.Next
	}
	return false
}

// sameRecord reports whether the record at offset at has r's owner and RDATA. It is
// apart from repeats, which seldom calls it, since to clear its buffers takes time.
func sameRecord(msg []byte, r wire.Record, at int) bool {
	last, _ := wire.ReadRecord(msg, at)
	if string(msg[r.RData:r.Next]) != string(msg[last.RData:last.Next]) {
		return false
	}
	var room [2][wire.MaxName]byte
	x, _, okX := wire.ReadName(room[0][:0], msg, r.Owner)
	y, _, okY := wire.ReadName(room[1][:0], msg, at)
	return okX && okY && wire.SameName(x, y)
}
