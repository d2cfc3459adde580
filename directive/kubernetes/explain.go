package kubernetes

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/directive/kubernetes/index"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// ExplainDNS implements [dns.Explainer]. It names the objects that decide the answer, or
// the nearest name that exists.
func (h *Handler) ExplainDNS(q *dns.Query, v dns.Verdict) []dns.Cause {
	z := h.zone(q)
	if z == nil {
		return []dns.Cause{{Text: "the name is in none of the zones " + h.zoneNames()}}
	}
	e := explanation{lookup: &lookup{Handler: h, q: q, zone: z, depth: q.Labels() - z.labels}}
	if kinds := h.index.Unlisted(); kinds != "" {
		e.add("not synced: %s have not been listed since the start", kinds)
	}
	if q.Type == wire.TypeAXFR || q.Type == wire.TypeIXFR {
		e.add("zone transfers need the directive transfer, which permits them to some clients")
		return e.causes
	}
	e.name()
	switch {
	case v != dns.Next:
	case h.onlyServices || h.nodePods:
		e.add("the directives below answer: the option only services or node, or fallthrough, passes the name on")
	default:
		e.add("fallthrough passes the name on to the directives below")
	}
	return e.causes
}

// An explanation collects the causes of one answer.
type explanation struct {
	*lookup
	external bool // of k8s_external
	causes   []dns.Cause
}

// ownLabels is the number of labels in front of the zone that the name of a Service has.
func (e *explanation) ownLabels() int {
	if e.external {
		return 2 // SVC.NS
	}
	return 3 // SVC.NS.svc
}

// serves reports whether the Service has a name.
func (e *explanation) serves(svc *index.Entry) bool {
	if e.external {
		return svc.VisibleExternal() != nil
	}
	return svc.Visible()
}

func (e *explanation) add(format string, args ...any) *dns.Cause {
	e.causes = append(e.causes, dns.Cause{Text: fmt.Sprintf(format, args...)})
	return &e.causes[len(e.causes)-1]
}

// name explains by the labels in front of the zone, as lookup.answer does.
func (e *explanation) name() {
	if e.depth == 0 {
		e.add("the name is the zone itself, which has SOA and NS records")
		return
	}
	last := string(e.label(e.depth - 1))
	switch {
	case e.wildcards && e.hasWildcard():
		text := "the label * matches any label in its place (option wildcards)"
		if e.q.RCode == wire.NXDomain {
			text += ", and nothing matches"
		}
		e.add("%s", text)
	case last == "dns" && e.depth <= 2:
		e.add("the name is that of the zone's DNS server")
	case e.zone.reverse:
		e.reverse()
	case last == "svc" && e.depth == 1:
		e.add("svc has no records of its own; the names of Services are below it")
	case last == "svc" && e.depth == 2:
		if !e.namespaceName(e.label(0)) {
			e.nearestService(string(e.label(0)), "")
		}
	case last == "svc":
		e.service()
	case last == "pod" && !e.zone.multicluster:
		e.pod()
	case last == "dns-version" && e.depth == 1:
		e.add("the name has the version of the specification, as a TXT record")
	default:
		e.add("the zone has only names below svc and pod")
		if e.depth != 2 || !e.nearestService(string(e.label(0)), last) {
			e.search(0)
		}
	}
}

// namespaceName explains the name of a namespace, or why it has none. It reports whether the
// namespace exists.
func (e *explanation) namespaceName(label []byte) bool {
	name := string(label)
	ns := e.index.Namespace(append([]byte{byte(len(label))}, label...))
	o := e.options
	switch {
	case o.Namespaces != "" && !slices.Contains(strings.Split(o.Namespaces, ","), name):
		e.add("namespace %s is hidden: the option namespaces has only %s", name, strings.ReplaceAll(o.Namespaces, ",", ", ")).Nearest = e.nearestNamespace(name)
	case ns == nil:
		e.add("namespace %s does not exist, and no Service is in it", name).Nearest = e.nearestNamespace(name)
	case !ns.Exposed() && o.NamespaceLabels != "":
		e.add("namespace %s is hidden: it does not exist, or the option namespace_labels excludes it (%s)", name, o.NamespaceLabels)
	case !ns.Exposed():
		e.add("namespace %s does not exist, but objects in it do", name)
	default:
		if e.depth == e.ownLabels()-1 {
			e.add("the name is that of a namespace, which has no records of its own").Object = &dns.Object{Kind: "Namespace", Name: name}
		}
		return true
	}
	return false
}

// nearestNamespace returns the name of a namespace with a similar name, or "".
func (e *explanation) nearestNamespace(name string) string {
	var all []string
	e.index.Lock()
	for key, ns := range e.index.Namespaces() {
		if ns.Exposed() {
			all = append(all, key[1:])
		}
	}
	e.index.Unlock()
	slices.Sort(all)
	if near := corefile.Nearest(name, all); near != "" {
		return e.join(near)
	}
	return ""
}

// join returns the name of a namespace, or one below it.
func (e *explanation) join(labels ...string) string {
	if !e.external {
		labels = append(labels, "svc")
	}
	return strings.Join(labels, ".") + "." + e.zone.name.String()
}

// kind returns the kind of the objects that the zone's names are from.
func (e *explanation) kind() string {
	if e.zone.multicluster {
		return "ServiceImport"
	}
	return "Service"
}

// service explains a name at or below the name of a Service.
func (e *explanation) service() {
	name, namespace := string(e.label(e.depth-3)), string(e.label(e.depth-2))
	key := e.q.Name()[e.q.LabelOffset(e.depth-3):e.q.LabelOffset(e.depth-1)]
	svc := e.index.Entry(e.zone.multicluster, key)
	object := &dns.Object{Kind: e.kind(), Namespace: namespace, Name: name}
	if e.onlyServices && e.isElsewhere(svc) {
		e.add("%s %s/%s is known, but not its endpoints, on which the answer depends (only services)", e.kind(), namespace, name).Object = object
		return
	}
	if !svc.Visible() {
		if e.namespaceName([]byte(namespace)) {
			switch {
			case svc != nil && svc.Known():
				why := "has no endpoint that is ready, and the option ignore empty_service hides it"
				if svc.ExternalName {
					why = "has an externalName that is no host name"
				} else if svc.Headless {
					why = "is headless and has no endpoint that is ready, so it has no name"
				}
				e.add("%s %s/%s %s", e.kind(), namespace, name, why).Object = object
				return
			case svc != nil && len(svc.Slices()) > 0:
				e.add("namespace %s has no %s named %s, only EndpointSlices that name it", namespace, e.kind(), name)
			default:
				e.add("namespace %s has no %s named %s", namespace, e.kind(), name)
			}
		}
		if !e.nearestService(name, namespace) {
			e.search(1)
		}
		return
	}
	e.below(svc, name, namespace)
	switch {
	case svc.ExternalName:
		e.add("%s %s/%s is an alias (ExternalName)", e.kind(), namespace, name).Object = object
		return
	case svc.Headless:
		ready, all := countEndpoints(svc)
		what := "is headless; %d of its %d endpoints are served"
		if svc.PublishNotReady {
			what += " (publishNotReadyAddresses)"
		} else if ready < all {
			what += ", the others are not ready"
		}
		e.add("%s %s/%s "+what, e.kind(), namespace, name, ready, all).Object = object
	default:
		var ips []string
		for ip := range svc.ClusterIPs() {
			ips = append(ips, ip.String())
		}
		if ips == nil {
			ips = []string{"no address"}
		}
		e.add("%s %s/%s has %s", e.kind(), namespace, name, strings.Join(ips, ", ")).Object = object
	}
	for i, p := range svc.Slices() {
		if i == 3 {
			e.add("and %d more EndpointSlices", len(svc.Slices())-i)
			break
		}
		e.add("endpoints from EndpointSlice %s/%s", namespace, p.Name()).Object = &dns.Object{Kind: "EndpointSlice", Namespace: namespace, Name: p.Name()}
	}
}

// countEndpoints returns the number of endpoints that answers include, and of all.
func countEndpoints(e *index.Entry) (served, all int) {
	var ep cluster.Endpoint
	for _, p := range e.Slices() {
		for rest := p.Endpoints(); rest != "" && !rest.HasNames(); all++ {
			if rest = rest.Next(&ep); e.IsServed(&ep) {
				served++
			}
		}
	}
	return served, all
}

// below explains the labels in front of a Service's name, and the absence of a type.
func (e *explanation) below(svc *index.Entry, name, namespace string) {
	prefix := e.depth - e.ownLabels()
	if prefix == 0 {
		if !svc.ExternalName {
			e.missingType(true)
		}
		return
	}
	last := string(e.label(prefix - 1))
	if last == "_zone" && prefix == 3 && svc.Headless && !e.external {
		e.topology(string(e.label(0)), string(e.label(1)) == "prefer")
		return
	}
	if e.q.RCode != wire.NXDomain && !e.q.Answer.Empty() {
		return
	}
	switch {
	case svc.ExternalName:
		e.add("an ExternalName has no names below it")
	case last[0] == '_' && prefix >= 2 && e.label(prefix - 2)[0] == '_':
		port, protocol := string(e.label(prefix - 2))[1:], last[1:]
		e.port(svc, port, protocol, name, namespace)
	case last[0] == '_':
		e.add("the name of a port is _PORT._PROTOCOL.%s", e.join(name, namespace))
	case svc.Headless || e.zone.multicluster:
		if prefix == 1 {
			e.endpoint(svc, last, name, namespace)
			return
		}
		e.add("no endpoint of the Service has this name")
	default:
		e.endpoint(svc, last, name, namespace)
	}
}

// topology explains the name of a topology zone of a headless Service.
func (e *explanation) topology(zone string, prefer bool) {
	switch {
	case !e.zonal:
		e.add("names of topology zones need the option zonal")
	case e.q.Answer.Count[wire.Answers] == 0:
		e.add("the Service has no ready endpoint with %s records in the topology zone %s", e.q.Type, zone)
	case prefer:
		e.add("the name has the endpoints in the topology zone %s, or all if there are none", zone)
	default:
		e.add("the name has the endpoints in the topology zone %s", zone)
	}
}

// missingType explains an answer without records of the query's type. addresses reports
// whether the name is that of a Service or a Pod.
func (e *explanation) missingType(addresses bool) {
	if e.q.RCode != wire.NoError || e.q.Answer.Count[wire.Answers] > 0 {
		return
	}
	switch t := e.q.Type; {
	case addresses && (t == wire.TypeA || t == wire.TypeAAAA):
		family := "IPv4"
		if t == wire.TypeAAAA {
			family = "IPv6"
		}
		e.add("it has no %s address, so the answer has no records", family)
	case addresses && t == wire.TypeSRV:
		e.add("it has no ports, so the answer has no records")
	default:
		e.add("the name has no %s records", t)
	}
}

// port explains a name of a port that does not exist.
func (e *explanation) port(svc *index.Entry, port, protocol, name, namespace string) {
	var have []string
	sets := svc.UsedPortSets()
	for _, set := range sets {
		for _, p := range set.Ports {
			full := "_" + p.Name + "._" + p.Protocol
			if p.Name == "" || slices.Contains(have, full) {
				continue
			}
			if have = append(have, full); len(have) == 20 {
				break
			}
		}
	}
	if len(have) == 0 {
		e.add("the Service has no named port")
		return
	}
	want := "_" + port + "._" + protocol
	if slices.Contains(have, want) {
		return // the port exists: the query has another type
	}
	c := e.add("the Service has no port %s over %s; its names of ports are %s", port, protocol, strings.Join(have, ", "))
	if near := corefile.Nearest(want, have); near != "" {
		c.Nearest = e.join(near, name, namespace)
	}
}

// endpoint explains a name of an endpoint that does not exist.
func (e *explanation) endpoint(svc *index.Entry, label, name, namespace string) {
	var names []string
	var found *cluster.Endpoint
	var ep cluster.Endpoint
	for _, p := range svc.Slices() {
		for rest := p.Endpoints(); rest != "" && !rest.HasNames(); {
			rest = rest.Next(&ep)
			own := string(index.AppendEndpointLabel(nil, ep)[1:])
			if own == label {
				copied := ep
				found = &copied
			}
			if len(names) < 1000 {
				names = append(names, own)
			}
		}
	}
	switch {
	case found != nil && !svc.IsServed(found):
		e.add("endpoint %s (%s) is not ready", label, found.Addr)
	case found != nil:
	default:
		c := e.add("no endpoint of the Service is named %s", label)
		if near := corefile.Nearest(label, names); near != "" {
			c.Nearest = e.join(near, name, namespace)
		}
	}
}

// prefix returns the labels in front of a Service's name, each with a dot behind it.
func (e *explanation) prefix() string {
	var b strings.Builder
	for i := range max(0, e.depth-e.ownLabels()) {
		b.Write(e.label(i))
		b.WriteByte('.')
	}
	return b.String()
}

// nearestService adds the names of Services that the client may have meant: the same name
// in other namespaces, a similar one in this, or the two labels in the other order. It
// reports whether there are any.
func (e *explanation) nearestService(name, namespace string) bool {
	before := len(e.causes)
	var elsewhere, here []string
	e.index.Lock()
	for _, svc := range e.index.Entries(e.zone.multicluster) {
		if !e.serves(svc) {
			continue
		}
		switch key := svc.Key.ObjectKey(); {
		case key.Name == name && key.Namespace != namespace:
			elsewhere = append(elsewhere, key.Namespace)
		case key.Name == namespace && key.Namespace == name:
			e.add("%s and %s are in the wrong order: the Service's name comes first", name, namespace).Nearest = e.prefix() + e.join(namespace, name)
		case key.Namespace == namespace:
			here = append(here, key.Name)
		}
	}
	e.index.Unlock()
	slices.Sort(here)
	slices.Sort(elsewhere)
	if len(elsewhere) > 0 {
		const shown = 3
		text := strings.Join(elsewhere[:min(shown, len(elsewhere))], ", ")
		if more := len(elsewhere) - shown; more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
		e.add("%s %s is in namespace %s", e.kind(), name, text).Nearest = e.prefix() + e.join(name, elsewhere[0])
	}
	if near := corefile.Nearest(name, here); near != "" {
		e.add("namespace %s has a %s with a similar name, %s", namespace, e.kind(), near).Nearest = e.prefix() + e.join(near, namespace)
	}
	return len(e.causes) > before
}

// search notes that a name looks like one outside of the cluster with a search domain of
// a pod appended, which a resolver tries before the name itself. The last suffix labels in
// front of the zone are of the search domain.
func (e *explanation) search(suffix int) {
	labels := e.depth - suffix
	if suffix == 1 && labels > 2 { // NAME.NAMESPACE.svc
		ns := e.label(labels - 1)
		if e.index.Namespace(append([]byte{byte(len(ns))}, ns...)) != nil {
			labels--
		}
	}
	if labels < 2 {
		return
	}
	name := wire.Name(string(e.q.Name()[:e.q.LabelOffset(labels)]) + "\x00")
	e.add("probably a pod searches for %s: with the option ndots:5 of its resolv.conf the search domains are tried first", name)
}
