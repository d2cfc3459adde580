package kubernetes

import (
	"net/netip"
	"slices"

	"github.com/seamark/seamark/directive/kubernetes/index"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// pod explains a name below pod.
func (e *explanation) pod() {
	switch {
	case e.depth == 1:
		e.add("pod has no records of its own")
	case e.podMode == podsDisabled:
		e.add("the option pods is disabled, so Pods have no names")
	case !e.namespaceName(e.label(e.depth - 2)):
	case e.depth != 3:
	default:
		ip, ok := index.ParsePodLabel(e.label(0))
		switch {
		case !ok:
			e.add("the first label of a Pod's name is its IP address with dashes, such as 10-0-0-1")
		case e.podMode == podsInsecure:
			e.add("pods insecure: every address has a name, whether a Pod has it or not")
		case e.q.RCode == wire.NXDomain || !e.hasPod(string(e.q.Name()[e.q.LabelOffset(1):e.q.LabelOffset(2)]), ip):
			e.add("pods verified: no Pod of the namespace has the address %s", ip)
		default:
			e.missingType(true)
			e.podsWith(string(e.label(1)), ip)
		}
	}
}

// reverse explains a name below in-addr.arpa or ip6.arpa.
func (e *explanation) reverse() {
	prefix, ok := wire.ParseReverse(e.q.Name())
	switch {
	case !ok:
		e.add("the name is no reverse name of an address")
		return
	case e.primary == "":
		e.add("no zone of the directive has names that a PTR record could contain")
		return
	case !prefix.IsSingleIP():
		e.add("the name is that of the network %s, which has no records of its own", prefix)
		return
	}
	e.missingType(false)
	ip, found := prefix.Addr(), 0
	for i, x := range [2]*index.ReverseIndex{e.index.Reverse(), e.index.Claims()} {
		for near := x.Within(prefix); near.Advance() && found < 10; {
			svc := near.Service.Entry()
			if !svc.Visible() {
				continue
			}
			key := near.Service.ObjectKey()
			what := "an endpoint of"
			switch {
			case svc.Has(ip):
				what = "a ClusterIP of"
			case i == 1:
				what = "claimed, without a targetRef, by an endpoint of"
			}
			e.add("%s is %s Service %s/%s", ip, what, key.Namespace, key.Name).Object = &dns.Object{Kind: "Service", Namespace: key.Namespace, Name: key.Name}
			found++
		}
		if found > 0 {
			return
		}
	}
	e.add("no Service and no endpoint has the address %s", ip)
}

// podsWith names the Pods of a namespace that have an address: several in the host's network
// may.
func (e *explanation) podsWith(namespace string, ip netip.Addr) {
	const shown = 3
	names := e.index.PodNames(namespace, ip)
	slices.Sort(names)
	for _, name := range names[:min(shown, len(names))] {
		e.add("Pod %s/%s has the address %s", namespace, name, ip).Object = &dns.Object{Kind: "Pod", Namespace: namespace, Name: name}
	}
}
