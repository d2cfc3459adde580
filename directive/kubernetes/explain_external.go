package kubernetes

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
)

// ReadObjects implements explain.ObjectReader.
func (e *External) ReadObjects(ctx context.Context, objects []*dns.Object) {
	e.kubernetes.ReadObjects(ctx, objects)
}

// ExplainDNS implements [dns.Explainer].
func (e *External) ExplainDNS(q *dns.Query, v dns.Verdict) []dns.Cause {
	return e.handler.ExplainDNS(q, v)
}

// ReadObjects implements explain.ObjectReader.
func (f *Federation) ReadObjects(ctx context.Context, objects []*dns.Object) {
	f.kubernetes.ReadObjects(ctx, objects)
}

// ExplainDNS implements [dns.Explainer]. It has nothing to say about most names that are not
// federated.
func (f *Federation) ExplainDNS(q *dns.Query, v dns.Verdict) []dns.Cause {
	z := f.kubernetes.zone(q)
	if z == nil || q.Labels() != z.labels+4 || !slices.Contains(f.zones, z) {
		return nil
	}

	e := explanation{lookup: &lookup{Handler: f.kubernetes, q: q, zone: z, depth: 4}}
	svc, namespace, federation := string(e.label(0)), string(e.label(1)), string(e.label(2))
	if string(e.label(3)) != "svc" {
		return nil
	}
	if v == dns.Next {
		if near := corefile.Nearest(federation, slices.Sorted(maps.Keys(f.domains))); near != "" && near != federation {
			e.add("no federation is named %s; one has a similar name, %s", federation, near).Nearest = e.join(svc,
				namespace, near)
		}
		return e.causes
	}
	entry := f.kubernetes.index.Service(q.Name()[:q.LabelOffset(2)])
	what := "has no endpoint in this cluster"
	switch {
	case hasEndpoints(entry):
		e.add("Service %s/%s is in this cluster, so the federated name is an alias of its name here", namespace,
			svc).Object = &dns.Object{Kind: "Service", Namespace: namespace, Name: svc}
		return e.causes
	case entry == nil || !entry.Known():
		what = "is not in this cluster"
	}
	text := fmt.Sprintf("Service %s/%s %s, so the federated name leads to another one", namespace, svc, what)
	if _, err := f.nodes.location(); err != nil {
		text += ", whose name is not known: " + err.Error()
	}
	e.add("%s", text)
	return e.causes
}
