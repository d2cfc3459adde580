package gateway

import (
	"context"
	"iter"
	"slices"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// A Handler answers published hosts with the addresses that their traffic has inside of the cluster: the
// gateway directive. Its reference page is docs/reference/directives/gateway.md.
type Handler struct {
	*settings
	whole  []wire.Name // the zones of the server block
	source *source     // nil before the start
}

// Repetition reports that names in the zones depend on the objects.
func (h *Handler) Repetition() dns.Repetition {
	return dns.Repetition{Allows: func(q *dns.Query) bool { return h.rules.ZoneOf(q.Name()) == 0 }}
}

// isAnswered reports whether queries of a type are answered for a published host. Others pass, so that a
// host keeps its MX and TXT records; SVCB and HTTPS records would have addresses of outside.
func isAnswered(t wire.Type) bool {
	switch t {
	case wire.TypeA, wire.TypeAAAA, wire.TypeCNAME, wire.TypeSVCB, wire.TypeHTTPS, wire.TypeANY:
		return true
	}
	return false
}

// ServeDNS answers published hosts. All other names pass.
func (h *Handler) ServeDNS(q *dns.Query) dns.Verdict {
	length := h.rules.ZoneOf(q.Name())
	if length == 0 || !isAnswered(q.Type) {
		return dns.Next
	}
	a := h.source.table.find(q, length)
	if a == nil || a.isEmpty() {
		return h.unknown(q, length)
	}

	q.AA = true
	if a.alias != "" {
		return h.followAlias(q, a)
	}
	if q.Type == wire.TypeA || q.Type == wire.TypeANY {
		q.Answer.AppendString(wire.Answers, a.a, a.count[0])
	}
	if q.Type == wire.TypeAAAA || q.Type == wire.TypeANY {
		q.Answer.AppendString(wire.Answers, a.aaaa, a.count[1])
	}
	return dns.Done
}

// followAlias answers with a CNAME record and its target's answer.
func (h *Handler) followAlias(q *dns.Query, a *answer) dns.Verdict {
	buf := wire.AppendRecordHeader(q.Answer.Buf, wire.OwnerIsQuestion, wire.TypeCNAME, h.ttl, len(a.alias))
	q.Answer.Buf = append(buf, a.alias...)
	q.Answer.Count[wire.Answers]++
	if q.Type == wire.TypeCNAME || q.Type == wire.TypeANY {
		return dns.Done
	}
	var room [wire.MaxName]byte
	return q.FollowTarget(append(room[:0], a.alias...))
}

// unknown handles a query for a name that is no host. Before the objects have been read, names in the zones
// fail: the answer of elsewhere would be kept by clients. That does not hold for whole zones of the server
// block, which others answer.
func (h *Handler) unknown(q *dns.Query, length int) dns.Verdict {
	if h.Ready() || slices.Contains(h.whole, wire.Name(q.Name()[len(q.Name())-length:])) {
		return dns.Next
	}
	q.Fail(wire.ServFail)
	return dns.Done
}

// Resolve waits for the answer to the sub-query for a CNAME target.
func (h *Handler) Resolve(ctx context.Context, q *dns.Query) error { return q.ResumeTarget(ctx) }

// Ready reports whether the objects have been read once.
func (h *Handler) Ready() bool { return h.source == nil || h.source.synced.Happened() }

// ListedZones implements inventory.Partial.
func (h *Handler) ListedZones() []wire.Name { return h.zones }

// RecordSource identifies the handler's records.
func (h *Handler) RecordSource() any { return h.source }

// ZoneRecords returns the records in a zone, in wire form and in no particular order.
func (h *Handler) ZoneRecords(origin wire.Name) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		if h.source == nil {
			return
		}
		for owner, a := range h.source.table.all() {
			if owner.Within(origin) && !a.each(owner, h.ttl, yield) {
				return
			}
		}
	}
}
