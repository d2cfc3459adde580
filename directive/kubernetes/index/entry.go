package index

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

// A ServiceKey identifies a Service. It stays the same as long as the Service or one
// of its slices exists, through all entries.
type ServiceKey struct {
	Labels    string // labels "service.namespace" in wire form, as they stand in a question
	Namespace *Namespace
	entry     atomic.Pointer[Entry] // the entry in the index; nil if there is none
}

// Entry returns the entry in the index; nil if there is none.
func (k *ServiceKey) Entry() *Entry { return k.entry.Load() }

// ObjectKey returns the key of the Service's object, in lower case.
func (k *ServiceKey) ObjectKey() cluster.Key {
	return cluster.Key{Namespace: k.Namespace.Name, Name: k.Labels[1 : 1+k.Labels[0]]}
}

// NamespaceLabel returns the label of the namespace in wire form.
func (k *ServiceKey) NamespaceLabel() string { return k.Labels[1+k.Labels[0]:] }

// SortsBefore reports whether the Service's name is before the other's.
func (k *ServiceKey) SortsBefore(o *ServiceKey) bool {
	a, b := k.ObjectKey(), o.ObjectKey()
	return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Namespace, b.Namespace)) < 0
}

// A Namespace may be known from a Service in it before its own object arrives. Names
// in it are answered once it is exposed.
type Namespace struct {
	Name    string
	exposed atomic.Bool

	// Used by the writer alone: the number of objects in the namespace, and the
	// sums of their hashes, which the serials include while it is exposed.
	objects          int
	hash, importHash uint32
}

// Exposed reports whether names in the namespace are answered. A nil namespace is not exposed.
func (ns *Namespace) Exposed() bool { return ns != nil && ns.exposed.Load() }

// An Entry is the state of one Service or ServiceImport in the index: its spec, its
// endpoints, and their records. It is immutable.
type Entry struct {
	Key *ServiceKey
	Spec
	// Parts are the endpoints as answers need them: a part for each slice, in
	// the order of the slices' names, or, if slices share an address or a hostname,
	// which is rare, merged parts. In both cases Slices returns the slices.
	Parts []Part
	table *endpointTable // finds endpoints if there are many, and has the merged parts' slices
	// k8sExternal is the entry that k8s_external answers from; nil if the Service has
	// no external name, or if the directive is not used.
	k8sExternal *Entry

	hash    uint32 // of everything that answers depend on
	exists  bool   // the Service has a name in DNS
	InParts bool   // the records of the Service's name are in Parts
}

// A Spec has the fields of a Service's own object that answers need. The
// zero value is the spec of a missing object.
type Spec struct {
	Ports    *PortSet          // nil for an ExternalName, and without an object
	External *cluster.External // addresses outside the cluster; nil if there are none
	// Records are the records of the Service's name, with the owner
	// wire.OwnerIsQuestion: A records up to aEnd, then AAAA records; or the CNAME
	// record of an ExternalName. For a headless Service they are the records of
	// its endpoints.
	Records string
	aEnd    uint32

	Headless        bool
	ExternalName    bool
	PublishNotReady bool // endpoints are served whether they are ready or not
	selector        bool // it has a selector, so a controller makes its slices
}

// A Part is an EndpointSlice, or endpoints that have the same ports. Its name, its
// endpoints and, if the Service is headless, their records are one piece of memory.
type Part struct {
	Ports        *PortSet
	data         string
	endpointsEnd uint32 // of the endpoints in data
	aEnd         uint32 // of the A records after them; the rest is AAAA
	Served       uint32 // number of endpoints that are served
	nameEnd      uint16 // of the slice's name in data
}

// Name returns the name of the slice; "" if the parts are merged.
func (p *Part) Name() string { return p.data[:p.nameEnd] }

// Endpoints returns the endpoints, served or not.
func (p *Part) Endpoints() cluster.Endpoints {
	return cluster.Endpoints(p.data[p.nameEnd:p.endpointsEnd])
}

// A and AAAA return the address records of the endpoints that are served.
func (p *Part) A() string    { return p.data[p.endpointsEnd:p.aEnd] }
func (p *Part) AAAA() string { return p.data[p.aEnd:] }

// MergedParts belong to an entry whose slices share addresses or hostnames, or
// have names instead of addresses. The entry's parts are then the endpoints that
// are served, grouped by their ports; endpoints with the same label are
// consecutive.
type MergedParts struct {
	slices      []Part // in the order of their names
	targets     []Part // for each of the entry's parts one with the first endpoint of each label
	SharedAddrs bool   // an address has several labels
	alias       *Alias
}

const (
	LenA    = 16 // size of an A record whose owner is wire.OwnerIsQuestion
	LenAAAA = 28
)

// Settings are the options that entries depend on.
type Settings struct {
	TTL         uint32
	IgnoreEmpty bool
	PodsByAddr  bool // keep the pods by their addresses
	External    ExternalSettings
	TableFrom   int // smallest number of endpoints for which an entry has a table; 0 is largeService
}

// ExternalSettings are the options of k8s_external that entries depend on.
type ExternalSettings struct {
	Enabled, Headless bool
	TTL               uint32
}

// Visible reports whether the Service has a name that clients may see.
func (e *Entry) Visible() bool {
	return e != nil && e.exists && e.Key.Namespace.exposed.Load()
}

// A and AAAA return the records of the Service's name, unless they are in the parts.
func (s *Spec) A() string    { return s.Records[:s.aEnd] }
func (s *Spec) AAAA() string { return s.Records[s.aEnd:] }

// ClusterIPs returns the Service's ClusterIPs, IPv4 first.
func (s *Spec) ClusterIPs() iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		if s.Headless || s.ExternalName {
			return
		}

		for a := s.A(); a != ""; a = a[LenA:] {
			if !yield(netip.AddrFrom4([4]byte([]byte(a[LenA-4 : LenA])))) {
				return
			}
		}
		for a := s.AAAA(); a != ""; a = a[LenAAAA:] {
			if !yield(netip.AddrFrom16([16]byte([]byte(a[LenAAAA-16 : LenAAAA])))) {
				return
			}
		}
	}
}

// Has reports whether ip is one of the Service's ClusterIPs.
func (s *Spec) Has(ip netip.Addr) bool {
	for own := range s.ClusterIPs() {
		if own == ip {
			return true
		}
	}
	return false
}

// HasPartRecords reports whether the parts have the address records of their
// endpoints.
func (e *Entry) HasPartRecords() bool { return e.Headless && e.Known() }

// Merged returns nil if the parts are the slices.
func (e *Entry) Merged() *MergedParts {
	if e.table == nil {
		return nil
	}
	return e.table.merged
}

// Slices returns the Service's slices in the order of their names.
func (e *Entry) Slices() []Part {
	if m := e.Merged(); m != nil {
		return m.slices
	}
	return e.Parts
}

// IsServed reports whether answers include the endpoint.
func (s *Spec) IsServed(ep *cluster.Endpoint) bool { return ep.Ready || s.PublishNotReady }

// Known reports whether the Service's object exists, or only slices that name it.
func (s *Spec) Known() bool { return s.Ports != nil || s.ExternalName }

// PortList returns the Service's own ports.
func (s *Spec) PortList() []cluster.Port {
	if s.Ports == nil {
		return nil
	}
	return s.Ports.Ports
}

// UsedPortSets returns the port sets of the Service, its parts and its slices.
func (e *Entry) UsedPortSets() (all []*PortSet) {
	if e.Ports != nil {
		all = append(all, e.Ports)
	}
	for i := range e.Parts {
		all = append(all, e.Parts[i].Ports)
	}
	if m := e.Merged(); m != nil {
		for i := range m.slices {
			all = append(all, m.slices[i].Ports)
		}
		if m.alias != nil {
			all = append(all, m.alias.Ports)
		}
	}

	return all
}

// Served returns the endpoints that answers include, and their ports. An endpoint is valid
// until the next one.
func (e *Entry) Served() iter.Seq2[*PortSet, *cluster.Endpoint] {
	return func(yield func(*PortSet, *cluster.Endpoint) bool) {
		var ep cluster.Endpoint // one for all, since it is allocated
		for i := range e.Parts {
			for rest := e.Parts[i].Endpoints(); rest != "" && !rest.HasNames(); {
				if rest = rest.Next(&ep); e.IsServed(&ep) && !yield(e.Parts[i].Ports, &ep) {
					return
				}
			}
		}
	}
}

// addresses returns the addresses whose reverse names point to the Service: its own, which
// are the ClusterIPs and the addresses of endpoints with a Target, and the addresses
// that it merely claims. If the parts are merged, an address may occur several times.
func (e *Entry) addresses(own, claimed bool) iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		if e == nil || !e.exists {
			return
		}

		if own {
			for ip := range e.ClusterIPs() {
				if !yield(ip) {
					return
				}
			}
		}
		for _, ep := range e.Served() {
			if (ep.Target && own || !ep.Target && claimed) && !yield(ep.Addr) {
				return
			}
		}
	}
}

// specOf returns the spec of a Service.
func (ps *portSets) specOf(svc *cluster.Service, ttl uint32) Spec {
	if svc.ExternalName != "" {
		return Spec{ExternalName: true, Records: cname(svc.ExternalName, ttl)}
	}

	spec := Spec{
		Ports: ps.get("", svc.Ports), External: svc.External,
		Headless: svc.Headless, PublishNotReady: svc.PublishNotReady, selector: svc.Selector,
	}
	spec.setAddresses(svc.ClusterIPs, ttl)
	return spec
}

// setAddresses makes the records of the Service's name, each address once.
func (s *Spec) setAddresses(ips []netip.Addr, ttl uint32) {
	var buf []byte
	ips = Unique(ips)
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
	s.Records = string(buf)
}

// Equal reports whether two specs are equal, except for the records of endpoints.
func (s *Spec) Equal(o *Spec) bool {
	a, b := *s, *o
	if a.Headless {
		a.Records, a.aEnd = "", 0
	}
	if b.Headless {
		b.Records, b.aEnd = "", 0
	}

	alike := a.Ports == b.Ports || a.Ports != nil && b.Ports != nil && a.Ports.equal(b.Ports)
	alike = alike && equalExternal(a.External, b.External)
	a.Ports, b.Ports, a.External, b.External = nil, nil, nil, nil
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
	const allowed = "abcdefghijklmnopqrstuvwxyz0123456789-_."
	if _, err := netip.ParseAddr(target); err == nil || strings.Trim(strings.ToLower(target), allowed) != "" {
		return ""
	}
	name, err := wire.ParseName(target)
	if err != nil {
		return ""
	}
	head := wire.AppendRecordHeader(nil, wire.OwnerIsQuestion, wire.TypeCNAME, ttl, len(name))
	return string(append(head, name...))
}
