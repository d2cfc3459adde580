package kubernetes

import (
	"iter"
	"net/netip"
	"strings"
	"sync/atomic"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/wire"
)

// A home is the identity of a Service: it stays the same as long as there is
// anything of that name, whatever becomes of its entry.
type serviceKey struct {
	labels    string // labels "service.namespace" in wire form, as they stand in a question
	namespace *namespace
}

// A space is a namespace. It may be known by a Service in it before it is
// itself; names in it are answered once it is exposed.
type namespace struct {
	name    string
	exposed atomic.Bool

	// The writer's alone: how much is in it, and what that adds to the serials
	// while it is exposed.
	objects          int
	hash, importHash uint32
}

// An entry is what the index holds of one Service (or ServiceImport): what its
// objects say, and the answers made of that. It is immutable.
type entry struct {
	key *serviceKey
	serviceSpec
	parts []part // its endpoints, by their slices
	// mixed is nil if no two of the endpoints have anything to do with each other:
	// each address and each hostname is there once. Nearly all Services are like
	// that. The parts are then the slices as they stand, in order of their names,
	// and a change of one slice is a change of one part.
	table *endpointTable
	// outside is what k8s_external answers of it, as an entry of its own; nil if
	// that is nothing, or is not asked for.
	k8sExternal *entry

	hash    uint32 // of all that answers depend on
	exists  bool   // the name has records, or would have if it had the right type
	inParts bool   // the records are not here but in the parts
}

// facts are what the Service's own object says. The zero value says that there
// is none.
type serviceSpec struct {
	ports    *portSet          // its ports; nil only if it is an alias, or none
	external *cluster.External // nil if there is nothing in it
	// records are those of the Service's own name, owner OwnerIsQuestion: ends of
	// them are A, the others AAAA; or the one CNAME of an ExternalName. For a
	// headless Service they are made of its endpoints.
	records string
	aEnd    uint32

	headless        bool
	externalName    bool // an ExternalName
	publishNotReady bool // endpoints count whether they are ready or not
	selector        bool // a controller finds the endpoints
}

// A part is one slice, or some endpoints that have the same ports: its name,
// its endpoints and, if the Service is headless, their records, in one piece of
// memory.
type part struct {
	ports        *portSet
	data         string
	endpointsEnd uint32 // of the endpoints in data
	aEnd         uint32 // of the A records behind them; the rest is AAAA
	served       uint32 // endpoints that count
	nameEnd      uint16 // bytes of the name
}

func (p *part) name() string { return p.data[:p.nameEnd] }
func (p *part) endpoints() cluster.Endpoints {
	return cluster.Endpoints(p.data[p.nameEnd:p.endpointsEnd])
}

// a and aaaa are the records of the endpoints that count.
func (p *part) a() string    { return p.data[p.endpointsEnd:p.aEnd] }
func (p *part) aaaa() string { return p.data[p.aEnd:] }

// A mixture is of a Service whose slices have to be seen together to tell what
// they mean. Its entry's parts are then the endpoints that count, by what they
// have in common; those with the same label stand together.
type mergedParts struct {
	slices      []part // in order of their names
	targets     []part // for each of the entry's parts one with the first endpoint of each label
	sharedAddrs bool   // some address is behind several labels
}

const (
	lenA    = 16 // bytes of an A record whose owner is the question
	lenAAAA = 28
)

// settings are what the answers in an entry depend on besides the objects.
type settings struct {
	ttl         uint32
	ignoreEmpty bool
	podsByAddr  bool // find pods by their address
	k8sExternal externalSettings
}

// externalSettings are those of k8s_external.
type externalSettings struct {
	enabled, headless bool
	ttl               uint32
}

// visible says whether there is anything of e for a client.
func (e *entry) visible() bool {
	return e != nil && e.exists && e.key.namespace.exposed.Load()
}

// a and aaaa are the records of the Service's own name, unless they are spread.
func (f *serviceSpec) a() string    { return f.records[:f.aEnd] }
func (f *serviceSpec) aaaa() string { return f.records[f.aEnd:] }

// clusterIPs gives each of the Service's own addresses once, IPv4 first.
func (f *serviceSpec) clusterIPs() iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		if f.headless || f.externalName {
			return
		}
		for a := f.a(); a != ""; a = a[lenA:] {
			if !yield(netip.AddrFrom4([4]byte([]byte(a[lenA-4 : lenA])))) {
				return
			}
		}
		for a := f.aaaa(); a != ""; a = a[lenAAAA:] {
			if !yield(netip.AddrFrom16([16]byte([]byte(a[lenAAAA-16 : lenAAAA])))) {
				return
			}
		}
	}
}

// has says whether ip is one of the Service's own addresses.
func (f *serviceSpec) has(ip netip.Addr) bool {
	for own := range f.clusterIPs() {
		if own == ip {
			return true
		}
	}
	return false
}

// hasPartRecords reports whether the parts have the address records of their
// endpoints.
func (e *entry) hasPartRecords() bool { return e.headless && e.known() }

// merged returns nil if the parts are the slices as they are.
func (e *entry) merged() *mergedParts {
	if e.table == nil {
		return nil
	}
	return e.table.merged
}

// slices are those of the Service, in order of their names.
func (e *entry) slices() []part {
	if m := e.merged(); m != nil {
		return m.slices
	}
	return e.parts
}

// counts says whether the endpoint does. Not all of an entry's parts need to.
func (f *serviceSpec) isServed(ep *cluster.Endpoint) bool { return ep.Ready || f.publishNotReady }

// known says whether there is an object, not only slices.
func (f *serviceSpec) known() bool { return f.ports != nil || f.externalName }

// ports are the Service's own.
func (f *serviceSpec) portList() []cluster.Port {
	if f.ports == nil {
		return nil
	}
	return f.ports.ports
}

// usedPortSets returns the port sets of e and of its endpoints.
func (e *entry) usedPortSets() (all []*portSet) {
	if e.ports != nil {
		all = append(all, e.ports)
	}
	for i := range e.parts {
		all = append(all, e.parts[i].ports)
	}
	if m := e.merged(); m != nil {
		for i := range m.slices {
			all = append(all, m.slices[i].ports)
		}
	}
	return all
}

// addresses gives those by which reverse names find the Service; if the parts
// are mixed, some of them several times.
func (e *entry) addresses() iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		if e == nil || !e.exists {
			return
		}
		for ip := range e.clusterIPs() {
			if !yield(ip) {
				return
			}
		}
		for w := e.endpoints(selection{}); w.next(); {
			if !yield(w.ep.Addr) {
				return
			}
		}
	}
}

// factsOf reads a Service.
func (ps *portSets) factsOf(s *cluster.Service, ttl uint32) serviceSpec {
	if s.ExternalName != "" {
		return serviceSpec{externalName: true, records: cname(s.ExternalName, ttl)}
	}
	f := serviceSpec{headless: s.Headless, publishNotReady: s.PublishNotReady, selector: s.Selector, external: s.External}
	f.ports = ps.get("", s.Ports)
	f.setAddresses(s.ClusterIPs, ttl)
	return f
}

// setAddresses packs the records of the Service's own name, each address once.
func (f *serviceSpec) setAddresses(ips []netip.Addr, ttl uint32) {
	var buf []byte
	ips = unique(ips)
	for _, ip := range ips {
		if ip.Is4() {
			buf = wire.AppendAddress(buf, wire.OwnerIsQuestion, ttl, ip)
		}
	}
	f.aEnd = uint32(len(buf))
	for _, ip := range ips {
		if !ip.Is4() {
			buf = wire.AppendAddress(buf, wire.OwnerIsQuestion, ttl, ip)
		}
	}
	f.records = string(buf)
}

// same says whether two objects say the same.
func (f *serviceSpec) equal(o *serviceSpec) bool {
	a, b := *f, *o
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

// cname is the record for a target as a user wrote it; "" if it is not a name.
// An IP address is none: CoreDNS gives NXDOMAIN for it, and so do we.
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
