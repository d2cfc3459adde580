package cluster

// A KindSet is a set of kinds.
type KindSet uint32

// SetOf returns a set of kinds.
func SetOf(kinds ...Kind) (s KindSet) {
	for _, k := range kinds {
		s |= 1 << k
	}
	return s
}

// Has reports whether a kind is in the set.
func (s KindSet) Has(k Kind) bool { return s&(1<<k) != 0 }

// PublishesHosts reports whether o selects objects that publish hosts.
func (o Options) PublishesHosts() bool { return o.Published&^SetOf(Namespaces, NetworkPolicies) != 0 }

func (o Options) publishedKinds() (ks []Kind) {
	if o.Published.Has(Namespaces) || o.Published.Has(Gateways) { // of which some select namespaces by labels
		ks = append(ks, Namespaces)
	}
	if o.PublishesHosts() {
		ks = append(ks, Services)
	}
	for k := Gateways; k <= NetworkPolicies; k++ {
		if o.Published.Has(k) {
			ks = append(ks, k)
		}
	}
	return ks
}

// A Frontend is a Service, with what tells whether it receives the traffic of a Gateway or an Ingress.
type Frontend struct {
	Service
	Created int64  // seconds since 1970; 0 if unknown
	Gateway string // name of the Gateway in the Service's namespace that the Service is for
	Labeled bool   // a label names the Gateway, and not the owner alone
	// Balanced reports whether the Service has the type LoadBalancer. Balancer has the addresses of its
	// load balancer, nil without one. External addresses that users write are not among them.
	Balanced bool
	Balancer *External
}

// A Gateway has the fields of a Gateway (gateway.networking.k8s.io) by which hosts are published.
type Gateway struct {
	Namespace, Name string
	Created         int64 // seconds since 1970; 0 if unknown, as in most manifests
	Class           string
	Accepted        bool // by its controller
	Listeners       []Listener
	Addresses       []string // IP addresses and host names of the status
	// Sets are the namespaces whose ListenerSets the Gateway allows.
	Sets From
}

// From is All, Same, Selector or None: the namespaces whose objects may be attached. Selector is that of their labels.
type From struct{ From, Selector string }

// A ListenerSet has listeners for a Gateway.
type ListenerSet struct {
	Namespace, Name string
	Created         int64 // seconds since 1970; 0 if unknown
	Gateway         Key
	Accepted        bool // by the Gateway's controller
	Listeners       []Listener
}

// A Listener of a Gateway or a ListenerSet. Listeners that the controller has not accepted are left out.
type Listener struct {
	Name, Protocol string
	Port           int32
	Host           string  // as written; "" for any
	From                   // the namespaces whose Routes the listener allows
	Routes         KindSet // that the listener allows
}

// A Route is a HTTPRoute, GRPCRoute or TLSRoute.
type Route struct {
	Kind            Kind
	Namespace, Name string
	Created         int64 // seconds since 1970; 0 if unknown
	Hosts           []string
	Parents         []Parent // Gateways and ListenerSets that have accepted the Route
}

// A Parent is a Gateway or a ListenerSet that a Route is attached to, or some of its listeners.
type Parent struct {
	Key
	Set      bool   // a ListenerSet
	Listener string // name of the listener; "" for any
	Port     int32  // of the listeners; 0 for any
}

// An Ingress of networking.k8s.io.
type Ingress struct {
	Namespace, Name string
	Created         int64 // seconds since 1970; 0 if unknown
	Class           string
	Hosts           []string // of its rules
	Addresses       []string // IP addresses and host names of the load balancer
}

func (g *Gateway) Key() Key     { return Key{g.Namespace, g.Name} }
func (l *ListenerSet) Key() Key { return Key{l.Namespace, l.Name} }
func (r *Route) Key() Key       { return Key{r.Namespace, r.Name} }
func (i *Ingress) Key() Key     { return Key{i.Namespace, i.Name} }

// A NetworkPolicy is a ClusterNetworkPolicy of policy.networking.k8s.io, with its rules for egress.
type NetworkPolicy struct {
	Name     string
	Created  int64 // seconds since 1970; 0 if unknown
	Tier     string
	Priority int32
	// Namespaces and Pods are the label selectors of the pods to which it applies.
	Namespaces, Pods Selector
	Rules            []EgressRule
}

// An EgressRule of a NetworkPolicy.
type EgressRule struct {
	Name, Action string
	Domains      []string // as written
	Networks     []string // CIDRs
	Protocols    bool     // the rule is for some protocols or ports
}

func (n *NetworkPolicy) Key() Key { return Key{Name: n.Name} }
