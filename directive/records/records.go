package records

import (
	"context"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// A Handler answers from records in the Corefile: the records directive. Its reference page is
// docs/reference/directives/records.md.
type Handler struct {
	table table
}

// ServeDNS answers the names that have records.
func (h *Handler) ServeDNS(q *dns.Query) dns.Verdict {
	if q.Type.IsTransfer() {
		return dns.Next // records are not a zone
	}
	n := h.table.find(q)
	if n == nil {
		return dns.Next
	}

	q.AA = true
	if n.target == nil || q.Type == wire.TypeCNAME || q.Type == wire.TypeANY {
		n.answer(q)
		return dns.Done
	}
	n.sets[0].put(q, wire.Answers, []byte(wire.OwnerIsQuestion))
	return q.FollowTarget(n.target)
}

// Resolve waits for the answer to the sub-query for a CNAME target.
func (h *Handler) Resolve(ctx context.Context, q *dns.Query) error { return q.ResumeTarget(ctx) }

// NameExists reports whether a name below the query name has records. The query
// name then exists too (RFC 8020).
func (h *Handler) NameExists(q *dns.Query) bool {
	_, ok := h.table.ancestors[string(q.Name())]
	return ok
}

// answer writes the records of the query type, and the addresses of their targets.
func (n *node) answer(q *dns.Query) {
	for i := range n.sets {
		if s := &n.sets[i]; s.t == q.Type || q.Type == wire.TypeANY {
			s.put(q, wire.Answers, []byte(wire.OwnerIsQuestion))
		}
	}
	for i := range n.sets {
		if s := &n.sets[i]; s.t == q.Type {
			s.putTargets(q)
		}
	}
}

// putTargets writes the addresses of the targets of s.
func (r *rrset) putTargets(q *dns.Query) {
	var room [wire.MaxName]byte
	for _, t := range r.targets {
		if q.ExceedsLimit() {
			return
		}
		owner := q.Answer.AppendOwner(room[:0], t.name)
		for i := range t.node.sets {
			if a := &t.node.sets[i]; a.hasAddresses() {
				a.put(q, wire.Additional, owner)
			}
		}
	}
}

// put writes the records of s with the owner name owner, which is in the form of
// an Answer. It stops when the answer exceeds the size limit of the reply.
func (r *rrset) put(q *dns.Query, section wire.Section, owner []byte) {
	a := &q.Answer
	for _, rdata := range r.rdata {
		if q.ExceedsLimit() {
			return
		}
		a.Buf = append(wire.AppendRecordHeader(a.Buf, owner, r.t, r.ttl, len(rdata)), rdata...)
		a.Append(section, nil, 1)
	}
}
