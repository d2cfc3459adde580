package records

import (
	"context"
	"iter"
	"slices"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// A Handler answers from records in the Corefile and in objects of a cluster: the records
// directive. Its reference page is docs/reference/directives/records.md.
type Handler struct {
	own     names
	packed  string           // own's records
	lines   map[*entry]place // of the first record of each name in own
	zones   []wire.Name      // of all uses
	whole   []wire.Name      // the zones of the server block
	objects *objectNames     // nil without the option, and before the start

	settings *objectSettings // of objects; nil without the option
}

// ServeDNS answers the names that have records.
func (h *Handler) ServeDNS(q *dns.Query) dns.Verdict {
	if q.Type.IsTransfer() {
		return dns.Next // records are not a zone
	}
	e := h.find(q.Name())
	if e == nil {
		return h.unknown(q)
	}

	q.AA = true
	var room [wire.MaxName]byte
	target := e.target(room[:0])
	if target == nil || q.Type == wire.TypeCNAME || q.Type == wire.TypeANY {
		h.answer(q, e)
		return dns.Done
	}
	s, _ := nextSet(e.Value)
	s.put(q, wire.Answers, []byte(wire.OwnerIsQuestion))
	return q.FollowTarget(target)
}

// Resolve waits for the answer to the sub-query for a CNAME target.
func (h *Handler) Resolve(ctx context.Context, q *dns.Query) error { return q.ResumeTarget(ctx) }

// find returns the entry of a name in lower case, or else of the longest wildcard that matches it,
// or nil. Names of the Corefile come before those of objects.
func (h *Handler) find(name []byte) *entry {
	if e := h.own.exact.Get(name); e != nil {
		return e
	}
	if h.objects == nil {
		e, _ := h.own.wild(name)
		return e
	}

	if e := h.objects.exact.Get(name); e != nil {
		return e
	}
	e, parent := h.own.wild(name)
	// A wildcard above a delegated zone does not match in it.
	if other, longer := h.objects.wild(name); longer > parent && longer >= h.objects.rules.ZoneOf(name) {
		return other
	}
	return e
}

// unknown handles a query for a name without records. Before the objects have been read, the names
// that they may have fail: NXDOMAIN from elsewhere would be kept by clients. That does not hold for
// whole zones of the server block, which others answer.
func (h *Handler) unknown(q *dns.Query) dns.Verdict {
	if h.objects == nil || h.objects.IsSynced() {
		return dns.Next
	}
	length := h.objects.rules.ZoneOf(q.Name())
	if length == 0 || slices.Contains(h.whole, wire.Name(q.Name()[len(q.Name())-length:])) {
		return dns.Next
	}
	q.Fail(wire.ServFail)
	return dns.Done
}

// NameExists reports whether a name below the query name has records. The query
// name then exists too (RFC 8020).
func (h *Handler) NameExists(q *dns.Query) bool {
	return h.own.exists(q.Name()) || h.objects != nil && h.objects.exists(q.Name())
}

// Ready reports whether the objects have been read once.
func (h *Handler) Ready() bool { return h.objects == nil || h.objects.IsSynced() }

// ListedZones implements inventory.Partial.
func (h *Handler) ListedZones() []wire.Name { return h.zones }

// RecordSource identifies the handler's records: those of a use in another server block may be the same.
func (h *Handler) RecordSource() any {
	return struct {
		own     string
		objects *objectNames
	}{h.packed, h.objects}
}

// ZoneRecords returns the records in a zone, in wire form and in no particular order.
func (h *Handler) ZoneRecords(origin wire.Name) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		var buf []byte
		for owner, e := range h.all() {
			if !owner.Within(origin) {
				continue
			}
			for s := range e.rrsets() {
				for rest := s.records; rest != ""; {
					var r record
					r, rest = nextRecord(rest)
					buf = wire.AppendRecordHeader(buf[:0], string(owner), s.t, s.ttl, len(r.rdata))
					if !yield(append(buf, r.rdata...)) {
						return
					}
				}
			}
		}
	}
}

// all returns the owner names and their entries.
func (h *Handler) all() iter.Seq2[wire.Name, *entry] {
	return func(yield func(wire.Name, *entry) bool) {
		for owner, e := range h.own.all() {
			if !yield(owner, e) {
				return
			}
		}
		if h.objects == nil {
			return
		}
		for owner, e := range h.objects.all() {
			if h.own.Get(owner) == nil && !yield(owner, e) {
				return
			}
		}
	}
}

// answer writes the records of the query type, and the addresses of their targets.
func (h *Handler) answer(q *dns.Query, e *entry) {
	for s := range e.rrsets() {
		if s.t == q.Type || q.Type == wire.TypeANY {
			s.put(q, wire.Answers, []byte(wire.OwnerIsQuestion))
		}
	}
	for s := range e.rrsets() {
		if s.t == q.Type {
			h.putTargets(q, s)
		}
	}
}

// putTargets writes the addresses of the targets of s.
func (h *Handler) putTargets(q *dns.Query, s rrset) {
	before := s.t.TargetOffset()
	if before < 0 {
		return
	}

	var room, lower, spelled [wire.MaxName]byte
	for rest := s.records; rest != "" && !q.ExceedsLimit(); {
		var r record
		if r, rest = nextRecord(rest); r.repeated {
			continue
		}
		name := append(spelled[:0], wire.NameAt(r.rdata, before)...)
		if len(name) == 0 {
			continue
		}
		e := h.find(wire.AppendLower(lower[:0], name))
		if e == nil {
			continue
		}
		owner := q.Answer.AppendOwner(room[:0], name)
		for s := range e.rrsets() {
			if s.t == wire.TypeA || s.t == wire.TypeAAAA {
				s.put(q, wire.Additional, owner)
			}
		}
	}
}

// put writes the records of s with the owner name owner, which is in the form of
// an Answer. It stops when the answer exceeds the size limit of the reply.
func (s rrset) put(q *dns.Query, section wire.Section, owner []byte) {
	a := &q.Answer
	for rest := s.records; rest != "" && !q.ExceedsLimit(); {
		var r record
		r, rest = nextRecord(rest)
		a.Buf = append(wire.AppendRecordHeader(a.Buf, owner, s.t, s.ttl, len(r.rdata)), r.rdata...)
		a.Append(section, nil, 1)
	}
}
