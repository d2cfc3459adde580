package cluster

import (
	"cmp"
	"encoding/binary"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"unique"
)

// A Kind is a kind of object that a source delivers.
type Kind uint8

const (
	Namespaces      Kind = iota // *Namespace
	Services                    // *Service, or *Frontend with Options.Published
	Slices                      // *Slice of this cluster's own EndpointSlices
	Pods                        // *Pod
	Imports                     // *Service made of a ServiceImport
	ImportSlices                // *Slice with a source cluster
	ConfigMaps                  // *ConfigMap named by the options, or with labels that match
	Nodes                       // *Node
	DNSEndpoints                // *DNSEndpoint
	Gateways                    // *Gateway
	HTTPRoutes                  // *Route
	GRPCRoutes                  // *Route
	TLSRoutes                   // *Route
	ListenerSets                // *ListenerSet
	Ingresses                   // *Ingress
	NetworkPolicies             // *NetworkPolicy
	Kinds                       // the number of kinds
)

// String returns the name of the API's resource.
func (k Kind) String() string {
	return [...]string{
		"namespaces", "services", "endpointslices", "pods", "serviceimports", "endpointslices (multicluster)",
		"configmaps", "nodes", "dnsendpoints", "gateways", "httproutes", "grpcroutes", "tlsroutes",
		"listenersets", "ingresses", "clusternetworkpolicies",
	}[k]
}

// ObjectKind returns the kind of the API's objects.
func (k Kind) ObjectKind() string {
	return [...]string{
		"Namespace", "Service", "EndpointSlice", "Pod", "ServiceImport", "EndpointSlice", "ConfigMap", "Node",
		"DNSEndpoint", "Gateway", "HTTPRoute", "GRPCRoute", "TLSRoute", "ListenerSet", "Ingress",
		"ClusterNetworkPolicy",
	}[k]
}

// KindNamed returns the first kind with this ObjectKind, which is the one of this cluster.
func KindNamed(name string) (kind Kind, ok bool) {
	for kind := range Kinds {
		if kind.ObjectKind() == name {
			return kind, true
		}
	}
	return 0, false
}

// A Key names an object within its kind. Namespaces and Nodes have no Namespace.
type Key struct{ Namespace, Name string }

// String returns the key as kubectl prints it.
func (k Key) String() string {
	if k.Namespace == "" {
		return k.Name
	}
	return k.Namespace + "/" + k.Name
}

// Compare orders keys by namespace and name.
func (k Key) Compare(o Key) int {
	return cmp.Or(cmp.Compare(k.Namespace, o.Namespace), cmp.Compare(k.Name, o.Name))
}

// An Object is *Namespace, *Service, *Slice, *Pod, *ConfigMap, *Node, *DNSEndpoint, *Gateway, *Route,
// *Ingress or *NetworkPolicy. It is immutable after it was passed to a Sink: the source and the sink may both keep it.
type Object interface{ Key() Key }

// A Namespace matches the namespace selector of the options.
type Namespace struct {
	Name   string
	Labels *Labels // nil without Options.Published
}

// A Service has the fields of a Service or ServiceImport (kind Imports) that DNS uses.
type Service struct {
	Namespace, Name string

	ClusterIPs []netip.Addr // none if headless or ExternalName; invalid ones are logged and left out
	// ExternalName is the target of the type ExternalName, in lower case without a trailing
	// dot. All other fields are empty then.
	ExternalName string
	Ports        []Port
	External     *External // nil without Options.External, or if the Service has no external address

	Headless bool // clusterIP "None", or a ServiceImport of type Headless
	// PublishNotReady reports whether endpoints that are not ready are published.
	PublishNotReady bool
	// Selector reports whether the Service has a selector.
	Selector bool
}

// External is the set of external addresses of a Service: spec.externalIPs and the
// ingress of its load balancer.
type External struct {
	IPs   []netip.Addr
	Hosts []string // host names of load balancers, lower case, without a trailing dot
}

// A Port of a Service or of an EndpointSlice. SRV records exist for named
// ports; unnamed ones have an empty Name.
type Port struct {
	Name     string // lower case
	Protocol string // "tcp", "udp" or "sctp"
	Port     uint16
}

// A Slice has the fields of an EndpointSlice that DNS uses. Imported slices with
// addressType FQDN are never delivered.
type Slice struct {
	Namespace, Name string

	Service   string // from the label kubernetes.io/service-name (multicluster.kubernetes.io/service-name)
	Cluster   string // the label multicluster.kubernetes.io/source-cluster, unknown without it; "" for this cluster's own
	Ports     []Port
	Endpoints Endpoints
}

// A Pod has an address and has not terminated.
type Pod struct {
	Namespace, Name string
	IPs             []netip.Addr // every status.podIPs
	Labels          *Labels      // nil without Options.PodLabels
	Host            bool         // the pod uses its node's network and addresses
}

// Labels of an object. Equal keys and values of several objects share memory.
type Labels struct{ pairs []string } // key, value, key, value, by key

// Get returns the value of a label. A nil *Labels has none.
func (l *Labels) Get(key string) (value string, ok bool) {
	if l == nil {
		return "", false
	}
	for i := 0; i < len(l.pairs); i += 2 {
		if l.pairs[i] == key {
			return l.pairs[i+1], true
		}
	}
	return "", false
}

// Pairs returns the keys, in order, each followed by its value.
func (l *Labels) Pairs() []string {
	if l == nil {
		return nil
	}
	return l.pairs
}

// NewLabels returns labels with these values by key.
func NewLabels(all map[string]string) *Labels {
	l := new(Labels)
	for _, key := range slices.Sorted(maps.Keys(all)) {
		l.pairs = append(l.pairs, unique.Make(key).Value(), unique.Make(all[key]).Value())
	}
	return l
}

// A ConfigMap has the data of a ConfigMap, including its binaryData.
type ConfigMap struct {
	Namespace, Name string
	Created         int64 // seconds since 1970; 0 if unknown, as in most manifests
	Data            map[string]string
}

// A DNSEndpoint has the records of a DNSEndpoint of ExternalDNS, as its writer gave them: no
// field is checked.
type DNSEndpoint struct {
	Namespace, Name string
	Created         int64 // seconds since 1970; 0 if unknown, as in most manifests
	Endpoints       []EndpointRecords
}

// EndpointRecords are the records of one name and type: an element of spec.endpoints. Equal
// types of several objects share memory.
type EndpointRecords struct {
	Name, Type string
	Set        string // setIdentifier: of several with the same name and type, this one
	TTL        int64  // seconds; 0 without one
	Targets    []string
}

// A Node has the topology labels of a Node.
type Node struct {
	Name string
	// Zone and Region come from topology.kubernetes.io/{zone,region} or, if these
	// are not both there, from failure-domain.beta.kubernetes.io/{zone,region}; lower
	// case. Both are empty if neither pair is whole.
	Zone, Region string
	// OwnZone is the label topology.kubernetes.io/zone, or failure-domain.beta.kubernetes.io/zone
	// without it, whether there is a region or not.
	OwnZone string
}

func (n *Namespace) Key() Key   { return Key{Name: n.Name} }
func (s *Service) Key() Key     { return Key{s.Namespace, s.Name} }
func (s *Slice) Key() Key       { return Key{s.Namespace, s.Name} }
func (p *Pod) Key() Key         { return Key{p.Namespace, p.Name} }
func (c *ConfigMap) Key() Key   { return Key{c.Namespace, c.Name} }
func (n *Node) Key() Key        { return Key{Name: n.Name} }
func (e *DNSEndpoint) Key() Key { return Key{e.Namespace, e.Name} }

// An Endpoint is one address of an EndpointSlice; an endpoint with several
// addresses becomes several of these.
type Endpoint struct {
	Addr     netip.Addr
	Hostname string // endpoint.hostname or, with Options.PodNames, the target pod's name; lower case
	Zone     string // topology zone in lower case, "" without Options.Zones
	Ready    bool   // conditions.ready is nil or true
	// Target reports whether the targetRef names a Node or a Pod of the slice's namespace.
	// It is also set in the slices of default/kubernetes, which the API server writes.
	Target bool
}

// Endpoints are packed endpoints: a flag byte, four or sixteen bytes of
// address, and for each string that the flags announce a length byte and its
// bytes. A packed endpoint has 5 to 30 bytes. Endpoints can be compared with ==, and
// have no pointers for the garbage collector.
//
// The endpoints of a slice with addressType FQDN have names instead of addresses: only
// Names returns them.
type Endpoints string

const (
	flagIPv6 = 1 << iota
	flagReady
	flagHostname
	flagZone
	flagName // a length byte and a name instead of an address
	flagTarget
)

// AppendEndpoint appends e to buf. Strings of more than 255 bytes are left out.
func AppendEndpoint(buf []byte, e Endpoint) []byte {
	at, flags, addr := len(buf), byte(0), e.Addr.Unmap()
	if addr.Is6() {
		flags = flagIPv6
	}
	return appendStrings(append(append(buf, 0), addr.AsSlice()...), at, flags, e)
}

// AppendName appends an endpoint that has a name, of at most 253 bytes, instead of e's
// address.
func AppendName(buf []byte, name string, e Endpoint) []byte {
	at := len(buf)
	return appendStrings(append(append(buf, 0, byte(len(name))), name...), at, flagName, e)
}

// appendStrings appends the rest of an endpoint, whose flag byte is at an offset.
func appendStrings(buf []byte, at int, flags byte, e Endpoint) []byte {
	if e.Ready {
		flags |= flagReady
	}
	if e.Target {
		flags |= flagTarget
	}
	if e.Hostname != "" && len(e.Hostname) < 256 {
		flags |= flagHostname
		buf = append(append(buf, byte(len(e.Hostname))), e.Hostname...)
	}
	if e.Zone != "" && len(e.Zone) < 256 {
		flags |= flagZone
		buf = append(append(buf, byte(len(e.Zone))), e.Zone...)
	}
	buf[at] = flags
	return buf
}

// HasNames reports whether the endpoints have names instead of addresses.
func (es Endpoints) HasNames() bool { return len(es) > 0 && es[0]&flagName != 0 }

// Names returns the endpoints that have names, in order: the name, in lower case without
// a trailing dot, and the endpoint without an address.
func (es Endpoints) Names() iter.Seq2[string, Endpoint] {
	return func(yield func(string, Endpoint) bool) {
		for es.HasNames() {
			flags, end := es[0], 2+int(es[1])
			name := string(es[2:end])
			var e Endpoint
			if es = es[end:].strings(flags, &e); !yield(name, e) {
				return
			}
		}
	}
}

// All returns the endpoints that have addresses, in order. Their strings share memory
// with es.
func (es Endpoints) All() iter.Seq[Endpoint] {
	return func(yield func(Endpoint) bool) {
		for len(es) > 0 && !es.HasNames() {
			var e Endpoint
			if es = es.Next(&e); !yield(e) {
				return
			}
		}
	}
}

// Valid reports whether es are packed endpoints, as AppendEndpoint and AppendName make them.
// Endpoints of another origin must be valid before they are used.
func (es Endpoints) Valid() bool {
	names := es.HasNames()
	for len(es) > 0 {
		flags, size := es[0], 5
		switch {
		case flags >= flagTarget<<1 || es.HasNames() != names || names && flags&flagIPv6 != 0:
			return false
		case names && len(es) > 1:
			size = 2 + int(es[1])
		case flags&flagIPv6 != 0:
			size = 17
		}

		for _, flag := range [2]byte{flagHostname, flagZone} {
			if flags&flag != 0 && size < len(es) {
				size += 1 + int(es[size])
			} else if flags&flag != 0 {
				return false
			}
		}

		if size > len(es) {
			return false
		}
		es = es[size:]
	}
	return true
}

// From returns es from the first endpoint on that has this IPv4 address, a hostname,
// a zone or an IPv6 address. It quickly skips other endpoints: a Service may have
// thousands.
func (es Endpoints) From(ip [4]byte) Endpoints {
	want := binary.BigEndian.Uint32(ip[:])
	for len(es) >= 5 && es[0]&^(flagReady|flagTarget) == 0 &&
		want != uint32(es[1])<<24|uint32(es[2])<<16|uint32(es[3])<<8|uint32(es[4]) {
		es = es[5:]
	}
	return es
}

// Next decodes the first endpoint into e and returns the endpoints after it. es must
// not be empty or have names.
func (es Endpoints) Next(e *Endpoint) Endpoints {
	flags := es[0]
	if flags&flagIPv6 != 0 {
		e.Addr, es = netip.AddrFrom16([16]byte([]byte(es[1:17]))), es[17:]
	} else {
		e.Addr, es = netip.AddrFrom4([4]byte([]byte(es[1:5]))), es[5:]
	}
	return es.strings(flags, e)
}

// strings decodes the part of an endpoint after its address or name.
func (es Endpoints) strings(flags byte, e *Endpoint) Endpoints {
	e.Ready, e.Target, e.Hostname, e.Zone = flags&flagReady != 0, flags&flagTarget != 0, "", ""
	if flags&flagHostname != 0 {
		n := int(es[0])
		e.Hostname, es = string(es[1:1+n]), es[1+n:]
	}
	if flags&flagZone != 0 {
		n := int(es[0])
		e.Zone, es = string(es[1:1+n]), es[1+n:]
	}
	return es
}
