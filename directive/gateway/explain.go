package gateway

import (
	"context"
	"fmt"
	"slices"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/directive/internal/objects"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/observe/explain"
	"github.com/seamark/seamark/wire"
)

// mostIgnored is how many objects an explanation has that name a host, but do not publish it.
const mostIgnored = 5

// ExplainDNS implements [dns.Explainer].
func (h *Handler) ExplainDNS(q *dns.Query, _ dns.Verdict) []dns.Cause {
	length := h.rules.ZoneOf(q.Name())
	switch {
	case length == 0:
		return []dns.Cause{{Text: "the name is in no zone of the directive"}}
	case !isAnswered(q.Type):
		return []dns.Cause{{Text: fmt.Sprintf("queries of type %s go to the next directive", q.Type)}}
	case !h.Ready():
		return []dns.Cause{{Text: "the objects that publish hosts have not been read yet"}}
	}
	a := h.source.table.find(q, length)
	if a == nil {
		return h.source.explainMissing(wire.Name(q.Name()))
	}
	return []dns.Cause{a.cause()}
}

// cause describes an answer.
func (a *answer) cause() dns.Cause {
	text := fmt.Sprintf("the host is in %s, and has the addresses of %s", a.from, a.via)
	if a.isEmpty() {
		text = fmt.Sprintf("the host is in %s, but neither a Service nor a status has an address for it", a.from)
	}
	return dns.Cause{
		Text:   text,
		Object: &dns.Object{Kind: a.from.Kind.ObjectKind(), Namespace: a.from.Key.Namespace, Name: a.from.Key.Name},
	}
}

// explainMissing returns why a name is no host.
func (x *source) explainMissing(name wire.Name) []dns.Cause {
	return append([]dns.Cause{{Text: "no object publishes the name"}}, x.explainRefused(name)...)
}

// explainRefused returns why objects that name a host do not publish it.
func (x *source) explainRefused(name wire.Name) (causes []dns.Cause) {
	var texts []string
	x.explain(func(id objects.ID, h host, why string) {
		if h.name == name && !h.wild || h.wild && h.covers(name) {
			texts = append(texts, fmt.Sprintf("%s names %s: %s", id, h, why))
		}
	})
	slices.Sort(texts)
	texts = slices.Compact(texts)
	for _, text := range texts[:min(mostIgnored, len(texts))] {
		causes = append(causes, dns.Cause{Text: text})
	}
	return causes
}

// ReadObjects implements explain.ObjectReader.
func (h *Handler) ReadObjects(ctx context.Context, all []*dns.Object) { h.source.readObjects(ctx, all) }

func (x *source) readObjects(ctx context.Context, all []*dns.Object) {
	var read cluster.ReadOrigin
	if x != nil {
		read = x.Origins()
	}
	explain.ReadOrigins(ctx, read, all)
}

// ExplainDNS implements [dns.Explainer].
func (x *External) ExplainDNS(q *dns.Query, v dns.Verdict) []dns.Cause {
	z := x.find(q)
	switch {
	case z == nil:
		return []dns.Cause{{Text: "the name is in no zone of the directive"}}
	case z.current.Load() == nil:
		return []dns.Cause{{Text: "the objects that publish hosts have not been read yet"}}
	}
	texts, near := z.current.Load().Explain(q.Name(), q.Type, corefile.Nearest)
	return append(dns.FallthroughCauses(v, texts, near), x.source.explainRefused(wire.Name(q.Name()))...)
}
