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

// service explains a name at or below that of a Service.
func (e *explanation) service() {
	e.prefix = e.depth - e.ownLabels()
	e.key = cluster.Key{Namespace: e.namespaceLabel(), Name: string(e.label(e.prefix))}
	labels := e.q.Name()[e.q.LabelOffset(e.prefix):e.q.LabelOffset(e.prefix+2)]
	inside := e.index.Entry(e.zone.multicluster, labels)

	// The Service may have changed since the answer.
	e.svc = e.visible(inside)
	switch {
	case e.found == endpointsElsewhere:
		e.addService("is known, but not its endpoints, on which the answer depends (only services)")
	case e.svc == nil:
		e.noService(inside)
	case e.svc.ExternalName && e.external != nil:
		e.add("the load balancer of Service %s has the host name %s", e.key,
			inside.External.Hosts[0]).Object = e.object()
	default:
		e.below()
		e.addService(e.addresses())
		e.slices()
	}
}

// object returns the Service.
func (e *explanation) object() *dns.Object {
	return &dns.Object{Kind: e.kind(), Namespace: e.key.Namespace, Name: e.key.Name}
}

// addService adds a predicate of the Service.
func (e *explanation) addService(what string) {
	e.add("%s %s %s", e.kind(), e.key, what).Object = e.object()
}

// noService explains why the Service has no name. svc is nil if it does not exist.
func (e *explanation) noService(svc *index.Entry) {
	known := svc != nil && svc.Known()
	switch {
	case !e.hasNamespace(e.key.Namespace):
	case known:
		e.addService(e.hidden(svc))
		return
	case svc != nil && len(svc.Slices()) > 0 && e.external == nil:
		const format = "namespace %s has no %s named %s, only EndpointSlices that name it"
		e.add(format, e.key.Namespace, e.kind(), e.key.Name)
	default:
		e.add("namespace %s has no %s named %s", e.key.Namespace, e.kind(), e.key.Name)
	}

	if !e.nearestService(e.key.Name, e.key.Namespace) && e.external == nil {
		e.search(1)
	}
}

// hidden returns why a Service that exists has no name.
func (e *explanation) hidden(svc *index.Entry) string {
	if e.external != nil {
		why := "has no external address (spec.externalIPs, status.loadBalancer.ingress)"
		switch {
		case svc.Headless && e.external.headless:
			why += ", and no endpoint that is ready"
		case svc.Headless:
			why += "; endpoints have names with the option headless only"
		}
		return why
	}

	switch {
	case svc.ExternalName:
		return "has an externalName that is no host name"
	case svc.Headless:
		return "is headless and has no endpoint that is ready, so it has no name"
	}
	return "has no endpoint that is ready, and the option ignore empty_service hides it"
}

// addresses returns what the Service's name stands for.
func (e *explanation) addresses() string {
	switch {
	case e.svc.ExternalName:
		return "is an alias (ExternalName)"
	case e.svc.Headless && e.external != nil:
		return "is headless: the name has the addresses of its ready endpoints (headless)"
	case e.svc.Headless:
		served, all := countEndpoints(e.svc)
		text := fmt.Sprintf("is headless; %d of its %d endpoints are served", served, all)
		if e.svc.PublishNotReady {
			text += " (publishNotReadyAddresses)"
		} else if served < all {
			text += ", the others are not ready"
		}
		return text
	}

	var ips []string
	for ip := range e.svc.ClusterIPs() {
		ips = append(ips, ip.String())
	}
	switch {
	case e.external != nil:
		return "has the external addresses " + strings.Join(ips, ", ")
	case ips == nil:
		return "has no address"
	}
	return "has " + strings.Join(ips, ", ")
}

// countEndpoints returns the number of endpoints that answers include, and of all.
func countEndpoints(e *index.Entry) (served, all int) {
	for _, p := range e.Slices() {
		for ep := range p.Endpoints().All() {
			if all++; e.IsServed(&ep) {
				served++
			}
		}
	}
	return served, all
}

// slices names the Service's EndpointSlices.
func (e *explanation) slices() {
	if e.svc.ExternalName || e.external != nil {
		return
	}
	all := e.svc.Slices()
	for i, p := range all {
		if i == 3 {
			e.add("and %d more EndpointSlices", len(all)-i)
			break
		}
		c := e.add("endpoints from EndpointSlice %s/%s", e.key.Namespace, p.Name())
		c.Object = &dns.Object{Kind: "EndpointSlice", Namespace: e.key.Namespace, Name: p.Name()}
	}
}

// below explains the labels in front of the Service's name, and the absence of a type.
func (e *explanation) below() {
	switch e.found {
	case answered:
		if e.prefix == 0 && !e.svc.ExternalName {
			e.missingType(true)
		}
	case isTopologyZone, noTopologyZone:
		e.topology()
	case noPort:
		e.port()
	case noEndpoint:
		e.endpoint()
	}
}

// topology explains the name of a topology zone of a headless Service.
func (e *explanation) topology() {
	how := e.prefix - 2
	zone := strings.TrimSuffix(wire.Name(string(e.q.Name()[:e.q.LabelOffset(how)])+"\x00").String(), ".")
	switch {
	case e.q.Answer.Count[wire.Answers] == 0:
		e.add("the Service has no ready endpoint with %s records in the topology zone %s", e.q.Type, zone)
	case string(e.label(how)) == "prefer":
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
	case addresses && t == wire.TypeA:
		e.add("it has no IPv4 address, so the answer has no records")
	case addresses && t == wire.TypeAAAA:
		e.add("it has no IPv6 address, so the answer has no records")
	case addresses && t == wire.TypeSRV:
		e.add("it has no ports, so the answer has no records")
	default:
		e.add("the name has no %s records", t)
	}
}

// port explains a name of a port that does not exist.
func (e *explanation) port() {
	protocol := string(e.label(e.prefix - 1))
	switch {
	case protocol == "_zone" && e.prefix == 3 && e.svc.Headless && e.external == nil && !e.zonal:
		e.add("names of topology zones need the option zonal")
		return
	case e.prefix < 2 || e.label(e.prefix - 2)[0] != '_':
		e.add("the name of a port is _PORT._PROTOCOL.%s", e.join(e.key.Name, e.key.Namespace))
		return
	}

	var have []string
	for _, set := range e.svc.UsedPortSets() {
		for _, p := range set.Ports {
			full := "_" + p.Name + "._" + p.Protocol
			if p.Name != "" && len(have) < 20 && !slices.Contains(have, full) {
				have = append(have, full)
			}
		}
	}

	port := string(e.label(e.prefix - 2))
	want := port + "." + protocol
	switch {
	case have == nil:
		e.add("the Service has no named port")
	case !slices.Contains(have, want): // otherwise no endpoint with the port is ready
		const format = "the Service has no port %s over %s; its names of ports are %s"
		c := e.add(format, port[1:], protocol[1:], strings.Join(have, ", "))
		c.Nearest = e.nearest(want, have)
	}
}

// endpoint explains a name of an endpoint that does not exist.
func (e *explanation) endpoint() {
	if e.prefix > 1 && (e.svc.Headless || e.zone.multicluster) {
		e.add("no endpoint of the Service has this name")
		return
	}

	label := string(e.label(e.prefix - 1))
	var names []string
	var found *cluster.Endpoint
	var ep cluster.Endpoint
	for _, p := range e.svc.Slices() {
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
	case found == nil:
		e.add("no endpoint of the Service is named %s", label).Nearest = e.nearest(label, names)
	case !e.svc.IsServed(found):
		e.add("endpoint %s (%s) is not ready", label, found.Addr)
	}
}

// nearest returns the name below the Service's whose first labels are similar, or "".
func (e *explanation) nearest(labels string, known []string) string {
	if near := corefile.Nearest(labels, known); near != "" {
		return e.join(near, e.key.Name, e.key.Namespace)
	}
	return ""
}
