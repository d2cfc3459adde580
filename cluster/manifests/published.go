package manifests

import (
	"encoding/json"
	"net/netip"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/cluster/api"
)

// publishedReader returns the function that decodes objects of a kind that publishes hosts. No controller has
// written the status of a manifest: a Gateway, a ListenerSet and a Route without one count as accepted.
func (d *decoder) publishedReader(kind cluster.Kind) func(json.RawMessage, *item) error {
	switch kind {
	case cluster.Gateways:
		return reading(d, func(it *item, g *api.Gateway) {
			slim := d.slimmer(it).Gateway(g)
			slim.Accepted = slim.Accepted || len(g.Status.Conditions) == 0
			it.object = slim
		})
	case cluster.ListenerSets:
		return reading(d, func(it *item, l *api.ListenerSet) {
			slim := d.slimmer(it).ListenerSet(l)
			slim.Accepted = slim.Accepted || len(l.Status.Conditions) == 0
			it.object = slim
		})
	case cluster.NetworkPolicies:
		return reading(d, func(it *item, n *api.NetworkPolicy) {
			if slim := d.slimmer(it).NetworkPolicy(n); slim != nil {
				it.object = slim
			}
		})
	case cluster.Ingresses:
		return reading(d, func(it *item, in *api.IngressObject) { it.object = d.slimmer(it).Ingress(in) })
	}

	return reading(d, func(it *item, r *api.Route) {
		if len(r.Status.Parents) == 0 {
			r.AcceptAll()
		}
		it.object = d.slimmer(it).Route(kind, r)
	})
}

// serviceOf returns the Service of an object that is one.
func serviceOf(o cluster.Object) *cluster.Service {
	if f, ok := o.(*cluster.Frontend); ok {
		return &f.Service
	}
	return o.(*cluster.Service)
}

// withAddress returns a copy of a Service that has a ClusterIP.
func withAddress(o cluster.Object, ip netip.Addr) cluster.Object {
	if f, ok := o.(*cluster.Frontend); ok {
		f = new(*f)
		f.ClusterIPs = []netip.Addr{ip}
		return f
	}
	s := new(*serviceOf(o))
	s.ClusterIPs = []netip.Addr{ip}
	return s
}
