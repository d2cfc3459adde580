package records

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// comparedNames is the number of names that are compared with one that has no records.
const comparedNames = 20_000

// ExplainDNS implements [dns.Explainer].
func (h *Handler) ExplainDNS(q *dns.Query, _ dns.Verdict) []dns.Cause {
	cause := func(format string, args ...any) []dns.Cause {
		return []dns.Cause{{Text: fmt.Sprintf(format, args...)}}
	}
	if q.Type.IsTransfer() {
		return cause("the records are not a zone, which could be transferred")
	}

	n, subject := h.table.names[wire.Name(q.Name())], "the name"
	if n == nil {
		var at int
		if n, at = h.table.wildcard(q); n != nil {
			name := wire.Name(wildcard + string(q.Name()[q.LabelOffset(at):]))
			subject = fmt.Sprintf("the name has no line; the wildcard %s matches it, and", name)
		}
	}

	switch {
	case n != nil:
		return cause("%s %s (%s:%d)", subject, n.describe(q.Type), n.first.File, n.first.Line)
	case h.NameExists(q):
		return cause("the name has no line; names below it have")
	}
	causes := cause("no line has the name")
	causes[0].Nearest = h.table.nearest(wire.Name(q.Name()))
	return causes
}

// nearest returns a similar name that has a line, or "".
func (t *table) nearest(name wire.Name) string {
	var known []string
	for own := range maps.Keys(t.names) {
		if known = append(known, own.String()); len(known) == comparedNames {
			break
		}
	}
	slices.Sort(known)
	return corefile.Nearest(name.String(), known)
}

// describe describes the types of n for a query of type t.
func (n *node) describe(t wire.Type) string {
	var types []string
	has := t == wire.TypeANY
	for _, s := range n.sets {
		types = append(types, s.t.String())
		has = has || s.t == t
	}
	switch {
	case n.target != nil && t != wire.TypeCNAME:
		return "is an alias (CNAME) of " + wire.Name(n.target).String()
	case has:
		return "has " + t.String() + " records"
	}
	return fmt.Sprintf("has no %s records, only %s", t, strings.Join(types, ", "))
}
