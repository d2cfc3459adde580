package kube

import (
	"iter"
	"net/netip"
	"slices"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/wire"
)

// A service is a lookup that has come to an entry which is no alias.
type service struct {
	*lookup
	e    *entry
	left int // labels in front of the Service's
}

// A selection selects endpoints: those of one cluster, with one label, in one
// zone. What is nil selects all.
type selection struct {
	label   []byte     // an endpoint's label, without its length
	addr    netip.Addr // that it is made of, if it is
	cluster []byte     // labels of a cluster's id
	zone    []byte     // labels of a topology zone
	port    []byte     // name of a port, without the underscore
	proto   []byte
}

// named selects by an endpoint's label. Reading that once is cheaper than
// writing it for each of a thousand endpoints.
func named(label []byte) selection {
	addr, _ := labelled(label)
	return selection{label: label, addr: addr}
}

// mayPick says whether any endpoint of the kin may be selected.
func (sel *selection) mayPick(of *kin) bool {
	return (sel.proto == nil || hasPort(of.ports, *sel)) && (sel.cluster == nil || isLabels(sel.cluster, of.cluster))
}

// picks says whether this one of them is.
func (sel *selection) picks(ep *cluster.Endpoint) bool {
	switch {
	case sel.zone != nil && !isLabels(sel.zone, ep.Zone):
		return false
	case sel.label == nil:
		return true
	case ep.Hostname != "":
		return string(sel.label) == ep.Hostname
	}
	return sel.addr == ep.Addr
}

// A walk goes over the endpoints that a selection selects. The addresses behind
// one label come one after the other. It is no iterator function, since that
// would be allocated for each query.
type walk struct {
	sel  selection
	all  bool // those that are not ready too
	todo []part
	rest cluster.Endpoints // of the part at hand
	of   *kin              // of the endpoints at hand
	ep   cluster.Endpoint
}

func (e *entry) walk(sel selection) walk { return walk{sel: sel, all: e.publish, todo: e.parts} }

func (s *service) endpoints(sel selection) walk {
	return walk{sel: sel, all: s.e.publish, todo: s.e.parts}
}

// next moves to the next endpoint, if there is one.
func (w *walk) next() bool {
	for {
		for {
			if w.sel.addr.Is4() {
				w.rest = w.rest.From(w.sel.addr.As4())
			}
			if len(w.rest) == 0 {
				break
			}
			w.rest = w.rest.Next(&w.ep)
			if (w.ep.Ready || w.all) && w.sel.picks(&w.ep) {
				return true
			}
		}
		if len(w.todo) == 0 {
			return false
		}
		p := &w.todo[0]
		w.of, w.todo = p.of, w.todo[1:]
		if w.sel.mayPick(w.of) {
			w.rest = p.endpoints()
		}
	}
}

// answer looks at the labels in front of the Service's name:
//
//	(none)                    the Service
//	EP                        one endpoint
//	_PORT._PROTO              one port
//	EP.CLUSTER…               one endpoint of one cluster (M9)
//	ZONE….pin._zone           endpoints in a topology zone (option zonal)
//	ZONE….prefer._zone        those, or all if there are none
func (s *service) answer() outcome {
	last := s.left - 1
	switch {
	case s.left == 0:
		return s.self()
	case s.zonal && s.e.headless && !s.lookup.zone.multicluster && string(s.label(last)) == "_zone":
		return s.inZone()
	case s.label(last)[0] == '_':
		return s.port()
	case s.lookup.zone.multicluster:
		return s.clusterEndpoint()
	case s.left == 1:
		return s.selected(named(s.label(0)))
	}
	return missing
}

// self answers for the Service's own name (2.3.1, 2.4.1). As in CoreDNS it has
// a SRV record for every port, named or not.
func (s *service) self() outcome {
	s.own(selection{})
	return present
}

// own writes the Service's addresses, or SRV records for the ports that sel
// selects.
func (s *service) own(sel selection) {
	if s.wants(wire.TypeA) {
		if s.e.spread {
			s.gather(lenA, (*part).a)
		} else {
			s.packed(s.e.a(), lenA)
		}
	}
	if s.wants(wire.TypeAAAA) {
		if s.e.spread {
			s.gather(lenAAAA, (*part).aaaa)
		} else {
			s.packed(s.e.aaaa(), lenAAAA)
		}
	}
	switch {
	case !s.wants(wire.TypeSRV):
	case s.e.headless:
		s.endpointSRV(sel)
	default:
		s.serviceSRV(sel)
	}
}

// packed copies records of one size, but no more than fit the reply: whether
// some are lost shows when it is cut.
func (s *service) packed(records string, size int) {
	n := min(len(records)/size, s.q.Limit()/size+1)
	s.q.Answer.AppendString(wire.Answers, records[:n*size], n)
}

// gather is packed for records that are spread over the parts.
func (s *service) gather(size int, of func(*part) string) {
	for i := range s.e.parts {
		if len(s.q.Answer.Buf) > s.q.Limit() {
			return
		}
		s.packed(of(&s.e.parts[i]), size)
	}
}

// port answers _PORT._PROTO (2.3.2, 2.4.2), and the name between it and the
// Service. As in CoreDNS it has addresses too.
func (s *service) port() outcome {
	sel := selection{proto: s.label(s.left - 1)[1:]}
	if s.left > 2 || s.left == 2 && s.label(0)[0] != '_' {
		return missing
	}
	if s.left == 2 {
		sel.port = s.label(0)[1:]
	}
	switch {
	case s.left == 1 && s.e.headless:
		if some := s.endpoints(sel); some.next() {
			return present
		}
	case s.left == 2 && s.e.headless:
		return s.selected(sel)
	case hasPort(s.e.ports(), sel):
		if s.left == 2 {
			s.own(sel)
		}
		return present
	}
	return missing
}

// matching gives the ports that sel selects, each number once. A port without
// a name has no name of its own to be asked by.
func matching(ports []cluster.Port, sel selection) iter.Seq[uint16] {
	fits := func(p cluster.Port) bool {
		return sel.proto == nil ||
			p.Name != "" && p.Protocol == string(sel.proto) && (sel.port == nil || p.Name == string(sel.port))
	}
	return func(yield func(uint16) bool) {
		var many map[uint16]struct{} // a Service may have thousands
		if len(ports) > 32 {
			many = make(map[uint16]struct{})
		}
	ports:
		for i, p := range ports {
			if !fits(p) {
				continue
			}
			if many != nil {
				if _, before := many[p.Port]; before {
					continue
				}
				many[p.Port] = struct{}{}
			} else {
				for _, before := range ports[:i] {
					if before.Port == p.Port && fits(before) {
						continue ports
					}
				}
			}
			if !yield(p.Port) {
				return
			}
		}
	}
}

// clusterEndpoint answers EP.CLUSTER in a multi-cluster zone. A cluster's id
// may have several labels; a name between EP and the Service is one that others
// are below, and has no records (M7).
func (s *service) clusterEndpoint() outcome {
	name := s.q.Name()
	end := s.q.Offset(s.left)
	sel := named(s.label(0))
	sel.cluster = name[s.q.Offset(1):end]
	if s.selected(sel) == present {
		return present
	}
	for _, g := range s.e.parts {
		var room [wire.MaxName]byte
		if g.count > 0 && endsIn(appendDotted(room[:0], g.of.cluster), name[:end]) {
			return present
		}
	}
	return missing
}

// inZone answers the names of topology zones, and those between them and the
// Service.
func (s *service) inZone() outcome {
	if s.left == 1 {
		return present
	}
	how := string(s.label(s.left - 2))
	if how != "pin" && how != "prefer" {
		return missing
	}
	if s.left == 2 {
		return present
	}
	sel := selection{zone: s.q.Name()[:s.q.Offset(s.left-2)]}
	if s.selected(sel) == present {
		return present
	}
	for w := s.endpoints(selection{}); w.next(); {
		var room [wire.MaxName]byte
		if endsIn(appendDotted(room[:0], w.ep.Zone), sel.zone) {
			return present
		}
	}
	if how == "prefer" {
		return s.selected(selection{})
	}
	return missing
}

// selected answers with the addresses and SRV records of the endpoints that
// sel selects. The name exists if there are any.
func (s *service) selected(sel selection) outcome {
	if some := s.endpoints(sel); !some.next() {
		return missing
	}
	for _, t := range [2]wire.Type{wire.TypeA, wire.TypeAAAA} {
		if s.wants(t) {
			s.addresses(sel, t)
		}
	}
	if s.q.Type == wire.TypeSRV {
		s.endpointSRV(sel)
	}
	return present
}

// addresses writes the records of one family, each address once.
func (s *service) addresses(sel selection, t wire.Type) {
	a := &s.q.Answer
	var written map[netip.Addr]struct{} // made only where an address may come again
	if s.e.mixed != nil && s.e.mixed.shared {
		written = map[netip.Addr]struct{}{}
	}
	for w := s.endpoints(sel); w.next(); {
		ep := w.ep
		if familyOf(ep.Addr) != t {
			continue
		}
		if written != nil {
			if _, twice := written[ep.Addr]; twice {
				continue
			}
			written[ep.Addr] = struct{}{}
		}
		if len(a.Buf) > s.q.Limit() {
			return // what is missing shows when the message is cut
		}
		a.Buf = wire.AppendAddress(a.Buf, wire.OwnerIsQuestion, s.ttl, ep.Addr)
		a.Count[wire.Answers]++
	}
}

// serviceSRV writes a SRV record for each port that sel selects, with the
// Service as target, and its addresses.
func (s *service) serviceSRV(sel selection) {
	name := s.q.Offset(s.left)
	n := countPorts(s.e.ports(), sel)
	for port := range matching(s.e.ports(), sel) {
		if len(s.q.Answer.Buf) > s.q.Limit() {
			break
		}
		s.srv(n, port, nil)
	}
	if n == 0 {
		return
	}
	a, owner := &s.q.Answer, wire.Pointer(name)
	for ip := range s.e.clusterIPs() {
		a.Buf = wire.AppendAddress(a.Buf, owner[:], s.ttl, ip)
		a.Count[wire.Additional]++
	}
}

// once gives each of a few addresses once.
func once(ips []netip.Addr) iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		for i, ip := range ips {
			if !slices.Contains(ips[:i], ip) && !yield(ip) {
				return
			}
		}
	}
}

// endpointSRV writes a SRV record for each endpoint and port that sel selects
// (N×M, 2.4.2), and the endpoints' addresses.
func (s *service) endpointSRV(sel selection) {
	n := 0
	var before member
	for w := s.endpoints(sel); n < 100 && w.next(); { // from there on the weight is 1
		if m := (member{w.of, w.ep.Hostname}); !m.same(before) && s.fits(w.of, w.ep) {
			n += countPorts(w.of.ports, sel)
			before = m
		}
	}
	if n == 0 {
		return
	}
	a, before := &s.q.Answer, member{}
	var room [wire.MaxName]byte
	for w := s.endpoints(sel); w.next(); {
		if len(a.Buf) > s.q.Limit() {
			return // what is missing shows when the message is cut
		}
		if m := (member{w.of, w.ep.Hostname}); !m.same(before) && s.fits(w.of, w.ep) {
			labels := appendDotted(appendEndpointLabel(room[:0], w.ep), w.of.cluster)
			for port := range matching(w.of.ports, sel) {
				s.srv(n, port, labels)
			}
			before = m
		}
	}
	if len(a.Buf) > s.q.Limit() {
		return
	}
	name := wire.Pointer(s.q.Offset(s.left))
	for w := s.endpoints(sel); w.next(); {
		if s.q.Overfull() { // owners can be compressed
			return
		}
		if len(w.of.ports) == 0 || !s.fits(w.of, w.ep) {
			continue // no target of any record
		}
		owner := append(appendDotted(appendEndpointLabel(room[:0], w.ep), w.of.cluster), name[:]...)
		a.Buf = wire.AppendAddress(a.Buf, owner, s.ttl, w.ep.Addr)
		a.Count[wire.Additional]++
	}
}

// A member is what a SRV record has for a target: an endpoint with a hostname
// may have several addresses, which stand one behind the other.
type member struct {
	of       *kin
	hostname string
}

func (m member) same(o member) bool { return m.hostname != "" && m == o }

// fits says whether the name of an endpoint is short enough to be one.
func (s *service) fits(of *kin, ep cluster.Endpoint) bool {
	const longest = len("ffff-ffff-ffff-ffff-ffff-ffff-ffff-ffff")
	name := len(s.q.Name()) - s.q.Offset(s.left)
	if 1+max(len(ep.Hostname), longest)+1+len(of.cluster)+name <= wire.MaxName {
		return true
	}
	return len(appendDotted(appendEndpointLabel(nil, ep), of.cluster))+name <= wire.MaxName
}

// srv writes one of n SRV records: priority 0, and the weights of all add up to
// a hundred, as CoreDNS gives them. The target is the Service's name with
// labels in front, never compressed (RFC 2782).
func (s *service) srv(n int, port uint16, labels []byte) {
	s.srvTo(n, port, labels, s.q.SpelledName()[s.q.Offset(s.left):])
}

// srvTo is srv for a target that begins with labels and ends with name.
func (s *service) srvTo(n int, port uint16, labels, name []byte) {
	a := &s.q.Answer
	weight := max(1, 100/n)
	a.Buf = wire.AppendHead(a.Buf, wire.OwnerIsQuestion, wire.TypeSRV, s.ttl, 6+len(labels)+len(name))
	a.Buf = append(a.Buf, 0, 0, byte(weight>>8), byte(weight), byte(port>>8), byte(port))
	a.Buf = append(append(a.Buf, labels...), name...)
	a.Count[wire.Answers]++
}

func countPorts(ports []cluster.Port, sel selection) (n int) {
	for range matching(ports, sel) {
		if n++; n == 100 {
			break
		}
	}
	return n
}

func hasPort(ports []cluster.Port, sel selection) bool { return countPorts(ports, sel) > 0 }
