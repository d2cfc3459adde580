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
type home struct {
	key   string // labels "service.namespace" in wire form, as they stand in a question
	space *space
}

// A space is a namespace. It may be known by a Service in it before it is
// itself; names in it are answered once it is exposed.
type space struct {
	name    string
	exposed atomic.Bool

	// The writer's alone: how much is in it, and what that adds to the serials
	// while it is exposed.
	used           int
	sum, importSum uint32
}

// An entry is what the index holds of one Service (or ServiceImport): what its
// objects say, and the answers made of that. It is immutable.
type entry struct {
	home *home
	facts
	parts []part // its endpoints, by their slices
	// mixed is nil if no two of the endpoints have anything to do with each other:
	// each address and each hostname is there once. Nearly all Services are like
	// that. The parts are then the slices as they stand, in order of their names,
	// and a change of one slice is a change of one part.
	mixed *mixture
	// outside is what k8s_external answers of it, as an entry of its own; nil if
	// that is nothing, or is not asked for.
	outside *entry

	sum    uint32 // of all that answers depend on
	exists bool   // the name has records, or would have if it had the right type
	spread bool   // the records are not here but in the parts
}

// facts are what the Service's own object says. The zero value says that there
// is none.
type facts struct {
	own     *portSet          // its ports; nil only if it is an alias, or none
	reached *cluster.External // nil if there is nothing in it
	// records are those of the Service's own name, owner OwnerIsQuestion: ends of
	// them are A, the others AAAA; or the one CNAME of an ExternalName. For a
	// headless Service they are made of its endpoints.
	records string
	ends    uint32

	headless bool
	alias    bool // an ExternalName
	publish  bool // endpoints count whether they are ready or not
	selector bool // a controller finds the endpoints
}

// A part is one slice, or some endpoints that have the same ports: its name,
// its endpoints and, if the Service is headless, their records, in one piece of
// memory.
type part struct {
	of    *portSet
	data  string
	end   uint32 // of the endpoints in data
	ends  uint32 // of the A records behind them; the rest is AAAA
	count uint32 // endpoints that count
	named uint16 // bytes of the name
}

func (p *part) name() string                 { return p.data[:p.named] }
func (p *part) endpoints() cluster.Endpoints { return cluster.Endpoints(p.data[p.named:p.end]) }

// a and aaaa are the records of the endpoints that count.
func (p *part) a() string    { return p.data[p.end:p.ends] }
func (p *part) aaaa() string { return p.data[p.ends:] }

// A mixture is of a Service whose slices have to be seen together to tell what
// they mean. Its entry's parts are then the endpoints that count, by what they
// have in common; those with the same label stand together.
type mixture struct {
	slices []part   // in order of their names
	labels []uint32 // how many different labels the endpoints of each of the entry's parts have
	shared bool     // some address is behind several labels
}

const (
	lenA    = 16 // bytes of an A record whose owner is the question
	lenAAAA = 28
)

// settings are what the answers in an entry depend on besides the objects.
type settings struct {
	ttl         uint32
	ignoreEmpty bool
	clients     bool // find pods by their address
	external    externalSettings
}

// externalSettings are those of k8s_external.
type externalSettings struct {
	on, headless bool
	ttl          uint32
}

// visible says whether there is anything of e for a client.
func (e *entry) visible() bool {
	return e != nil && e.exists && e.home.space.exposed.Load()
}

// a and aaaa are the records of the Service's own name, unless they are spread.
func (f *facts) a() string    { return f.records[:f.ends] }
func (f *facts) aaaa() string { return f.records[f.ends:] }

// clusterIPs gives each of the Service's own addresses once, IPv4 first.
func (f *facts) clusterIPs() iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		if f.headless || f.alias {
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
func (f *facts) has(ip netip.Addr) bool {
	for own := range f.clusterIPs() {
		if own == ip {
			return true
		}
	}
	return false
}

// slices are those of the Service, in order of their names.
func (e *entry) slices() []part {
	if e.mixed != nil {
		return e.mixed.slices
	}
	return e.parts
}

// labels returns how many targets SRV records of part i have: one for each label.
func (e *entry) labels(i int) int {
	if e.mixed != nil {
		return int(e.mixed.labels[i])
	}
	return int(e.parts[i].count)
}

// counts says whether the endpoint does. Not all of an entry's parts need to.
func (f *facts) counts(ep *cluster.Endpoint) bool { return ep.Ready || f.publish }

// known says whether there is an object, not only slices.
func (f *facts) known() bool { return f.own != nil || f.alias }

// ports are the Service's own.
func (f *facts) ports() []cluster.Port {
	if f.own == nil {
		return nil
	}
	return f.own.ports
}

// usedPortSets returns the port sets of e and of its endpoints.
func (e *entry) usedPortSets() (all []*portSet) {
	if e.own != nil {
		all = append(all, e.own)
	}
	for i := range e.parts {
		all = append(all, e.parts[i].of)
	}
	if e.mixed != nil {
		for i := range e.mixed.slices {
			all = append(all, e.mixed.slices[i].of)
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
		for w := e.walk(selection{}); w.next(); {
			if !yield(w.ep.Addr) {
				return
			}
		}
	}
}

// factsOf reads a Service.
func (ps *portSets) factsOf(s *cluster.Service, ttl uint32) facts {
	if s.ExternalName != "" {
		return facts{alias: true, records: cname(s.ExternalName, ttl)}
	}
	f := facts{headless: s.Headless, publish: s.PublishNotReady, selector: s.Selector, reached: s.External}
	f.own = ps.get("", s.Ports)
	f.setAddresses(s.ClusterIPs, ttl)
	return f
}

// setAddresses packs the records of the Service's own name, each address once.
func (f *facts) setAddresses(ips []netip.Addr, ttl uint32) {
	var buf []byte
	ips = unique(ips)
	for _, ip := range ips {
		if ip.Is4() {
			buf = wire.AppendAddress(buf, wire.OwnerIsQuestion, ttl, ip)
		}
	}
	f.ends = uint32(len(buf))
	for _, ip := range ips {
		if !ip.Is4() {
			buf = wire.AppendAddress(buf, wire.OwnerIsQuestion, ttl, ip)
		}
	}
	f.records = string(buf)
}

// same says whether two objects say the same.
func (f *facts) same(o *facts) bool {
	a, b := *f, *o
	if a.headless {
		a.records, a.ends = "", 0
	}
	if b.headless {
		b.records, b.ends = "", 0
	}
	alike := a.own == b.own || a.own != nil && b.own != nil && a.own.equal(b.own)
	alike = alike && equalExternal(a.reached, b.reached)
	a.own, b.own, a.reached, b.reached = nil, nil, nil, nil
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
