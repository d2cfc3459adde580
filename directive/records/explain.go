package records

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/observe/explain"
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

	e := h.find(q.Name())
	switch {
	case e != nil && e.From != nil:
		causes := cause("%s %s (%s)", h.subject(q, e), e.describe(q.Type), e.From)
		key := e.From.Key()
		causes[0].Object = &dns.Object{Kind: e.From.Kind().ObjectKind(), Namespace: key.Namespace, Name: key.Name}
		return causes
	case e != nil:
		return cause("%s %s (%s)", h.subject(q, e), e.describe(q.Type), h.lines[e])
	case h.NameExists(q):
		return cause("the name has no line; names below it have")
	case !h.Ready():
		return cause("the objects with records have not been read yet")
	}
	causes := cause("no line has the name")
	if text := h.refused(q); text != "" {
		causes = append(causes, dns.Cause{Text: text})
	}
	causes[0].Nearest = h.nearest(wire.Name(q.Name()))
	return causes
}

// refused returns a text about an object with an error, if objects may have the query name.
func (h *Handler) refused(q *dns.Query) string {
	if h.objects == nil || h.objects.rules.ZoneOf(q.Name()) == 0 {
		return ""
	}
	return h.objects.Faults()
}

// ReadObjects implements explain.ObjectReader.
func (h *Handler) ReadObjects(ctx context.Context, objects []*dns.Object) {
	var read cluster.ReadOrigin
	if h.objects != nil {
		read = h.objects.Origins()
	}
	explain.ReadOrigins(ctx, read, objects)
}

// subject names what of the query name has the entry: the name itself, or a wildcard.
func (h *Handler) subject(q *dns.Query, e *entry) string {
	for owner, other := range h.all() {
		if other == e && owner != wire.Name(q.Name()) {
			return fmt.Sprintf("the name has no line; the wildcard %s matches it, and", owner)
		}
	}
	return "the name"
}

// nearest returns a similar name that has a line, or "".
func (h *Handler) nearest(name wire.Name) string {
	var known []string
	for own := range h.all() {
		if strings.HasPrefix(string(own), wildcard) {
			continue
		}
		if known = append(known, own.String()); len(known) == comparedNames {
			break
		}
	}
	slices.Sort(known)
	return corefile.Nearest(name.String(), known)
}

// describe describes the types of e for a query of type t.
func (e *entry) describe(t wire.Type) string {
	var types []string
	has := t == wire.TypeANY
	for s := range e.rrsets() {
		types = append(types, s.t.String())
		has = has || s.t == t
	}
	target := e.target(nil)
	switch {
	case target != nil && t != wire.TypeCNAME:
		return "is an alias (CNAME) of " + wire.Name(target).String()
	case has:
		return "has " + t.String() + " records"
	}
	return fmt.Sprintf("has no %s records, only %s", t, strings.Join(types, ", "))
}
