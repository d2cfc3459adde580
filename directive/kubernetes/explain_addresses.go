package kubernetes

import (
	"net/netip"
	"slices"

	"github.com/seamark/seamark/directive/kubernetes/index"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// pod explains the name of an address below pod, with pods verified. It names the Pods that
// have the address: several in the host's network may.
func (e *explanation) pod() {
	ip, _ := index.ParsePodLabel(e.label(0))
	if e.found != isPod {
		e.add("pods verified: no Pod of the namespace has the address %s", ip)
		return
	}

	e.missingType(true)
	namespace := e.namespaceLabel()
	names := e.index.PodNames(namespace, ip)
	slices.Sort(names)
	for _, name := range names[:min(3, len(names))] {
		c := e.add("Pod %s/%s has the address %s", namespace, name, ip)
		c.Object = &dns.Object{Kind: "Pod", Namespace: namespace, Name: name}
	}
}

// reverse explains the name of an address or a network below in-addr.arpa or ip6.arpa.
func (e *explanation) reverse() {
	prefix, _ := wire.ParseReverse(e.q.Name())
	if !prefix.IsSingleIP() {
		e.add("the name is that of the network %s, which has no records of its own", prefix)
		return
	}

	ip := prefix.Addr()
	if e.external != nil {
		if !e.servicesAt(e.index.ExternalReverse(), prefix, "an external address of") {
			e.add("no Service has the external address %s", ip)
		}
		return
	}
	if e.found == isAddress {
		e.missingType(false)
	}
	if !e.servicesAt(e.index.Reverse(), prefix, "an endpoint of") &&
		!e.servicesAt(e.index.Claims(), prefix, "claimed, without a targetRef, by an endpoint of") {
		e.add("no Service and no endpoint has the address %s", ip)
	}
}

// servicesAt names up to ten Services that have an address in a reverse index, and reports
// whether there are any. what is said of an address that is not the Service's own.
func (e *explanation) servicesAt(x *index.ReverseIndex, prefix netip.Prefix, what string) bool {
	found := 0
	for near := x.Within(prefix); near.Advance() && found < 10; {
		svc := e.visible(near.Service.Entry())
		if svc == nil || e.external != nil && !svc.Has(near.Addr()) {
			continue
		}
		found++

		how := what
		if e.external == nil && svc.Has(near.Addr()) {
			how = "a ClusterIP of"
		}
		key := near.Service.ObjectKey()
		c := e.add("%s is %s Service %s", prefix.Addr(), how, key)
		c.Object = &dns.Object{Kind: "Service", Namespace: key.Namespace, Name: key.Name}
	}
	return found > 0
}
