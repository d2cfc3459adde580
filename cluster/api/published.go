package api

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/wire/protobuf"
)

// GatewayGroup is the group of Gateways and their Routes.
const GatewayGroup = "gateway.networking.k8s.io"

// labelGateway of a Service names the Gateway of its namespace that the Service is for.
const labelGateway = GatewayGroup + "/gateway-name"

// OwnerReference names an owner of an object.
type OwnerReference struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Name       string `json:"name"`
	Controller bool   `json:"controller"` // not in Protobuf
}

// Conditions are the conditions of an object or of a part of one.
type Conditions []Condition

type Condition struct {
	Type   string `json:"type"`
	Status string `json:"status"`
}

// Ready reports whether the condition Ready is true.
func (all Conditions) Ready() bool { return all.Is("Ready", "True") }

// Is reports whether a condition has a status.
func (all Conditions) Is(condition, status string) bool {
	for _, c := range all {
		if c.Type == condition {
			return c.Status == status
		}
	}
	return false
}

// A Gateway is an object of the Gateway API. As a custom resource it is sent as JSON only.
type Gateway struct {
	Meta `json:"metadata"`
	Spec struct {
		GatewayClassName string     `json:"gatewayClassName"`
		Listeners        []Listener `json:"listeners"`
		AllowedListeners struct {
			Namespaces AllowedNamespaces `json:"namespaces"`
		} `json:"allowedListeners"`
	} `json:"spec"`
	Status GatewayStatus `json:"status"`
}

// A ListenerSet is an object of the Gateway API.
type ListenerSet struct {
	Meta `json:"metadata"`
	Spec struct {
		ParentRef ParentRef  `json:"parentRef"`
		Listeners []Listener `json:"listeners"`
	} `json:"spec"`
	Status GatewayStatus `json:"status"`
}

// AllowedNamespaces are those whose objects may be attached to a Gateway or a listener.
type AllowedNamespaces struct {
	From     string                `json:"from"`
	Selector *metav1.LabelSelector `json:"selector"`
}

type Listener struct {
	Name          string `json:"name"`
	Hostname      string `json:"hostname"`
	Port          int32  `json:"port"`
	Protocol      string `json:"protocol"`
	AllowedRoutes struct {
		Namespaces AllowedNamespaces `json:"namespaces"`
		Kinds      []struct {
			Group *string `json:"group"`
			Kind  string  `json:"kind"`
		} `json:"kinds"`
	} `json:"allowedRoutes"`
}

// A GatewayStatus is the status of a Gateway, or of a ListenerSet, which has no addresses.
type GatewayStatus struct {
	Addresses []struct {
		Value string `json:"value"`
	} `json:"addresses"`
	Conditions Conditions `json:"conditions"`
	Listeners  []struct {
		Name       string     `json:"name"`
		Conditions Conditions `json:"conditions"`
	} `json:"listeners"`
}

// A Route is a HTTPRoute, GRPCRoute or TLSRoute.
type Route struct {
	Meta `json:"metadata"`
	Spec struct {
		Hostnames  []string    `json:"hostnames"`
		ParentRefs []ParentRef `json:"parentRefs"`
	} `json:"spec"`
	Status struct {
		Parents []RouteParent `json:"parents"`
	} `json:"status"`
}

// A RouteParent is what a controller says of a Route and one of its parents.
type RouteParent struct {
	ParentRef  ParentRef  `json:"parentRef"`
	Conditions Conditions `json:"conditions"`
}

// A ParentRef names what a Route is attached to.
type ParentRef struct {
	Group       *string `json:"group"`
	Kind        string  `json:"kind"`
	Namespace   string  `json:"namespace"`
	Name        string  `json:"name"`
	SectionName string  `json:"sectionName"`
	Port        int32   `json:"port"`
}

// An IngressObject is an Ingress of networking.k8s.io.
type IngressObject struct {
	Meta `json:"metadata"`
	Spec struct {
		IngressClassName string `json:"ingressClassName"`
		Rules            []struct {
			Host string `json:"host"`
		} `json:"rules"`
	} `json:"spec"`
	Status struct {
		LoadBalancer struct {
			Ingress []Ingress `json:"ingress"`
		} `json:"loadBalancer"`
	} `json:"status"`
}

// annotationClass names the class of an Ingress without spec.ingressClassName.
const annotationClass = "kubernetes.io/ingress.class"

// readLabels decodes the metadata of a Namespace.
func readLabels(raw []byte, o *Decoded) (n Namespace, err error) {
	n.Labels = map[string]string{}
	m := protobuf.Message{Rest: raw}
	for m.NextOf(1) {
		o.readMeta(&m, func(key, value []byte) { n.Labels[string(key)] = string(value) })
	}
	n.Name = o.Name
	return n, m.Err
}

// Frontend slims a Service to a Frontend.
func (s Slimmer) Frontend(full *Service) *cluster.Frontend {
	slim := &cluster.Frontend{
		Service: *s.Service(full), Created: int64(full.CreationTimestamp),
		Gateway: full.Labels[labelGateway], Labeled: full.Labels[labelGateway] != "",
		Balanced: full.Spec.Type == typeLoadBalancer,
	}
	for _, owner := range full.Owners {
		if group, err := schema.ParseGroupVersion(owner.APIVersion); err == nil && slim.Gateway == "" &&
			group.Group == GatewayGroup && owner.Kind == cluster.Gateways.ObjectKind() {
			slim.Gateway = owner.Name
		}
	}
	if slim.Balanced {
		balanced := new(*full)
		balanced.Spec.ExternalIPs = nil // any user can write them
		slim.Balancer = s.external(balanced)
	}
	return slim
}

// readFrontend decodes a Service with the label and the owners that Frontend needs.
func readFrontend(raw []byte, o *Decoded) (s Service, err error) {
	if s, err = readService(raw, o); err != nil {
		return s, err
	}
	s.CreationTimestamp = o.Created
	m := protobuf.Message{Rest: raw}
	for m.NextOf(1) {
		for meta := m.Embedded(); m.NextIn(&meta); {
			switch meta.Number {
			case 11:
				if key, value := meta.Pair(); string(key) == labelGateway {
					s.Labels = map[string]string{labelGateway: string(value)}
				}
			case 13:
				s.Owners = append(s.Owners, readOwner(&meta))
			}
		}
	}
	return s, m.Err
}

func readOwner(m *protobuf.Message) (owner OwnerReference) {
	for field := m.Embedded(); m.NextIn(&field); {
		switch field.Number {
		case 1:
			owner.Kind = field.String()
		case 3:
			owner.Name = field.String()
		case 5:
			owner.APIVersion = field.String()
		}
	}
	return owner
}

// Gateway slims a Gateway.
func (s Slimmer) Gateway(full *Gateway) *cluster.Gateway {
	slim := &cluster.Gateway{
		Namespace: intern(full.Namespace), Name: full.Name, Created: int64(full.CreationTimestamp),
		Class: intern(full.Spec.GatewayClassName), Accepted: full.Status.Conditions.Is("Accepted", "True"),
		Listeners: full.Status.accepted(full.Spec.Listeners), Sets: full.Spec.AllowedListeners.Namespaces.slim("None"),
	}
	for _, a := range full.Status.Addresses {
		slim.Addresses = append(slim.Addresses, a.Value)
	}
	return slim
}

// ListenerSet slims a ListenerSet. One whose parent is no Gateway has no listeners.
func (s Slimmer) ListenerSet(full *ListenerSet) *cluster.ListenerSet {
	parent, ok := full.Spec.ParentRef.slim(full.Namespace)
	slim := &cluster.ListenerSet{
		Namespace: intern(full.Namespace), Name: full.Name, Created: int64(full.CreationTimestamp),
		Gateway: parent.Key, Accepted: full.Status.Conditions.Is("Accepted", "True"),
	}
	if ok && !parent.Set {
		slim.Listeners = full.Status.accepted(full.Spec.Listeners)
	}
	return slim
}

// accepted returns the listeners that the controller has not refused.
func (s *GatewayStatus) accepted(all []Listener) (slim []cluster.Listener) {
	for _, l := range all {
		if !s.refuses(l.Name) {
			slim = append(slim, l.slim())
		}
	}
	return slim
}

// refuses reports whether the controller has not accepted a listener.
func (s *GatewayStatus) refuses(name string) bool {
	for _, l := range s.Listeners {
		if l.Name == name {
			return l.Conditions.Is("Accepted", "False") || l.Conditions.Is("Conflicted", "True")
		}
	}
	return false
}

func (l *Listener) slim() cluster.Listener {
	return cluster.Listener{
		Name: l.Name, Protocol: intern(l.Protocol), Port: l.Port, Host: l.Hostname,
		From: l.AllowedRoutes.Namespaces.slim("Same"), Routes: l.routes(),
	}
}

// slim returns the namespaces. byDefault is what the API means without from.
func (a *AllowedNamespaces) slim(byDefault string) cluster.From {
	slim := cluster.From{From: intern(cmp.Or(a.From, byDefault))}
	if slim.From == "Selector" {
		selector, err := metav1.LabelSelectorAsSelector(a.Selector)
		if err != nil || a.Selector == nil {
			slim.From = "None"
		} else {
			slim.Selector = selector.String()
		}
	}
	return slim
}

// routes returns the kinds of Routes that a listener allows: those of its protocol, or of these the ones
// that it names.
func (l *Listener) routes() (kinds cluster.KindSet) {
	switch l.Protocol {
	case "HTTP", "HTTPS":
		kinds = cluster.SetOf(cluster.HTTPRoutes, cluster.GRPCRoutes)
	case "TLS":
		kinds = cluster.SetOf(cluster.TLSRoutes)
	}
	if len(l.AllowedRoutes.Kinds) == 0 {
		return kinds
	}

	var named cluster.KindSet
	for _, kind := range l.AllowedRoutes.Kinds {
		if k, ok := cluster.KindNamed(kind.Kind); ok && (kind.Group == nil || *kind.Group == GatewayGroup) {
			named |= cluster.SetOf(k)
		}
	}
	return kinds & named
}

// Route slims a Route of a kind. It keeps the parents for which a controller has accepted the Route.
func (s Slimmer) Route(kind cluster.Kind, full *Route) *cluster.Route {
	slim := &cluster.Route{
		Kind: kind, Namespace: intern(full.Namespace), Name: full.Name, Created: int64(full.CreationTimestamp),
		Hosts: slices.Clone(full.Spec.Hostnames),
	}
	for _, ref := range full.Spec.ParentRefs {
		parent, ok := ref.slim(full.Namespace)
		if ok && full.accepts(parent) {
			slim.Parents = append(slim.Parents, parent)
		}
	}
	return slim
}

// AcceptAll has the status of a Route without one accept it for each parent.
func (r *Route) AcceptAll() {
	for _, ref := range r.Spec.ParentRefs {
		r.Status.Parents = append(r.Status.Parents, RouteParent{ref, Conditions{{"Accepted", "True"}}})
	}
}

// accepts reports whether a controller has accepted a Route for a parent.
func (r *Route) accepts(parent cluster.Parent) bool {
	for _, status := range r.Status.Parents {
		if p, ok := status.ParentRef.slim(r.Namespace); ok && p == parent && status.Conditions.Is("Accepted", "True") {
			return true
		}
	}
	return false
}

// slim reports whether the parent of an object in a namespace is a Gateway or a ListenerSet.
func (p ParentRef) slim(namespace string) (parent cluster.Parent, ok bool) {
	kind := cmp.Or(p.Kind, cluster.Gateways.ObjectKind())
	parent = cluster.Parent{
		Key: cluster.Key{Namespace: intern(cmp.Or(p.Namespace, namespace)), Name: p.Name},
		Set: kind == cluster.ListenerSets.ObjectKind(), Listener: p.SectionName, Port: p.Port,
	}
	return parent, (p.Group == nil || *p.Group == GatewayGroup) && (parent.Set || kind == cluster.Gateways.ObjectKind())
}

// Ingress slims an Ingress.
func (s Slimmer) Ingress(full *IngressObject) *cluster.Ingress {
	slim := &cluster.Ingress{
		Namespace: intern(full.Namespace), Name: full.Name, Created: int64(full.CreationTimestamp),
		Class: intern(cmp.Or(full.Spec.IngressClassName, full.Annotations[annotationClass])),
	}
	for _, rule := range full.Spec.Rules {
		if rule.Host != "" && !slices.Contains(slim.Hosts, rule.Host) {
			slim.Hosts = append(slim.Hosts, rule.Host)
		}
	}
	for _, in := range full.Status.LoadBalancer.Ingress {
		if address := cmp.Or(in.IP, in.Hostname); address != "" {
			slim.Addresses = append(slim.Addresses, address)
		}
	}
	return slim
}
