package kubernetes

import (
	"net/netip"

	"github.com/seamark/seamark/directive/kubernetes/index"
	"github.com/seamark/seamark/wire"
)

// A serviceLookup answers a query for a name at or below a Service's.
type serviceLookup struct {
	*lookup
	entry  *index.Entry
	prefix int    // labels in front of the Service's name
	name   []byte // the Service's name if it differs from the query's: with wildcards
}

// answer answers by the labels in front of the Service's name:
//
//	(none)                    the Service
//	EP                        one endpoint
//	_PORT._PROTO              one port
//	LABEL._PORT._PROTO        one port of one endpoint or ClusterIP (compatible kube-dns)
//	EP.CLUSTER                one endpoint of one cluster (M9)
//	ZONE.pin._zone            endpoints in a topology zone (option zonal)
//	ZONE.prefer._zone         the same, or all if there are none
func (s *serviceLookup) answer() result {
	last := s.prefix - 1
	switch {
	case s.prefix == 0:
		return s.serviceName()
	case s.zonal && s.entry.Headless && !s.lookup.zone.multicluster && string(s.label(last)) == "_zone":
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
	return noEndpoint
}

// serviceName answers the Service's own name (2.3.1, 2.4.1). As in CoreDNS it has a SRV
// record for every port, named or not; with compatible kube-dns one for every address,
// without a port.
func (s *serviceLookup) serviceName() result {
	if s.entry.Headless && s.near != nil {
		if near, ok := s.nearby(index.Selection{}); ok {
			return s.endpointsName(&near)
		}
	}
	s.writeServiceAddrs()
	if s.wants(wire.TypeSRV) {
		s.srvRecords(&index.Selection{ClusterIPs: !s.entry.Headless})
	}
	return answered
}

// writeServiceAddrs writes the Service's addresses.
func (s *serviceLookup) writeServiceAddrs() {
	if s.wants(wire.TypeA) {
		if s.entry.InParts {
			s.writePartRecords(index.LenA, (*index.Part).A)
		} else {
			s.writeRecords(s.entry.A(), index.LenA)
		}
	}
	if s.wants(wire.TypeAAAA) {
		if s.entry.InParts {
			s.writePartRecords(index.LenAAAA, (*index.Part).AAAA)
		} else {
			s.writeRecords(s.entry.AAAA(), index.LenAAAA)
		}
	}
}

// writeRecords copies records of one size, and stops when the reply is full. The
// cut sets TC.
func (s *serviceLookup) writeRecords(records string, size int) {
	n := min(len(records)/size, s.q.SizeLimit()/size+1)
	s.q.Answer.AppendString(wire.Answers, records[:n*size], n)
}

// writePartRecords is writeRecords for the records of all parts.
func (s *serviceLookup) writePartRecords(size int, of func(*index.Part) string) {
	for i := range s.entry.Parts {
		if len(s.q.Answer.Buf) > s.q.SizeLimit() {
			return
		}
		s.writeRecords(of(&s.entry.Parts[i]), size)
	}
}

// portName answers _PORT._PROTO (2.3.2, 2.4.2), and _PROTO, an empty non-terminal. As in
// CoreDNS it has addresses, too.
func (s *serviceLookup) portName() result {
	sel := index.Selection{Protocol: s.label(s.prefix - 1)[1:]}
	if s.kubeDNS && s.prefix == 3 {
		return s.labelledPortName()
	}
	if s.prefix > 2 || s.prefix == 2 && s.label(0)[0] != '_' {
		return noPort
	}
	if s.prefix == 2 {
		sel.Port = s.label(0)[1:]
	}

	switch {
	case s.prefix == 1 && s.entry.Headless:
		if some := s.entry.Endpoints(&sel); some.Next(&sel) {
			return answered
		}
	case s.prefix == 2 && s.entry.Headless:
		sel, _ = s.nearby(sel)
		if s.endpointsName(&sel) == answered {
			return answered
		}
	case s.entry.Ports.Has(&sel):
		if s.prefix == 2 {
			s.writeServiceAddrs()
			if s.wants(wire.TypeSRV) {
				sel.ClusterIPs = true
				s.srvRecords(&sel)
			}
		}
		return answered
	}

	return noPort
}

// clusterEndpoint answers EP.CLUSTER in a multi-cluster zone. A cluster's ID may have
// several labels. A name between EP and the Service is an empty non-terminal (M7).
func (s *serviceLookup) clusterEndpoint() result {
	name := s.q.Name()
	end := s.q.LabelOffset(s.prefix)
	sel := s.selectLabel(s.label(0))
	sel.Cluster = name[s.q.LabelOffset(1):end]
	if s.endpointsName(&sel) == answered {
		return answered
	}
	for _, g := range s.entry.Parts {
		var room [wire.MaxName]byte
		if g.Served > 0 && index.EndsIn(index.AppendLabels(room[:0], g.Ports.Cluster), name[:end]) {
			return answered
		}
	}
	return noEndpoint
}

// zoneName answers the names of topology zones, and the empty non-terminals between
// them and the Service.
func (s *serviceLookup) zoneName() result {
	if s.prefix == 1 {
		return answered
	}

	how := string(s.label(s.prefix - 2))
	if how != "pin" && how != "prefer" {
		return noPort
	}
	if s.prefix == 2 {
		return answered
	}

	sel := index.Selection{Zone: s.q.Name()[:s.q.LabelOffset(s.prefix-2)]}
	if s.endpointsName(&sel) == answered {
		return isTopologyZone
	}
	if a := s.entry.Alias(); a != nil && (how == "prefer" || a.Zones[string(sel.Zone)]) {
		return s.answerCNAME(a.Record)
	}
	if how == "pin" || s.entry.HasZone(sel.Zone) {
		return isTopologyZone // it may lose its endpoints for a while
	}
	if s.endpointsName(&index.Selection{}) == answered {
		return isTopologyZone
	}
	return noTopologyZone
}

// aliasName answers a name at or below the name of a Service with an alias. The name of a port
// has SRV records, which lead to the alias's target, and so no CNAME record beside them.
func (s *serviceLookup) aliasName(a *index.Alias) result {
	switch {
	case s.prefix == 0, s.prefix == 1 && a.Labels[string(s.label(0))]:
		return s.answerCNAME(a.Record)
	case s.prefix == 1 && s.label(0)[0] == '_' && a.Ports.Has(&index.Selection{Protocol: s.label(0)[1:]}):
		return answered // an empty non-terminal
	case s.prefix == 2 && s.label(0)[0] == '_' && s.label(1)[0] == '_':
		if ports := a.Ports.Selected(&index.Selection{Port: s.label(0)[1:], Protocol: s.label(1)[1:]}); len(ports) > 0 {
			s.aliasPorts(a, ports)
			return answered
		}
	}
	return s.answer()
}

// aliasPorts writes the SRV records of a port of an alias.
func (s *serviceLookup) aliasPorts(a *index.Alias, ports []uint16) {
	if !s.wants(wire.TypeSRV) {
		return
	}
	for _, port := range ports {
		if len(s.q.Answer.Buf) > s.q.SizeLimit() {
			return // the cut sets TC
		}
		s.writeSRVTo(min(101, len(ports)), port, nil, []byte(a.Target()))
	}
}

// endpointsName answers with the addresses and SRV records of the selected endpoints.
// The name exists if there are any.
func (s *serviceLookup) endpointsName(sel *index.Selection) result {
	if some := s.entry.Endpoints(sel); !some.Next(sel) {
		return noEndpoint
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

// writeAddrs writes the records of one family, each address once.
func (s *serviceLookup) writeAddrs(sel *index.Selection, t wire.Type) {
	a := &s.q.Answer
	var written map[netip.Addr]struct{} // made only where an address may occur duplicate
	if m := s.entry.Merged(); m != nil && m.SharedAddrs && (s.entry.Headless || s.kubeDNS) &&
		(sel.Label == nil || s.kubeDNS) {
		written = map[netip.Addr]struct{}{}
	}

	c := s.entry.Endpoints(sel)
	if c.Family = t; sel.Label == nil && sel.Zone == nil && s.entry.HasPartRecords() &&
		s.ttl == s.index.Settings().TTL {
		s.writePartAddrs(&c, sel, written)
		return
	}

	for c.Next(sel) {
		ep := c.Endpoint
		if index.FamilyOf(ep.Addr) != t {
			continue
		}

		if written != nil {
			if _, duplicate := written[ep.Addr]; duplicate {
				continue
			}
			written[ep.Addr] = struct{}{}
		}

		if len(a.Buf) > s.q.SizeLimit() {
			return // the cut sets TC
		}

		a.Buf = wire.AppendAddress(a.Buf, wire.OwnerIsQuestion, s.ttl, ep.Addr)
		a.Count[wire.Answers]++
	}
}

// writePartAddrs copies the parts' records of the cursor's family.
func (s *serviceLookup) writePartAddrs(c *index.EndpointCursor, sel *index.Selection, written map[netip.Addr]struct{}) {
	a := &s.q.Answer
	for c.NextPart(sel) {
		records, size := c.Part.A(), index.LenA
		if c.Family == wire.TypeAAAA {
			records, size = c.Part.AAAA(), index.LenAAAA
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
