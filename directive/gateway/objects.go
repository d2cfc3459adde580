package gateway

import (
	"cmp"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/directive/internal/objects"
)

// A state has the objects of a cluster.
type state struct {
	namespaces map[string]*cluster.Namespace
	services   map[cluster.Key]*cluster.Frontend
	gateways   map[cluster.Key]*cluster.Gateway
	sets       map[cluster.Key]*cluster.ListenerSet
	routes     map[objects.ID]*cluster.Route
	ingresses  map[cluster.Key]*cluster.Ingress
}

func newState() state {
	return state{
		map[string]*cluster.Namespace{}, map[cluster.Key]*cluster.Frontend{}, map[cluster.Key]*cluster.Gateway{},
		map[cluster.Key]*cluster.ListenerSet{}, map[objects.ID]*cluster.Route{}, map[cluster.Key]*cluster.Ingress{},
	}
}

// put adds or replaces an object.
func (s *state) put(o cluster.Object) {
	switch o := o.(type) {
	case *cluster.Namespace:
		s.namespaces[o.Name] = o
	case *cluster.Frontend:
		s.services[o.Key()] = o
	case *cluster.Gateway:
		s.gateways[o.Key()] = o
	case *cluster.ListenerSet:
		s.sets[o.Key()] = o
	case *cluster.Route:
		s.routes[objects.ID{Kind: o.Kind, Key: o.Key()}] = o
	case *cluster.Ingress:
		s.ingresses[o.Key()] = o
	}
}

// delete removes an object, which may be unknown.
func (s *state) delete(kind cluster.Kind, key cluster.Key) {
	switch kind {
	case cluster.Namespaces:
		delete(s.namespaces, key.Name)
	case cluster.Services:
		delete(s.services, key)
	case cluster.Gateways:
		delete(s.gateways, key)
	case cluster.ListenerSets:
		delete(s.sets, key)
	case cluster.HTTPRoutes, cluster.GRPCRoutes, cluster.TLSRoutes:
		delete(s.routes, objects.ID{Kind: kind, Key: key})
	case cluster.Ingresses:
		delete(s.ingresses, key)
	}
}

// keys calls f with the key of each object of a kind.
func (s *state) keys(kind cluster.Kind, f func(cluster.Key)) {
	switch kind {
	case cluster.Namespaces:
		for name := range s.namespaces {
			f(cluster.Key{Name: name})
		}
	case cluster.Services:
		for key := range s.services {
			f(key)
		}

	case cluster.Gateways:
		for key := range s.gateways {
			f(key)
		}
	case cluster.ListenerSets:
		for key := range s.sets {
			f(key)
		}

	case cluster.HTTPRoutes, cluster.GRPCRoutes, cluster.TLSRoutes:
		for id := range s.routes {
			if id.Kind == kind {
				f(id.Key)
			}
		}
	case cluster.Ingresses:
		for key := range s.ingresses {
			f(key)
		}
	}
}

// A unit is an object that names hosts: a Gateway or a ListenerSet by its listeners, a Route or an Ingress.
type unit struct {
	objects.ID
	created int64
	claims  []claim
}

// A claim is a host of a unit, and where its traffic goes.
type claim struct {
	host
	label bool // a wildcard for one label alone, as that of an Ingress
	to    *target
}

// older orders units by their age, and those of one second by namespace, name and kind.
func older(a, b *unit) int {
	return cmp.Or(cmp.Compare(a.created, b.created), a.Key.Compare(b.Key), cmp.Compare(a.Kind, b.Kind))
}
