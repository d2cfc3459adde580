package autopath

import (
	"context"
	"encoding/binary"
	"slices"
	"time"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// maxDuration limits the time to follow a search path. A stub resolver repeats
// its query after five seconds (resolv.conf(5)), and must have the ordinary reply
// by then.
const maxDuration = 4 * time.Second

// A walk follows a search path once.
type walk struct {
	*AutoPath
	ctx    context.Context
	q      *dns.Query
	labels int                // of the name that the client looks up
	buf    [wire.MaxName]byte // buffer of name
	name   []byte             // the name of the current step
}

// walk queries the names of the search path after the first, which does not exist
// for q's type, and answers q with the first name that exists.
func (a *AutoPath) walk(ctx context.Context, q *dns.Query, labels int) error {
	w := &walk{AutoPath: a, ctx: ctx, q: q, labels: labels}
	w.name = append(w.buf[:0], q.QuestionName()...)
	if w.query(w.otherType()).RCode != wire.NXDomain {
		return nil
	}

	steps := 0
	for suffix := range w.suffixes() {
		steps++
		if !w.setSuffix(suffix) {
			continue // too long, resolvers skip it as well
		}

		missing, found := w.lookup()
		switch {
		case missing:
			continue
		case found != nil && a.source != byQuery:
			return w.answer(found, steps)
		}
		return nil
	}

	if a.source == byQuery && w.ambiguous() {
		return nil
	}

	w.setSuffix(wire.Root)
	if _, found := w.lookup(); found != nil {
		return w.answer(found, steps+1)
	}
	return nil
}

// suffixes returns the search path without its first domain.
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

		for _, suffix := range w.hostSearch {
			// This machine may be a pod, with the cluster's domains in its search
			// path.
			own := w.source == byClient && zone != wire.Root && suffix.Within(zone)
			if !own && !yield(suffix) {
				return
			}
		}
	}
}

// setSuffix sets w.name to the client's name followed by suffix. It returns false
// if that is longer than a name may be.
func (w *walk) setSuffix(suffix wire.Name) bool {
	base := w.q.QuestionName()[:w.q.LabelOffset(w.labels)]
	if len(base)+len(suffix) > wire.MaxName {
		return false
	}
	w.name = append(append(w.buf[:0], base...), suffix...)
	return true
}

// otherType returns AAAA for A and A for AAAA.
func (w *walk) otherType() wire.Type {
	if w.q.Type == wire.TypeA {
		return wire.TypeAAAA
	}
	return wire.TypeA
}

func (w *walk) query(t wire.Type) *dns.Query {
	return w.q.ResolveSubQuery(w.ctx, w.name, t)
}

// lookup queries both address types of w.name: a client that queries both must
// find them under the same name. found is the answer for q's type, or nil if one
// query failed or the response codes differ. missing reports whether the name
// does not exist.
func (w *walk) lookup() (missing bool, found *dns.Query) {
	code := w.query(w.otherType()).RCode
	if code != wire.NXDomain && code != wire.NoError || w.ctx.Err() != nil {
		return false, nil
	}

	sub := w.query(w.q.Type)
	if sub.RCode != code {
		return false, nil
	}
	if code == wire.NXDomain {
		return true, nil
	}
	return false, sub
}

// ambiguous reports whether the query may be the second of a search for a name
// that ends in the namespace. It is not if the namespace is no top-level domain.
func (w *walk) ambiguous() bool {
	label := w.q.Name()[w.q.LabelOffset(w.labels):w.q.LabelOffset(w.labels+1)]
	w.name = append(append(w.buf[:0], label...), wire.Root...)
	return w.query(wire.TypeA).RCode != wire.NXDomain
}

// answer answers q with a CNAME record to w.name and the answer found. The TTL of
// the CNAME record is at most that of the negative answer for q's own name.
func (w *walk) answer(found *dns.Query, steps int) error {
	q := w.q
	ttl := negativeTTL(&q.Answer)
	if lowest, ok := found.Answer.MinTTL(); ok {
		ttl = min(ttl, lowest)
	}

	q.Fail(wire.NoError)
	q.AddExtendedErrors(found)
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

// negativeTTL returns how long a negative answer may be cached (RFC 2308 §5).
func negativeTTL(a *wire.Answer) uint32 {
	const unknown = 5 // the minimum TTL of a cache of this server
	ttl := uint32(unknown)
	a.Walk(func(s wire.Section, r wire.Record) bool {
		if s == wire.Authority && r.Type == wire.TypeSOA && r.Next-r.RData >= 4 {
			ttl = min(r.TTL(a.Buf), binary.BigEndian.Uint32(a.Buf[r.Next-4:]))
		}
		return true
	})
	return ttl
}
