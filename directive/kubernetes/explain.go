package kubernetes

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/directive/kubernetes/index"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/observe/explain"
)

// reasons are the sentences for results that need no object to be explained.
var reasons = [parked + 1]string{
	noName:          "the zone has only names below svc and pod",
	belowAlias:      "an ExternalName has no names below it",
	noPods:          "the option pods is disabled, so Pods have no names",
	noPodAddress:    "the first label of a Pod's name is its IP address with dashes, such as 10-0-0-1",
	noReverseName:   "the name is no reverse name of an address",
	noPrimary:       "no zone of the directive has names that a PTR record could contain",
	isZone:          "the name is the zone itself, which has SOA and NS records",
	isServer:        "the name is that of the zone's DNS server",
	isNameServer:    "the name is that of the zone's name server",
	aboveNameServer: "the name has no records of its own; the name of the zone's name server is below it",
	isVersion:       "the name has the version of the specification, as a TXT record",
	isServices:      "svc has no records of its own; the names of Services are below it",
	isPods:          "pod has no records of its own",
	isInsecurePod:   "pods insecure: every address has a name, whether a Pod has it or not",
	refused:         "zone transfers need the directive transfer, which permits them to some clients",
}

// ExplainDNS implements [dns.Explainer]. It names the objects that decide the answer, or
// the nearest name that exists.
func (h *Handler) ExplainDNS(q *dns.Query, v dns.Verdict) []dns.Cause {
	z := h.zone(q)
	if z == nil {
		return []dns.Cause{{Text: "the name is in none of the zones " + h.zoneNames()}}
	}

	l := &lookup{Handler: h, q: q, zone: z, depth: q.Labels() - z.labels}
	e := explanation{lookup: l, found: result(q.Reason)}
	if h.index.Unlisted() != "" {
		e.add("not synced: %s", h.Unready())
	}
	if e.found != notListed { // what exists is not known
		e.name()
	}

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
	found  result
	causes []dns.Cause

	key    cluster.Key  // of the Service that the name is of, or below
	prefix int          // labels in front of the Service's name
	svc    *index.Entry // the Service as clients see it
}

func (e *explanation) add(format string, args ...any) *dns.Cause {
	e.causes = append(e.causes, dns.Cause{Text: fmt.Sprintf(format, args...)})
	return &e.causes[len(e.causes)-1]
}

// name explains the result.
func (e *explanation) name() {
	switch {
	case e.found != refused && e.wildcards && e.hasWildcard():
		text := "the label * matches any label in its place (option wildcards)"
		if e.found < emptyNonTerminal {
			text += ", and nothing matches"
		}
		e.add("%s", text)
		return
	case reasons[e.found] != "":
		e.add("%s", reasons[e.found])
	}

	switch e.found {
	case noName:
		if e.depth != 2 || !e.nearestService(string(e.label(0)), string(e.label(1))) {
			e.search(0)
		}
	case noNamespace:
		name := e.namespaceLabel()
		e.hasNamespace(name)
		if e.external == nil && string(e.label(e.depth-1)) == "svc" {
			e.nearestService(name, "")
		}
	case isNamespace:
		object := &dns.Object{Kind: "Namespace", Name: e.namespaceLabel()}
		e.add("the name is that of a namespace, which has no records of its own").Object = object
	case noPod, podElsewhere, isPod:
		e.pod()
	case emptyNonTerminal, noAddress, addressElsewhere, isAddress:
		e.reverse()
	case answered, parked, isTopologyZone, noService, noEndpoint, noPort, noTopologyZone, belowAlias,
		endpointsElsewhere:
		e.service()
	}
}

// ownLabels is the number of labels in front of the zone that the name of a Service has.
func (e *explanation) ownLabels() int {
	if e.external != nil {
		return 2 // SVC.NS
	}
	return 3 // SVC.NS.svc
}

// namespaceLabel returns the label of the namespace.
func (e *explanation) namespaceLabel() string { return string(e.label(e.depth - e.ownLabels() + 1)) }

// visible returns the entry of a Service as clients see it, nil if it has no name.
func (e *explanation) visible(svc *index.Entry) *index.Entry {
	switch {
	case e.external != nil:
		return svc.VisibleExternal()
	case svc.Visible():
		return svc
	}
	return nil
}

// join returns the name of a namespace, or one below it.
func (e *explanation) join(labels ...string) string {
	if e.external == nil {
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

// hasNamespace reports whether a namespace has a name, and explains why it has none.
func (e *explanation) hasNamespace(name string) bool {
	ns := e.index.Namespace([]byte(index.Label(name)))
	o := e.options
	switch {
	case o.Namespaces != "" && !slices.Contains(strings.Split(o.Namespaces, ","), name):
		shown := strings.ReplaceAll(o.Namespaces, ",", ", ")
		c := e.add("namespace %s is hidden: the option namespaces has only %s", name, shown)
		c.Nearest = e.nearestNamespace(name)
	case ns == nil:
		c := e.add("namespace %s does not exist, and no Service is in it", name)
		c.Nearest = e.nearestNamespace(name)
	case ns.Exposed():
		return true
	case o.NamespaceLabels != "":
		e.add("namespace %s is hidden: it does not exist, or the option namespace_labels excludes it (%s)",
			name, o.NamespaceLabels)
	default:
		e.add("namespace %s does not exist, but objects in it do", name)
	}
	return false
}

// ReadObjects implements explain.ObjectReader: the index does not keep the metadata.
func (h *Handler) ReadObjects(ctx context.Context, objects []*dns.Object) {
	explain.ReadOrigins(ctx, h.index.Origins(), objects)
}
