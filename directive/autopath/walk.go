package autopath

import (
	"context"
	"encoding/binary"
	"slices"
	"time"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// patience is how long the names of a path may take. A stub resolver asks again
// after five seconds (resolv.conf(5)), and must have the ordinary reply by then.
const patience = 4 * time.Second

// A walk is one way along a search path.
type walk struct {
	*AutoPath
	ctx    context.Context
	q      *dns.Query
	labels int                // of what is looked for
	room   [wire.MaxName]byte // of name
	name   []byte             // the one that is asked for now
}

// walk asks for the names of the path that are behind the first, which does not
// exist for q's own type, and makes the answer of the one that counts.
func (a *AutoPath) walk(ctx context.Context, q *dns.Query, labels int) error {
	w := &walk{AutoPath: a, ctx: ctx, q: q, labels: labels}
	w.name = append(w.room[:0], q.QuestionName()...)
	if w.ask(w.other()).RCode != wire.NXDomain {
		return nil
	}
	steps := 0
	for suffix := range w.suffixes() {
		steps++
		if !w.to(suffix) {
			continue // no resolver asks for it
		}
		missing, found := w.look()
		switch {
		case missing:
			continue
		case found != nil && a.how != byQuestion:
			return w.answer(found, steps)
		}
		return nil
	}
	if a.how == byQuestion && w.ambiguous() {
		return nil
	}
	w.to(wire.Root)
	if _, found := w.look(); found != nil {
		return w.answer(found, steps+1)
	}
	return nil
}

// suffixes gives the search path behind its first element.
func (w *walk) suffixes() func(yield func(wire.Name) bool) {
	return func(yield func(wire.Name) bool) {
		if w.cluster == nil {
			slices.Values(w.search[1:])(yield)
			return
		}
		zone := wire.Root
		for i := w.labels + 1; i <= w.labels+2; i++ { // svc.ZONE, ZONE
			zone = wire.Name(w.q.Name()[w.q.LabelOffset(i):])
			if zone != wire.Root && !yield(zone) {
				return
			}
		}
		for _, suffix := range w.more {
			// This machine may be a pod itself, with such a search path.
			own := w.how == byClient && zone != wire.Root && suffix.Within(zone)
			if !own && !yield(suffix) {
				return
			}
		}
	}
}

// to makes the name that is looked for stand in front of suffix; it says no if
// that is too long for a name.
func (w *walk) to(suffix wire.Name) bool {
	base := w.q.QuestionName()[:w.q.LabelOffset(w.labels)]
	if len(base)+len(suffix) > wire.MaxName {
		return false
	}
	w.name = append(append(w.room[:0], base...), suffix...)
	return true
}

// other is the type that a client asks for beside q's.
func (w *walk) other() wire.Type {
	if w.q.Type == wire.TypeA {
		return wire.TypeAAAA
	}
	return wire.TypeA
}

func (w *walk) ask(t wire.Type) *dns.Query {
	sub, ok := w.q.SubQuery(w.name, t)
	if !ok {
		sub = w.q.ResumeSubQuery(w.ctx)
	}
	return sub
}

// look asks for the name's addresses of both families: a client that asks for
// both must find them in the same place. Found is the answer for q's own type;
// it is nil, too, if one of them failed or they do not agree.
func (w *walk) look() (missing bool, found *dns.Query) {
	code := w.ask(w.other()).RCode
	if code != wire.NXDomain && code != wire.NoError || w.ctx.Err() != nil {
		return false, nil
	}
	sub := w.ask(w.q.Type)
	if sub.RCode != code {
		return false, nil
	}
	if code == wire.NXDomain {
		return true, nil
	}
	return false, sub
}

// ambiguous says whether the question may be the second one for a name that
// ends in the namespace: not if no name ends so.
func (w *walk) ambiguous() bool {
	label := w.q.Name()[w.q.LabelOffset(w.labels):w.q.LabelOffset(w.labels+1)]
	w.name = append(append(w.room[:0], label...), wire.Root...)
	return w.ask(wire.TypeA).RCode != wire.NXDomain
}

// answer puts the alias in front of what was found. It does not last longer
// than the denial of the name that was asked for.
func (w *walk) answer(found *dns.Query, steps int) error {
	q := w.q
	ttl := denied(&q.Answer)
	if least, ok := found.Answer.MinTTL(); ok {
		ttl = min(ttl, least)
	}
	q.Fail(wire.NoError)
	q.AA, q.RA, q.TC = true, found.RA, found.TC
	a := &q.Answer
	a.Buf = append(wire.AppendRecordHeader(a.Buf, wire.OwnerIsQuestion, wire.TypeCNAME, ttl, len(w.name)), w.name...)
	a.Count[wire.Answers]++
	for s := wire.Answers; s <= wire.Additional; s++ {
		if err := a.AppendSection(s, &found.Answer, s); err != nil {
			return err
		}
	}
	w.series.success.Add(1)
	w.series.saved.Add(uint64(steps))
	return nil
}

// denied is how long a negative reply may be kept (RFC 2308 §5).
func denied(a *wire.Answer) uint32 {
	const unknown = 5 // the least that a resolver here keeps anything
	ttl := uint32(unknown)
	a.Walk(func(s wire.Section, r wire.Record) bool {
		if s == wire.Authority && r.Type == wire.TypeSOA && r.Next-r.RData >= 4 {
			ttl = min(r.TTL(a.Buf), binary.BigEndian.Uint32(a.Buf[r.Next-4:]))
		}
		return true
	})
	return ttl
}
