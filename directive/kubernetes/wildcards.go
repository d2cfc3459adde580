package kubernetes

import (
	"bytes"
	"iter"
	"maps"
	"net/netip"
	"slices"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/directive/kubernetes/index"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// This file is the option wildcards: queries in which the label * matches any label.
// They are rare and may concern every Service, so this code may allocate, and scans of a
// whole table run in Resolve. The writer may change the table during a scan.

func (l *lookup) isStar(i int) bool { return string(l.label(i)) == "*" }

// hasWildcard reports whether the query's name has a wildcard. Reverse names and names of
// ServiceImports, which kube-dns does not know, have none.
func (l *lookup) hasWildcard() bool {
	if l.zone.reverse || l.zone.multicluster {
		return false
	}
	for i := range l.depth {
		if l.isStar(i) {
			return true
		}
	}
	return false
}

// scansAllServices reports whether the answer needs a scan of all Services or all
// namespaces.
func (l *lookup) scansAllServices() bool {
	return l.depth > 2 && (l.isStar(l.depth-2) || l.isStar(l.depth-3))
}

// serveWildcard answers a query with wildcards, or has Resolve do it. It makes a lookup
// of its own, on the heap; the lookup of other queries is not allocated.
func (h *Handler) serveWildcard(q *dns.Query, z *zoneInfo) dns.Verdict {
	l := lookup{Handler: h, q: q, zone: z, depth: q.Labels() - z.labels}
	if l.scansAllServices() {
		return dns.Wait
	}
	return l.reply(l.answerWildcards())
}

// answerWildcards writes the records of all matching Services.
func (l *lookup) answerWildcards() result {
	switch kind := string(l.label(l.depth - 1)); {
	case kind == "pod":
		return l.wildPods()
	case kind != "svc" && kind != "*":
		return noMatch
	case l.depth == 1:
		return answered
	case l.depth == 2:
		return l.wildNamespace()
	case !l.haveListed(cluster.Slices):
		return notListed
	}
	found := noMatch
	for _, t := range [3]wire.Type{wire.TypeA, wire.TypeAAAA, wire.TypeSRV} {
		if l.q.Type == wire.TypeANY && l.wants(t) {
			found = l.collect(t)
		}
	}
	if l.q.Type != wire.TypeANY {
		found = l.collect(l.q.Type)
	}
	return found
}

// wildNamespace answers a name of namespaces.
func (l *lookup) wildNamespace() result {
	if !l.isStar(0) {
		return l.namespace(l.q.Name()[:l.q.LabelOffset(1)])
	}
	for range l.namespaces() {
		return answered
	}
	return noMatch
}

// namespaces returns the labels of the namespaces that exist.
func (l *lookup) namespaces() iter.Seq[string] {
	return func(yield func(string) bool) {
		for label, ns := range l.index.Namespaces() {
			if ns.Exposed() && !yield(label) {
				return
			}
		}
	}
}

// wildPods answers IP-WITH-DASHES.*.pod. The address itself cannot be a wildcard: without
// pods verified every address would match.
func (l *lookup) wildPods() result {
	switch {
	case l.podMode == podsDisabled:
		return noMatch
	case l.depth == 2:
		return l.wildNamespace()
	case l.podMode == podsVerified && !l.haveListed(cluster.Pods):
		return notListed
	}
	ip, ok := index.ParsePodLabel(l.label(0))
	if !ok || l.depth > 3 {
		return noMatch
	}
	for label := range l.namespaces() {
		if l.podMode == podsInsecure || l.index.HasPod(index.PodKey(nil, []byte(label), ip)) {
			l.address(ip)
			return answered
		}
	}
	return noMatch
}

// wildcardMatches are the entries that match a query with wildcards.
type wildcardMatches struct {
	*lookup
	qtype    wire.Type
	found    bool         // a name matches
	cname    *index.Entry // the first ExternalName or alias that matches
	addrs    map[netip.Addr]struct{}
	services []serviceMatch
	srvCount int // number of SRV records, as from countSRV
}

// A serviceMatch is one Service that matches a wildcard, and its matching endpoints.
type serviceMatch struct {
	serviceLookup
	selection index.Selection
}

// collect answers with the records of a type. If the reply can hold them all, their order
// is the same on servers with equal objects.
func (l *lookup) collect(t wire.Type) result {
	m := wildcardMatches{lookup: l, qtype: t, addrs: map[netip.Addr]struct{}{}}
	for e := range l.candidates() {
		if m.add(e); m.isFull() {
			break
		}
	}

	switch {
	case !m.found && m.cname != nil && m.cname.ExternalName:
		return l.answerCNAME(m.cname.Records)
	case !m.found && m.cname != nil:
		return l.answerCNAME(m.cname.Alias().Record)
	case !m.found:
		return noMatch
	}

	a := &l.q.Answer
	for _, ip := range slices.SortedFunc(maps.Keys(m.addrs), netip.Addr.Compare) {
		if len(a.Buf) > l.q.SizeLimit() {
			break // the cut sets TC
		}
		a.Buf = wire.AppendAddress(a.Buf, wire.OwnerIsQuestion, l.ttl, ip)
		a.Count[wire.Answers]++
	}

	slices.SortFunc(m.services, func(a, b serviceMatch) int { return bytes.Compare(a.name, b.name) })
	for _, s := range m.services {
		if len(a.Buf) > l.q.SizeLimit() {
			return answered
		}
		s.writeSRV(m.srvCount, &s.selection)
	}

	for _, s := range m.services {
		if l.q.ExceedsLimit() {
			break
		}
		s.writeTargets(&s.selection)
	}
	return answered
}

// isFull reports whether there are enough matches for a full reply.
func (m *wildcardMatches) isFull() bool {
	const shortest = 28 // of a SRV record
	switch m.qtype {
	case wire.TypeA, wire.TypeAAAA:
		return len(m.addrs)*index.LenA > m.q.SizeLimit()
	case wire.TypeSRV:
		return m.srvCount > 100 && len(m.services)*shortest > m.q.SizeLimit()
	}
	return m.found
}

// candidates returns the entries of all Services whose names match.
func (l *lookup) candidates() iter.Seq[*index.Entry] {
	name, at := l.q.Name(), l.depth-3
	service, space := name[l.q.LabelOffset(at):l.q.LabelOffset(at+1)], name[l.q.LabelOffset(at+1):l.q.LabelOffset(at+2)]
	return func(yield func(*index.Entry) bool) {
		switch {
		case l.isStar(at):
			for key, e := range l.index.Entries(false) {
				if (l.isStar(at+1) || key[1+int(key[0]):] == string(space)) && !yield(e) {
					return
				}
			}
		case l.isStar(at + 1):
			for label := range l.namespaces() {
				if e := l.index.Service(append(slices.Clip(service), label...)); e != nil && !yield(e) {
					return
				}
			}
		default:
			if e := l.index.Service(name[l.q.LabelOffset(at):l.q.LabelOffset(at+2)]); e != nil {
				yield(e)
			}
		}
	}
}

// add adds the matching part of one Service.
func (m *wildcardMatches) add(e *index.Entry) {
	spelled := m.q.QuestionName()[m.q.LabelOffset(m.depth):]
	name := append([]byte(e.Key.Labels+"\x03svc"), spelled...)
	s := serviceMatch{serviceLookup: serviceLookup{lookup: m.lookup, entry: e, prefix: m.depth - 3, name: name}}
	switch {
	case !e.Visible() || len(name) > wire.MaxName: // such a name cannot exist
		return
	case e.ExternalName || e.Alias() != nil:
		if s.prefix == 0 && (m.cname == nil || e.Key.SortsBefore(m.cname.Key)) {
			m.cname = e
		}
		return
	case !s.matches():
		return
	}

	m.found = true
	switch {
	case s.selection.Protocol != nil && s.selection.Port == nil: // an empty non-terminal
	case m.qtype == wire.TypeSRV:
		if n := s.countSRV(&s.selection); n > 0 {
			m.srvCount += n
			m.services = append(m.services, s)
		}
	case m.qtype == wire.TypeA || m.qtype == wire.TypeAAAA:
		s.addressesTo(m)
	}
}

// matches sets the selection from the labels in front of the Service's name, as
// serviceLookup.answer does for names without wildcards, and reports whether it selects
// anything.
func (s *serviceMatch) matches() bool {
	front := s.prefix // labels in front of a port's
	sel := index.Selection{ClusterIPs: !s.entry.Headless}
	if s.prefix > 0 && s.label(s.prefix - 1)[0] == '_' {
		sel.Protocol, front = s.label(s.prefix - 1)[1:], s.prefix-1
		if front > 0 {
			if s.label(front - 1)[0] != '_' {
				return false
			}
			sel.Port, front = s.label(front - 1)[1:], front-1
		}
	}

	if front > 1 || front == 1 && (s.label(0)[0] == '_' || sel.Protocol != nil && !s.kubeDNS) {
		return false
	}

	if front == 1 && !s.isStar(0) {
		some := s.selectLabel(s.label(0))
		if own, ok := hashedIPs(s.entry, s.label(0)); ok && s.kubeDNS {
			some = own
		} else if sel.ClusterIPs && sel.Protocol != nil {
			return false
		}
		some.Protocol, some.Port = sel.Protocol, sel.Port
		sel = some
	}

	sel.Portless = s.kubeDNS && sel.Protocol == nil
	s.selection = sel
	if sel.ClusterIPs {
		return sel.Protocol == nil || s.entry.Ports.Has(&sel)
	}

	c := s.entry.Endpoints(&sel)
	return c.Next(&sel)
}

// addressesTo adds the addresses of the selected endpoints.
func (s *serviceMatch) addressesTo(m *wildcardMatches) {
	add := func(ip netip.Addr) {
		if index.FamilyOf(ip) == m.qtype {
			m.addrs[ip] = struct{}{}
		}
	}
	if s.selection.ClusterIPs {
		for ip := range s.entry.ClusterIPs() {
			if s.selection.MatchesClusterIP(ip) {
				add(ip)
			}
		}
		return
	}
	for c := s.entry.Endpoints(&s.selection); c.Next(&s.selection) && !m.isFull(); {
		add(c.Endpoint.Addr)
	}
}
