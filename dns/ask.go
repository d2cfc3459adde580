package dns

import (
	"bytes"
	"context"
	"errors"

	"github.com/seamark/seamark/wire"
)

// maxDepth is how deep questions may lead to further ones.
const maxDepth = 8

var (
	errDepth = errors.New("the answer needs more than 8 further questions, one leading to the next")
	errLoop  = errors.New("the answer leads back to its own question")
)

// SubQuery puts another question, with the client's address, to the query's own Mux,
// so that server blocks and everything in their chains apply to it. name is in
// wire form, in any spelling. The answer is ready if ok; it lives as long as q.
// If it is not, say Wait and take it up in Resolve with ResumeSubQuery.
//
// A question that q or one of its own askers asked already is a loop; that, and
// more than eight of them, is SERVFAIL with nothing in it. A query has one
// question under way at a time.
func (q *Query) SubQuery(name []byte, t wire.Type) (sub *Query, ok bool) {
	if q.sub == nil {
		q.sub = NewQuery(nil)
	}
	sub = q.sub
	packet := wire.AppendRequest(sub.room[:0], 0, q.Flags&(wire.FlagRD|wire.FlagCD), name, t)
	sub.Reset(packet, q.Proto, q.Start)
	sub.parent, sub.depth, sub.late = q, q.depth+1, q.late
	sub.Peer, sub.Local, sub.Interface, sub.mux = q.Peer, q.Local, q.Interface, q.mux
	fault := sub.Parse(packet)
	sub.EDNS, sub.DO, sub.UDPSize, sub.Options = q.EDNS, q.DO, q.UDPSize, q.Options
	sub.Answer.Reset(sub.own, sub.Question())
	switch {
	case fault != wire.NoFault:
		sub.RCode = wire.ServFail
		return sub, true
	case sub.depth > maxDepth:
		sub.RCode, sub.Err = wire.ServFail, errDepth
		return sub, true
	case sub.IsLoop():
		sub.RCode, sub.Err = wire.ServFail, errLoop
		return sub, true
	}
	chain := sub.mux.find(sub)
	if chain == nil || chain.empty() {
		sub.RCode = wire.Refused
		return sub, true
	}
	sub.enter(chain)
	if sub.walk(0) == Wait {
		return nil, false
	}
	return sub.asked(), true
}

// ResumeSubQuery continues the question of the last SubQuery where it stands, and waits for
// its answer.
func (q *Query) ResumeSubQuery(ctx context.Context) *Query {
	q.sub.late = true
	q.sub.resume(ctx, 0)
	return q.sub.asked()
}

// Depth is how many questions have led to this one: none to a client's own.
func (q *Query) Depth() int { return q.depth }

func (q *Query) asked() *Query {
	q.own = q.Answer.Buf // it may have grown
	if q.dropped {
		q.Fail(wire.ServFail)
	}
	return q
}

// IsLoop says whether one of q's askers asked the same, be it by what SetQuestion
// made of the questions. Whoever waits for that asker's answer waits for itself.
func (q *Query) IsLoop() bool {
	for p := q.parent; p != nil; p = p.parent {
		if p.Type == q.Type && bytes.Equal(p.Name(), q.Name()) {
			return true
		}
	}
	return false
}
