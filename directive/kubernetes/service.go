package kubernetes

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
	left int    // labels in front of the Service's
	name []byte // of the Service, where that is not what the question ends in: it has wildcards
}

// A selection selects endpoints: those of one cluster, with one label, in one
// zone. What is nil selects all.
type selection struct {
	own      bool       // the Service's own addresses instead
	portless bool       // SRV records have port zero
	forms    bool       // label may be any of a hostname, an address and a hash
	hashed   bool       // label may be a hash, which is
	hash     uint32     // this one
	label    []byte     // an endpoint's label, without its length
	addr     netip.Addr // that it is made of, if it is
	cluster  []byte     // labels of a cluster's id
	zone     []byte     // labels of a topology zone
	port     []byte     // name of a port, without the underscore
	proto    []byte
}

// mayPick says whether any endpoint of the kin may be selected.
func (sel *selection) mayPick(of *portSet) bool {
	return (sel.proto == nil || of.has(sel)) && (sel.cluster == nil || isLabels(sel.cluster, of.cluster))
}

// picks says whether this one of them is.
func (sel *selection) picks(ep *cluster.Endpoint) bool {
	switch {
	case sel.zone != nil && !isLabels(sel.zone, ep.Zone):
		return false
	case sel.label == nil:
		return true
	case ep.Hostname != "" && string(sel.label) == ep.Hostname:
		return true
	case ep.Hostname != "" && !sel.forms:
		return false
	}
	return sel.addr == ep.Addr || sel.hashed && sel.hash == hashOf(ep.Addr)
}

// picksOwn says whether one of the Service's own addresses is selected.
func (sel *selection) picksOwn(ip netip.Addr) bool { return !sel.hashed || sel.hash == hashOf(ip) }

// A walk goes over the endpoints that a selection selects. The addresses behind
// one label come one after the other. It is no iterator function, since that
// would be allocated for each query.
type walk struct {
	sel  selection
	all  bool // those that are not ready too
	todo []part
	part *part             // at hand
	rest cluster.Endpoints // of the part
	of   *portSet          // of the part
	ep   cluster.Endpoint
}

func (e *entry) walk(sel selection) walk { return walk{sel: sel, all: e.publish, todo: e.parts} }

func (s *service) endpoints(sel *selection) walk {
	return walk{sel: *sel, all: s.e.publish, todo: s.e.parts}
}

// next moves to the next endpoint, if there is one.
func (w *walk) next() bool {
	for !w.nextInPart() {
		if !w.nextPart() {
			return false
		}
	}
	return true
}

// nextPart moves to the next part that may have a selected endpoint, in front of
// its first one.
func (w *walk) nextPart() bool {
	for len(w.todo) > 0 {
		p := &w.todo[0]
		w.todo = w.todo[1:]
		if p.count > 0 && w.sel.mayPick(p.of) {
			w.part, w.of, w.rest = p, p.of, p.endpoints()
			return true
		}
	}
	return false
}

// nextInPart moves to the part's next endpoint, if there is one.
func (w *walk) nextInPart() bool {
	for {
		if w.sel.addr.Is4() {
			w.rest = w.rest.From(w.sel.addr.As4())
		}
		if len(w.rest) == 0 {
			return false
		}
		w.rest = w.rest.Next(&w.ep)
		if (w.ep.Ready || w.all) && w.sel.picks(&w.ep) {
			return true
		}
	}
}

// answer looks at the labels in front of the Service's name:
//
//	(none)                    the Service
//	EP                        one endpoint
//	_PORT._PROTO              one port
//	LABEL._PORT._PROTO        one port of one endpoint or ClusterIP (compatible kube-dns)
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
	}
	if s.kubedns && s.left == 1 {
		if found := s.hashedIP(); found == present {
			return found
		}
	}
	switch {
	case s.lookup.zone.multicluster:
		return s.clusterEndpoint()
	case s.left == 1:
		sel := s.named(s.label(0))
		return s.selected(&sel)
	}
	return missing
}

// self answers for the Service's own name (2.3.1, 2.4.1). As in CoreDNS it has
// a SRV record for every port, named or not; or as in kube-dns one for every
// address, without a port.
func (s *service) self() outcome {
	s.own()
	if s.wants(wire.TypeSRV) {
		s.srvRecords(&selection{own: !s.e.headless})
	}
	return present
}

// own writes the Service's addresses.
func (s *service) own() {
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
}

// packed copies records of one size, but no more than fit the reply: whether
// some are lost shows when it is cut.
func (s *service) packed(records string, size int) {
	n := min(len(records)/size, s.q.SizeLimit()/size+1)
	s.q.Answer.AppendString(wire.Answers, records[:n*size], n)
}

// gather is packed for records that are spread over the parts.
func (s *service) gather(size int, of func(*part) string) {
	for i := range s.e.parts {
		if len(s.q.Answer.Buf) > s.q.SizeLimit() {
			return
		}
		s.packed(of(&s.e.parts[i]), size)
	}
}

// port answers _PORT._PROTO (2.3.2, 2.4.2), and the name between it and the
// Service. As in CoreDNS it has addresses too.
func (s *service) port() outcome {
	sel := selection{proto: s.label(s.left - 1)[1:]}
	if s.kubedns && s.left == 3 {
		return s.labelAtPort()
	}
	if s.left > 2 || s.left == 2 && s.label(0)[0] != '_' {
		return missing
	}
	if s.left == 2 {
		sel.port = s.label(0)[1:]
	}
	switch {
	case s.left == 1 && s.e.headless:
		if some := s.endpoints(&sel); some.next() {
			return present
		}
	case s.left == 2 && s.e.headless:
		return s.selected(&sel)
	case s.e.own.has(&sel):
		if s.left == 2 {
			s.own()
			if s.wants(wire.TypeSRV) {
				sel.own = true
				s.srvRecords(&sel)
			}
		}
		return present
	}
	return missing
}

// clusterEndpoint answers EP.CLUSTER in a multi-cluster zone. A cluster's id
// may have several labels; a name between EP and the Service is one that others
// are below, and has no records (M7).
func (s *service) clusterEndpoint() outcome {
	name := s.q.Name()
	end := s.q.LabelOffset(s.left)
	sel := s.named(s.label(0))
	sel.cluster = name[s.q.LabelOffset(1):end]
	if s.selected(&sel) == present {
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
	sel := selection{zone: s.q.Name()[:s.q.LabelOffset(s.left-2)]}
	if s.selected(&sel) == present {
		return present
	}
	for w := s.endpoints(&selection{}); w.next(); {
		var room [wire.MaxName]byte
		if endsIn(appendDotted(room[:0], w.ep.Zone), sel.zone) {
			return present
		}
	}
	if how == "prefer" {
		return s.selected(&selection{})
	}
	return missing
}

// selected answers with the addresses and SRV records of the endpoints that
// sel selects. The name exists if there are any.
func (s *service) selected(sel *selection) outcome {
	if some := s.endpoints(sel); !some.next() {
		return missing
	}
	for _, t := range [2]wire.Type{wire.TypeA, wire.TypeAAAA} {
		if s.wants(t) {
			s.addresses(sel, t)
		}
	}
	if s.q.Type == wire.TypeSRV {
		s.srvRecords(sel)
	}
	return present
}

// addresses writes the records of one family, each address once.
func (s *service) addresses(sel *selection, t wire.Type) {
	a := &s.q.Answer
	var written map[netip.Addr]struct{} // made only where an address may come again
	if s.e.mixed != nil && s.e.mixed.shared && (s.e.headless || s.kubedns) {
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
		if len(a.Buf) > s.q.SizeLimit() {
			return // what is missing shows when the message is cut
		}
		a.Buf = wire.AppendAddress(a.Buf, wire.OwnerIsQuestion, s.ttl, ep.Addr)
		a.Count[wire.Answers]++
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
