package kubernetes

import (
	"cmp"
	"iter"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/wire"
)

// A serviceKey identifies a Service. It stays the same as long as the Service or one
// of its slices exists, through all entries.
type serviceKey struct {
	labels    string // labels "service.namespace" in wire form, as they stand in a question
	namespace *namespace
	entry     atomic.Pointer[entry] // the entry in the index; nil if there is none
}

// Entry returns the entry in the index; nil if there is none.
func (k *serviceKey) Entry() *entry { return k.entry.Load() }

// objectKey returns the key of the Service's object, in lower case.
func (k *serviceKey) objectKey() cluster.Key {
	return cluster.Key{Namespace: k.namespace.name, Name: k.labels[1 : 1+k.labels[0]]}
}

// namespaceLabel returns the label of the namespace in wire form.
func (k *serviceKey) namespaceLabel() string { return k.labels[1+k.labels[0]:] }

// sortsBefore reports whether the Service's name is before the other's.
func (k *serviceKey) sortsBefore(o *serviceKey) bool {
	a, b := k.objectKey(), o.objectKey()
	return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Namespace, b.Namespace)) < 0
}

// A namespace may be known from a Service in it before its own object arrives. Names
// in it are answered once it is exposed.
type namespace struct {
	name    string
	exposed atomic.Bool

	// Used by the writer alone: the number of objects in the namespace, and the
	// sums of their hashes, which the serials include while it is exposed.
	objects          int
	hash, importHash uint32
}

// Exposed reports whether names in the namespace are answered. A nil namespace is not exposed.
func (ns *namespace) Exposed() bool { return ns != nil && ns.exposed.Load() }

// An entry is the state of one Service or ServiceImport in the index: its spec, its
// endpoints, and their records. It is immutable.
type entry struct {
	key *serviceKey
	serviceSpec
	// answerParts are the endpoints as answers need them: a part for each slice, in
	// the order of the slices' names, or, if slices share an address or a hostname,
	// which is rare, merged parts. In both cases slices returns the slices.
	answerParts []part
	table       *endpointTable // finds endpoints if there are many, and has the merged parts' slices
	// k8sExternal is the entry that k8s_external answers from; nil if the Service has
	// no external name, or if the directive is not used.
	k8sExternal *entry

	hash    uint32 // of everything that answers depend on
	exists  bool   // the Service has a name in DNS
	inParts bool   // the records of the Service's name are in answerParts
}

// A serviceSpec has the fields of a Service's own object that answers need. The
// zero value is the spec of a missing object.
type serviceSpec struct {
	ports    *portSet          // nil for an ExternalName, and without an object
	external *cluster.External // addresses outside the cluster; nil if there are none
	// records are the records of the Service's name, with the owner
	// wire.OwnerIsQuestion: A records up to aEnd, then AAAA records; or the CNAME
	// record of an ExternalName. For a headless Service they are the records of
	// its endpoints.
	records string
	aEnd    uint32

	headless        bool
	externalName    bool
	publishNotReady bool // endpoints are served whether they are ready or not
	selector        bool // it has a selector, so a controller makes its slices
}

// A part is an EndpointSlice, or endpoints that have the same ports. Its name, its
// endpoints and, if the Service is headless, their records are one piece of memory.
type part struct {
	ports        *portSet
	data         string
	endpointsEnd uint32 // of the endpoints in data
	aEnd         uint32 // of the A records after them; the rest is AAAA
	served       uint32 // number of endpoints that are served
	nameEnd      uint16 // of the slice's name in data
}

func (p *part) name() string { return p.data[:p.nameEnd] }
func (p *part) endpoints() cluster.Endpoints {
	return cluster.Endpoints(p.data[p.nameEnd:p.endpointsEnd])
}

// a and aaaa return the address records of the endpoints that are served.
func (p *part) a() string    { return p.data[p.endpointsEnd:p.aEnd] }
func (p *part) aaaa() string { return p.data[p.aEnd:] }

// mergedParts belong to an entry whose slices share addresses or hostnames, or
// have names instead of addresses. The entry's parts are then the endpoints that
// are served, grouped by their ports; endpoints with the same label are
// consecutive.
type mergedParts struct {
	slices      []part // in the order of their names
	targets     []part // for each of the entry's parts one with the first endpoint of each label
	sharedAddrs bool   // an address has several labels
	alias       *alias
}

const (
	lenA    = 16 // size of an A record whose owner is wire.OwnerIsQuestion
	lenAAAA = 28
)

// settings are the options that entries depend on.
type settings struct {
	ttl         uint32
	ignoreEmpty bool
	podsByAddr  bool // keep the pods by their addresses
	k8sExternal externalSettings
}

// externalSettings are the options of k8s_external that entries depend on.
type externalSettings struct {
	enabled, headless bool
	ttl               uint32
}

// visible reports whether the Service has a name that clients may see.
func (e *entry) visible() bool {
	return e != nil && e.exists && e.key.namespace.exposed.Load()
}

// a and aaaa return the records of the Service's name, unless they are in the parts.
func (s *serviceSpec) a() string    { return s.records[:s.aEnd] }
func (s *serviceSpec) aaaa() string { return s.records[s.aEnd:] }

// clusterIPs returns the Service's ClusterIPs, IPv4 first.
func (s *serviceSpec) clusterIPs() iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		if s.headless || s.externalName {
			return
		}
		for a := s.a(); a != ""; a = a[lenA:] {
			if !yield(netip.AddrFrom4([4]byte([]byte(a[lenA-4 : lenA])))) {
				return
			}
		}
		for a := s.aaaa(); a != ""; a = a[lenAAAA:] {
			if !yield(netip.AddrFrom16([16]byte([]byte(a[lenAAAA-16 : lenAAAA])))) {
				return
			}
		}
	}
}

// has reports whether ip is one of the Service's ClusterIPs.
func (s *serviceSpec) has(ip netip.Addr) bool {
	for own := range s.clusterIPs() {
		if own == ip {
			return true
		}
	}
	return false
}

// hasPartRecords reports whether the parts have the address records of their
// endpoints.
func (e *entry) hasPartRecords() bool { return e.headless && e.known() }

// merged returns nil if the parts are the slices.
func (e *entry) merged() *mergedParts {
	if e.table == nil {
		return nil
	}
	return e.table.merged
}

// slices returns the Service's slices in the order of their names.
func (e *entry) slices() []part {
	if m := e.merged(); m != nil {
		return m.slices
	}
	return e.answerParts
}

// isServed reports whether answers include the endpoint.
func (s *serviceSpec) isServed(ep *cluster.Endpoint) bool { return ep.Ready || s.publishNotReady }

// known reports whether the Service's object exists, or only slices that name it.
func (s *serviceSpec) known() bool { return s.ports != nil || s.externalName }

// portList returns the Service's own ports.
func (s *serviceSpec) portList() []cluster.Port {
	if s.ports == nil {
		return nil
	}
	return s.ports.ports
}

// usedPortSets returns the port sets of the Service, its parts and its slices.
func (e *entry) usedPortSets() (all []*portSet) {
	if e.ports != nil {
		all = append(all, e.ports)
	}
	for i := range e.answerParts {
		all = append(all, e.answerParts[i].ports)
	}
	if m := e.merged(); m != nil {
		for i := range m.slices {
			all = append(all, m.slices[i].ports)
		}
		if m.alias != nil {
			all = append(all, m.alias.ports)
		}
	}
	return all
}

// served returns the endpoints that answers include, and their ports. An endpoint is valid
// until the next one.
func (e *entry) served() iter.Seq2[*portSet, *cluster.Endpoint] {
	return func(yield func(*portSet, *cluster.Endpoint) bool) {
		var ep cluster.Endpoint // one for all, since it is allocated
		for i := range e.answerParts {
			for rest := e.answerParts[i].endpoints(); rest != "" && !rest.HasNames(); {
				if rest = rest.Next(&ep); e.isServed(&ep) && !yield(e.answerParts[i].ports, &ep) {
					return
				}
			}
		}
	}
}

// addresses returns the addresses whose reverse names point to the Service: its own, which
// are the ClusterIPs and the addresses of endpoints with a Target, and the addresses
// that it merely claims. If the parts are merged, an address may occur several times.
func (e *entry) addresses(own, claimed bool) iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		if e == nil || !e.exists {
			return
		}
		if own {
			for ip := range e.clusterIPs() {
				if !yield(ip) {
					return
				}
			}
		}
		for _, ep := range e.served() {
			if (ep.Target && own || !ep.Target && claimed) && !yield(ep.Addr) {
				return
			}
		}
	}
}

// specOf returns the spec of a Service.
func (ps *portSets) specOf(svc *cluster.Service, ttl uint32) serviceSpec {
	if svc.ExternalName != "" {
		return serviceSpec{externalName: true, records: cname(svc.ExternalName, ttl)}
	}
	spec := serviceSpec{headless: svc.Headless, publishNotReady: svc.PublishNotReady, selector: svc.Selector, external: svc.External}
	spec.ports = ps.get("", svc.Ports)
	spec.setAddresses(svc.ClusterIPs, ttl)
	return spec
}

// setAddresses makes the records of the Service's name, each address once.
func (s *serviceSpec) setAddresses(ips []netip.Addr, ttl uint32) {
	var buf []byte
	ips = unique(ips)
	for _, ip := range ips {
		if ip.Is4() {
			buf = wire.AppendAddress(buf, wire.OwnerIsQuestion, ttl, ip)
		}
	}
	s.aEnd = uint32(len(buf))
	for _, ip := range ips {
		if !ip.Is4() {
			buf = wire.AppendAddress(buf, wire.OwnerIsQuestion, ttl, ip)
		}
	}
	s.records = string(buf)
}

// equal reports whether two specs are equal, except for the records of endpoints.
func (s *serviceSpec) equal(o *serviceSpec) bool {
	a, b := *s, *o
	if a.headless {
		a.records, a.aEnd = "", 0
	}
	if b.headless {
		b.records, b.aEnd = "", 0
	}
	alike := a.ports == b.ports || a.ports != nil && b.ports != nil && a.ports.equal(b.ports)
	alike = alike && equalExternal(a.external, b.external)
	a.ports, b.ports, a.external, b.external = nil, nil, nil, nil
	return alike && a == b
}

func equalExternal(a, b *cluster.External) bool {
	if a == nil || b == nil {
		return a == b
	}
	return slices.Equal(a.IPs, b.IPs) && slices.Equal(a.Hosts, b.Hosts)
}

// cname returns the CNAME record for an externalName; "" if that is not a host
// name. An IP address is not one; CoreDNS answers NXDOMAIN for it too.
func cname(target string, ttl uint32) string {
	if _, err := netip.ParseAddr(target); err == nil || strings.Trim(strings.ToLower(target), "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "" {
		return ""
	}
	name, err := wire.ParseName(target)
	if err != nil {
		return ""
	}
	head := wire.AppendRecordHeader(nil, wire.OwnerIsQuestion, wire.TypeCNAME, ttl, len(name))
	return string(append(head, name...))
}
