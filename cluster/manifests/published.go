package manifests

import (
	"encoding/json"
	"net/netip"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/cluster/api"
)

// publishedKind returns the kind of objects that publish hosts, or 0.
func publishedKind(name string) cluster.Kind {
	for k := cluster.Gateways; k <= cluster.NetworkPolicies; k++ {
		if k.ObjectKind() == name {
			return k
		}
	}
	return 0
}

// publishedReader returns the function that decodes objects of a kind if the options select objects that
// publish hosts, nil if there is none.
func (d *decoder) publishedReader(apiVersion, kind string) func(json.RawMessage, *item) error {
	switch apiVersion + " " + kind {
	case "v1 Namespace":
		return d.namespace
	case "v1 Service":
		if !d.opts.PublishesHosts() {
			return nil
		}
		return d.service
	}
	k := publishedKind(kind)
	for _, version := range api.PublishedVersions(k) {
		if version.String() == apiVersion && d.opts.Published.Has(k) {
			return func(raw json.RawMessage, it *item) error { return d.published(k, raw, it) }
		}
	}
	return nil
}

// published decodes an object that publishes hosts. No controller has written the status of a manifest:
// a Gateway, a ListenerSet and a Route without one count as accepted.
func (d *decoder) published(kind cluster.Kind, raw json.RawMessage, it *item) error {
	slimmer := d.slimmer(it)
	switch kind {
	case cluster.Gateways:
		var g api.Gateway
		if err := d.read(raw, it, &g); err != nil {
			return err
		}
		slim := slimmer.Gateway(&g)
		slim.Accepted = slim.Accepted || len(g.Status.Conditions) == 0
		it.object = slim

	case cluster.ListenerSets:
		var l api.ListenerSet
		if err := d.read(raw, it, &l); err != nil {
			return err
		}
		slim := slimmer.ListenerSet(&l)
		slim.Accepted = slim.Accepted || len(l.Status.Conditions) == 0
		it.object = slim

	case cluster.NetworkPolicies:
		var n api.NetworkPolicy
		if err := d.read(raw, it, &n); err != nil {
			return err
		}
		it.object = slimmer.NetworkPolicy(&n)

	case cluster.Ingresses:
		var in api.IngressObject
		if err := d.read(raw, it, &in); err != nil {
			return err
		}
		it.object = slimmer.Ingress(&in)

	default:
		var r api.Route
		if err := d.read(raw, it, &r); err != nil {
			return err
		}
		if len(r.Status.Parents) == 0 {
			r.AcceptAll()
		}
		it.object = slimmer.Route(kind, &r)
	}
	return nil
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
