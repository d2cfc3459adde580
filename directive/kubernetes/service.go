package kubernetes

import (
	"iter"
	"net/netip"
	"slices"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/wire"
)

// A service is a lookup that has come to an entry which is no alias.
type serviceLookup struct {
	*lookup
	entry  *entry
	prefix int    // labels in front of the Service's
	name   []byte // of the Service, where that is not what the question ends in: it has wildcards
}

// A selection selects endpoints: those of one cluster, with one label, in one
// zone. What is nil selects all.
type selection struct {
	clusterIPs bool       // the Service's own addresses instead
	portless   bool       // SRV records have port zero
	anyForm    bool       // label may be any of a hostname, an address and a hash
	hashed     bool       // label may be a hash, which is
	hash       uint32     // this one
	label      []byte     // an endpoint's label, without its length
	addr       netip.Addr // that it is made of, if it is
	cluster    []byte     // labels of a cluster's id
	zone       []byte     // labels of a topology zone
	port       []byte     // name of a port, without the underscore
	protocol   []byte
}

// mayPick says whether any endpoint of the kin may be selected.
func (sel *selection) mayMatch(of *portSet) bool {
	return (sel.protocol == nil || of.has(sel)) && (sel.cluster == nil || isLabels(sel.cluster, of.cluster))
}

// picks says whether this one of them is.
func (sel *selection) matches(ep *cluster.Endpoint) bool {
	switch {
	case sel.zone != nil && !isLabels(sel.zone, ep.Zone):
		return false
	case sel.label == nil:
		return true
	case ep.Hostname != "" && string(sel.label) == ep.Hostname:
		return true
	case ep.Hostname != "" && !sel.anyForm:
		return false
	}
	return sel.addr == ep.Addr || sel.hashed && sel.hash == hashOf(ep.Addr)
}

// picksOwn says whether one of the Service's own addresses is selected.
func (sel *selection) matchesClusterIP(ip netip.Addr) bool {
	return !sel.hashed || sel.hash == hashOf(ip)
}

// A walk goes over the endpoints that a selection selects. The addresses behind
// one label come one after the other. It is no iterator function, since that
// would be allocated for each query.
type endpointCursor struct {
	sel       selection
	notReady  bool // those that are not ready too
	parts     []part
	part      *part             // at hand
	endpoints cluster.Endpoints // of the part
	ports     *portSet          // of the part
	ep        cluster.Endpoint
	left      uint32    // endpoints of the part that are served and have not been read
	family    wire.Type // if it is not 0, parts of the other family are left out
	oneFamily bool      // the endpoints of each part have one family
	oneLabel  bool      // only one endpoint of each part is wanted
	numbers   []uint32  // of the parts that have the port; nil is any
}

func (e *entry) endpoints(sel selection) endpointCursor {
	c := endpointCursor{sel: sel, notReady: e.publishNotReady, parts: e.parts}
	if e.table != nil {
		c.parts, c.oneFamily = e.table.find(&sel, e.parts)
		c.numbers = e.table.numbersOf(&sel)
	}
	return c
}

// targets returns a cursor over the endpoints that sel selects, of which those with
// one label may be left out but for the first one.
func (e *entry) targetsOf(sel selection) endpointCursor {
	c := e.endpoints(sel)
	c.oneLabel = sel.label != nil && !sel.anyForm
	switch m := e.merged(); {
	case m == nil || sel.label != nil:
	case sel.zone == nil:
		c.parts, c.oneFamily = m.targets, false
	case e.table.byZone != nil:
		c.parts, c.oneFamily = e.table.byZone[string(sel.zone)].targets, false
	}
	return c
}

func (s *serviceLookup) endpoints(sel *selection) endpointCursor { return s.entry.endpoints(*sel) }

// next moves to the next endpoint, if there is one.
func (w *endpointCursor) next() bool {
	for !w.nextInPart() {
		if !w.nextPart() {
			return false
		}
	}
	return true
}

// nextPart moves to the next part that may have a selected endpoint, in front of
// its first one.
func (w *endpointCursor) nextPart() bool {
	for len(w.parts) > 0 {
		var p *part
		switch {
		case w.numbers == nil:
			p, w.parts = &w.parts[0], w.parts[1:]
		case len(w.numbers) == 0:
			return false
		default:
			p, w.numbers = &w.parts[w.numbers[0]], w.numbers[1:]
		}
		if p.served == 0 || !w.sel.mayMatch(p.ports) {
			continue
		}
		w.part, w.ports, w.endpoints, w.left = p, p.ports, p.endpoints(), p.served
		if w.family != 0 && w.oneFamily {
			if w.endpoints.Next(&w.ep); familyOf(w.ep.Addr) != w.family {
				continue
			}
		}
		return true
	}
	return false
}

// nextInPart moves to the part's next endpoint, if there is one.
func (w *endpointCursor) nextInPart() bool {
	for {
		if w.sel.addr.Is4() {
			w.endpoints = w.endpoints.From(w.sel.addr.As4())
		}
		if len(w.endpoints) == 0 || w.left == 0 {
			return false
		}
		w.endpoints = w.endpoints.Next(&w.ep)
		if !w.ep.Ready && !w.notReady {
			continue
		}
		if w.left--; w.sel.matches(&w.ep) {
			if w.oneLabel {
				w.left = 0
			}
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
func (s *serviceLookup) answer() result {
	last := s.prefix - 1
	switch {
	case s.prefix == 0:
		return s.serviceName()
	case s.zonal && s.entry.headless && !s.lookup.zone.multicluster && string(s.label(last)) == "_zone":
		return s.zoneName()
	case s.label(last)[0] == '_':
		return s.portName()
	}
	if s.kubeDNS && s.prefix == 1 {
		if found := s.hashedIP(); found == answered {
			return found
		}
	}
	switch {
	case s.lookup.zone.multicluster:
		return s.clusterEndpoint()
	case s.prefix == 1:
		sel := s.selectLabel(s.label(0))
		return s.endpointsName(&sel)
	}
	return nameError
}

// self answers for the Service's own name (2.3.1, 2.4.1). As in CoreDNS it has
// a SRV record for every port, named or not; or as in kube-dns one for every
// address, without a port.
func (s *serviceLookup) serviceName() result {
	s.writeServiceAddrs()
	if s.wants(wire.TypeSRV) {
		s.srvRecords(&selection{clusterIPs: !s.entry.headless})
	}
	return answered
}

// own writes the Service's addresses.
func (s *serviceLookup) writeServiceAddrs() {
	if s.wants(wire.TypeA) {
		if s.entry.inParts {
			s.writePartRecords(lenA, (*part).a)
		} else {
			s.writeRecords(s.entry.a(), lenA)
		}
	}
	if s.wants(wire.TypeAAAA) {
		if s.entry.inParts {
			s.writePartRecords(lenAAAA, (*part).aaaa)
		} else {
			s.writeRecords(s.entry.aaaa(), lenAAAA)
		}
	}
}

// packed copies records of one size, but no more than fit the reply: whether
// some are lost shows when it is cut.
func (s *serviceLookup) writeRecords(records string, size int) {
	n := min(len(records)/size, s.q.SizeLimit()/size+1)
	s.q.Answer.AppendString(wire.Answers, records[:n*size], n)
}

// gather is packed for records that are spread over the parts.
func (s *serviceLookup) writePartRecords(size int, of func(*part) string) {
	for i := range s.entry.parts {
		if len(s.q.Answer.Buf) > s.q.SizeLimit() {
			return
		}
		s.writeRecords(of(&s.entry.parts[i]), size)
	}
}

// port answers _PORT._PROTO (2.3.2, 2.4.2), and the name between it and the
// Service. As in CoreDNS it has addresses too.
func (s *serviceLookup) portName() result {
	sel := selection{protocol: s.label(s.prefix - 1)[1:]}
	if s.kubeDNS && s.prefix == 3 {
		return s.labelledPortName()
	}
	if s.prefix > 2 || s.prefix == 2 && s.label(0)[0] != '_' {
		return nameError
	}
	if s.prefix == 2 {
		sel.port = s.label(0)[1:]
	}
	switch {
	case s.prefix == 1 && s.entry.headless:
		if some := s.endpoints(&sel); some.next() {
			return answered
		}
	case s.prefix == 2 && s.entry.headless:
		return s.endpointsName(&sel)
	case s.entry.ports.has(&sel):
		if s.prefix == 2 {
			s.writeServiceAddrs()
			if s.wants(wire.TypeSRV) {
				sel.clusterIPs = true
				s.srvRecords(&sel)
			}
		}
		return answered
	}
	return nameError
}

// clusterEndpoint answers EP.CLUSTER in a multi-cluster zone. A cluster's id
// may have several labels; a name between EP and the Service is one that others
// are below, and has no records (M7).
func (s *serviceLookup) clusterEndpoint() result {
	name := s.q.Name()
	end := s.q.LabelOffset(s.prefix)
	sel := s.selectLabel(s.label(0))
	sel.cluster = name[s.q.LabelOffset(1):end]
	if s.endpointsName(&sel) == answered {
		return answered
	}
	for _, g := range s.entry.parts {
		var room [wire.MaxName]byte
		if g.served > 0 && endsIn(appendDotted(room[:0], g.ports.cluster), name[:end]) {
			return answered
		}
	}
	return nameError
}

// inZone answers the names of topology zones, and those between them and the
// Service.
func (s *serviceLookup) zoneName() result {
	if s.prefix == 1 {
		return answered
	}
	how := string(s.label(s.prefix - 2))
	if how != "pin" && how != "prefer" {
		return nameError
	}
	if s.prefix == 2 {
		return answered
	}
	sel := selection{zone: s.q.Name()[:s.q.LabelOffset(s.prefix-2)]}
	if s.endpointsName(&sel) == answered {
		return answered
	}
	if s.entry.hasZone(sel.zone) {
		return answered
	}
	if how == "prefer" {
		return s.endpointsName(&selection{})
	}
	return nameError
}

// selected answers with the addresses and SRV records of the endpoints that
// sel selects. The name exists if there are any.
func (s *serviceLookup) endpointsName(sel *selection) result {
	if some := s.endpoints(sel); !some.next() {
		return nameError
	}
	for _, t := range [2]wire.Type{wire.TypeA, wire.TypeAAAA} {
		if s.wants(t) {
			s.writeAddrs(sel, t)
		}
	}
	if s.q.Type == wire.TypeSRV {
		s.srvRecords(sel)
	}
	return answered
}

// addresses writes the records of one family, each address once.
func (s *serviceLookup) writeAddrs(sel *selection, t wire.Type) {
	a := &s.q.Answer
	var written map[netip.Addr]struct{} // made only where an address may come again
	if m := s.entry.merged(); m != nil && m.sharedAddrs && (s.entry.headless || s.kubeDNS) && (sel.label == nil || s.kubeDNS) {
		written = map[netip.Addr]struct{}{}
	}
	w := s.endpoints(sel)
	if w.family = t; sel.label == nil && sel.zone == nil && s.entry.hasPartRecords() && s.ttl == s.index.settings.ttl {
		s.writePartAddrs(&w, written)
		return
	}
	for w.next() {
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

// writePartAddrs writes the records of the cursor's family that the parts have.
func (s *serviceLookup) writePartAddrs(w *endpointCursor, written map[netip.Addr]struct{}) {
	a := &s.q.Answer
	for w.nextPart() {
		records, size := w.part.a(), lenA
		if w.family == wire.TypeAAAA {
			records, size = w.part.aaaa(), lenAAAA
		}
		if written == nil {
			if len(a.Buf) > s.q.SizeLimit() {
				return
			}
			s.writeRecords(records, size)
			continue
		}
		for ; records != ""; records = records[size:] {
			if len(a.Buf) > s.q.SizeLimit() {
				return
			}
			ip, _ := netip.AddrFromSlice([]byte(records[len(wire.OwnerIsQuestion)+10 : size]))
			if _, duplicate := written[ip]; !duplicate {
				written[ip] = struct{}{}
				a.AppendString(wire.Answers, records[:size], 1)
			}
		}
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
