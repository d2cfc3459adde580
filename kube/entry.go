package kube

import (
	"hash/fnv"
	"io"
	"net/netip"
	"slices"
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

// An entry is what the index holds of one Service (or ServiceImport): the
// objects, and the answers made of them. It is immutable.
type entry struct {
	home    *home
	service *cluster.Service // nil while only slices of it are there
	slices  []*cluster.Slice // in order of their names

	a      string  // A records of the Service's name, owner OwnerIsQuestion
	aaaa   string  // AAAA records
	cname  string  // the CNAME record of an ExternalName
	groups []group // endpoints that count
	// outside is what k8s_external answers of it, as an entry of its own; nil if
	// that is nothing, or is not asked for.
	outside *entry

	exists bool   // the name has records, or would have if it had the right type
	shared bool   // some address is behind several labels
	sum    uint32 // of all that answers depend on
}

// A group is endpoints that have the same ports. Those with the same label
// stand together: they are one endpoint with several addresses.
type group struct {
	cluster   string // id of the cluster they are in; "" for our own
	ports     []cluster.Port
	endpoints cluster.Endpoints
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

// build makes e's answers from its objects. It is called once, before readers
// see e.
func (e *entry) build(set settings) {
	e.exists, e.a, e.aaaa, e.cname, e.groups, e.shared, e.outside = false, "", "", "", nil, false, nil
	s := e.service
	switch {
	case s == nil: // slices alone make no names
		e.sum = 0
		return
	case s.ExternalName != "":
		e.cname = cname(s.ExternalName, set.ttl)
		e.exists = e.cname != ""
	case s.Headless:
		e.groups = targets(s, e.slices)
		e.exists = len(e.groups) > 0 // specification 2.4.1: none ready, no name
		e.addresses(addressesOf(e.groups), set.ttl)
		e.shared = len(e.a)/lenA+len(e.aaaa)/lenAAAA < len(addressesOf(e.groups))
	default:
		e.groups = targets(s, e.slices)
		e.exists = len(e.groups) > 0 || !set.ignoreEmpty
		e.addresses(s.ClusterIPs, set.ttl)
	}
	if set.external.on {
		e.outside = e.external(set.external)
	}
	e.sum = e.hash() + e.outside.hash()
}

// addresses packs the records of the Service's own name, each address once.
func (e *entry) addresses(ips []netip.Addr, ttl uint32) {
	var a, aaaa []byte
	seen := make(map[netip.Addr]struct{}, len(ips))
	for _, ip := range ips {
		if _, twice := seen[ip]; twice {
			continue
		}
		seen[ip] = struct{}{}
		if ip.Is4() {
			a = wire.AppendAddress(a, wire.OwnerIsQuestion, ttl, ip)
		} else {
			aaaa = wire.AppendAddress(aaaa, wire.OwnerIsQuestion, ttl, ip)
		}
	}
	e.a, e.aaaa = string(a), string(aaaa)
}

func addressesOf(groups []group) []netip.Addr {
	var ips []netip.Addr
	for _, g := range groups {
		for ep := range g.endpoints.All() {
			ips = append(ips, ep.Addr)
		}
	}
	return ips
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
	head := wire.AppendHead(nil, wire.OwnerIsQuestion, wire.TypeCNAME, ttl, len(name))
	return string(append(head, name...))
}

// A target is one endpoint under construction: the addresses behind one label.
type target struct {
	cluster string
	eps     []cluster.Endpoint
	has     map[netip.Addr]struct{} // the addresses of eps, if they are many
	ports   []cluster.Port
}

// targets gathers the endpoints of a Service's slices that count: each address
// once for its label, each port once. They come in the order of the slices.
func targets(s *cluster.Service, from []*cluster.Slice) []group {
	known := map[identity]*target{}
	var all []*target
	for _, sl := range from {
		if sl.Cluster != "" && !isDotted(sl.Cluster) {
			continue
		}
		for ep := range sl.Endpoints.All() {
			if !ep.Ready && !s.PublishNotReady {
				continue
			}
			ep.Ready = true
			if len(ep.Hostname) > wire.MaxLabel {
				ep.Hostname = "" // no API server lets it pass
			}
			id := identify(sl.Cluster, ep)
			t := known[id]
			if t == nil {
				t = &target{cluster: sl.Cluster, ports: sl.Ports}
				all = append(all, t)
				known[id] = t
			}
			t.add(ep, sl.Ports)
		}
	}
	return grouped(all, from)
}

// An identity stands for the label of an endpoint, without building it: the
// hostname, or the address that the label is made of.
type identity struct {
	cluster, hostname string
	addr              netip.Addr
}

func identify(id string, ep cluster.Endpoint) identity {
	if ep.Hostname == "" {
		return identity{id, "", ep.Addr}
	}
	// A hostname may read like the address of another endpoint.
	if ip, ok := labelled([]byte(ep.Hostname)); ok {
		return identity{id, "", ip}
	}
	return identity{cluster: id, hostname: ep.Hostname}
}

func (t *target) add(ep cluster.Endpoint, ports []cluster.Port) {
	if len(t.eps) > 0 && t.eps[0].Hostname != ep.Hostname {
		// The hostname of one is the address of the other, which has none.
		ep.Hostname += t.eps[0].Hostname
		for i := range t.eps {
			t.eps[i].Hostname = ep.Hostname
		}
	}
	if !t.holds(ep.Addr) {
		t.eps = append(t.eps, ep)
	}
	if slices.Equal(t.ports, ports) {
		return
	}
	t.ports = slices.Clone(t.ports)
	for _, p := range ports {
		if !slices.Contains(t.ports, p) {
			t.ports = append(t.ports, p)
		}
	}
}

// holds says whether the address is there, and notes it. A hostname may have
// thousands.
func (t *target) holds(ip netip.Addr) bool {
	if len(t.eps) < 32 {
		return slices.ContainsFunc(t.eps, func(o cluster.Endpoint) bool { return o.Addr == ip })
	}
	if t.has == nil {
		t.has = map[netip.Addr]struct{}{}
		for _, o := range t.eps {
			t.has[o.Addr] = struct{}{}
		}
	}
	_, ok := t.has[ip]
	t.has[ip] = struct{}{}
	return ok
}

// grouped packs targets with equal ports together. Most Services have one
// slice, whose packed endpoints then serve as they are.
func grouped(all []*target, from []*cluster.Slice) []group {
	var groups []group
	var packed [][]byte
	for _, t := range all {
		i := slices.IndexFunc(groups, func(g group) bool {
			return g.cluster == t.cluster && slices.Equal(g.ports, t.ports)
		})
		if i < 0 {
			i = len(groups)
			groups = append(groups, group{cluster: t.cluster, ports: t.ports})
			packed = append(packed, nil)
		}
		for _, ep := range t.eps {
			packed[i] = cluster.AppendEndpoint(packed[i], ep)
		}
	}
	for i := range groups {
		for _, sl := range from {
			if string(sl.Endpoints) == string(packed[i]) {
				groups[i].endpoints = sl.Endpoints
			}
		}
		if groups[i].endpoints == "" {
			groups[i].endpoints = cluster.Endpoints(packed[i])
		}
	}
	return groups
}

// hash is a number that two replicas with equal data agree on.
func (e *entry) hash() uint32 {
	if e == nil || !e.exists {
		return 0
	}
	h := fnv.New32a()
	ports := func(ps []cluster.Port) {
		for _, p := range ps {
			io.WriteString(h, p.Name+"/"+p.Protocol+"/")
			h.Write([]byte{byte(p.Port >> 8), byte(p.Port)})
		}
	}
	io.WriteString(h, strings.Join([]string{e.home.key, e.a, e.aaaa, e.cname}, "\x00"))
	ports(e.service.Ports)
	for _, g := range e.groups {
		io.WriteString(h, g.cluster+"\x00"+string(g.endpoints))
		ports(g.ports)
	}
	return h.Sum32()
}

// pairs gives each address once by which reverse names find the Service.
func (e *entry) pairs() map[address]struct{} {
	found := map[address]struct{}{}
	if e == nil || !e.exists {
		return found
	}
	for _, ip := range e.service.ClusterIPs {
		found[ip.As16()] = struct{}{}
	}
	for _, g := range e.groups {
		for ep := range g.endpoints.All() {
			found[ep.Addr.As16()] = struct{}{}
		}
	}
	return found
}
