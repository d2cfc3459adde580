package kubernetes

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// ReadObjects implements explain.ObjectReader.
func (e *External) ReadObjects(ctx context.Context, objects []*dns.Object) {
	e.kubernetes.ReadObjects(ctx, objects)
}

// ExplainDNS implements [dns.Explainer].
func (e *External) ExplainDNS(q *dns.Query, v dns.Verdict) []dns.Cause {
	z := e.handler.zone(q)
	if z == nil {
		return []dns.Cause{{Text: "the name is in none of the zones " + e.handler.zoneNames()}}
	}
	x := explanation{lookup: &lookup{Handler: &e.handler, q: q, zone: z, depth: q.Labels() - z.labels}, external: true}
	if kinds := e.handler.index.Unlisted(); kinds != "" {
		x.add("not synced: %s have not been listed since the start", kinds)
	}
	switch server := x.depth > 0 && string(x.label(x.depth-1)) == e.apex[1:]; {
	case q.Type == wire.TypeAXFR || q.Type == wire.TypeIXFR:
		x.add("zone transfers are not supported")
	case x.depth == 0:
		x.add("the name is the zone itself, which has SOA and NS records")
	case server && x.depth == 1:
		x.add("the name has no records of its own; the name of the zone's name server is below it")
	case server && x.depth == 2 && string(x.label(0)) == firstServer[1:]:
		x.add("the name is that of the zone's name server")
	case z.reverse:
		x.externalReverse()
	case x.depth == 1:
		x.namespaceName(x.label(0))
	default:
		x.externalService(e.headless)
	}
	if v == dns.Next {
		x.add("fallthrough passes the name on to the directives below")
	}
	return x.causes
}

// externalService explains a name at or below that of a Service.
func (e *explanation) externalService(headless bool) {
	name, namespace := string(e.label(e.depth-2)), string(e.label(e.depth-1))
	inside := e.index.Service(e.q.Name()[e.q.LabelOffset(e.depth-2):e.q.LabelOffset(e.depth)])
	svc := inside.VisibleExternal()
	object := &dns.Object{Kind: "Service", Namespace: namespace, Name: name}
	if svc == nil {
		switch {
		case !e.namespaceName([]byte(namespace)):
		case inside == nil || !inside.Known():
			e.add("namespace %s has no Service named %s", namespace, name)
		default:
			why := "has no external address (spec.externalIPs, status.loadBalancer.ingress)"
			switch {
			case inside.Headless && headless:
				why += ", and no endpoint that is ready"
			case inside.Headless:
				why += "; endpoints have names with the option headless only"
			}
			e.add("Service %s/%s %s", namespace, name, why).Object = object
			return
		}
		e.nearestService(name, namespace)
		return
	}
	if svc.ExternalName {
		e.add("the load balancer of Service %s/%s has the host name %s", namespace, name, inside.External.Hosts[0]).Object = object
		return
	}
	e.below(svc, name, namespace)
	if svc.Headless {
		e.add("Service %s/%s is headless: the name has the addresses of its ready endpoints (headless)", namespace, name).Object = object
		return
	}
	var ips []string
	for ip := range svc.ClusterIPs() {
		ips = append(ips, ip.String())
	}
	e.add("Service %s/%s has the external addresses %s", namespace, name, strings.Join(ips, ", ")).Object = object
}

// externalReverse explains a name below in-addr.arpa or ip6.arpa.
func (e *explanation) externalReverse() {
	prefix, ok := wire.ParseReverse(e.q.Name())
	switch {
	case !ok:
		e.add("the name is no reverse name of an address")
		return
	case !prefix.IsSingleIP():
		e.add("the name is that of the network %s, which has no records of its own", prefix)
		return
	}
	found := 0
	for near := e.index.ExternalReverse().Within(prefix); near.Advance() && found < 10; {
		svc := near.Service.Entry().VisibleExternal()
		if svc == nil || !svc.Has(near.Addr()) {
			continue
		}
		key := near.Service.ObjectKey()
		e.add("%s is an external address of Service %s/%s", prefix.Addr(), key.Namespace, key.Name).Object = &dns.Object{Kind: "Service", Namespace: key.Namespace, Name: key.Name}
		found++
	}
	if found == 0 {
		e.add("no Service has the external address %s", prefix.Addr())
	}
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
			e.add("no federation is named %s; one has a similar name, %s", federation, near).Nearest = e.join(svc, namespace, near)
		}
		return e.causes
	}
	entry := f.kubernetes.index.Service(q.Name()[:q.LabelOffset(2)])
	what := "has no endpoint in this cluster"
	switch {
	case hasEndpoints(entry):
		e.add("Service %s/%s is in this cluster, so the federated name is an alias of its name here", namespace, svc).Object = &dns.Object{Kind: "Service", Namespace: namespace, Name: svc}
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
