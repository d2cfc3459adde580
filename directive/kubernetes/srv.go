package kubernetes

import (
	"net/netip"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/directive/kubernetes/index"
	"github.com/seamark/seamark/wire"
)

// srvRecords writes the SRV records of the selected endpoints or ClusterIPs, and the
// addresses of their targets.
func (s *serviceLookup) srvRecords(sel *index.Selection) {
	sel.Portless = s.kubeDNS && sel.Protocol == nil
	if n := s.countSRV(sel); n > 0 {
		s.writeSRV(n, sel)
		s.writeTargets(sel)
	}
}

// countSRV returns the number from which weights are calculated, or one above 100, from
// which on all weights are equal. It is the number of records: one for each endpoint and
// port (2.3.2, 2.4.2). kube-dns counts one for each address and port, before it removes
// duplicates.
func (s *serviceLookup) countSRV(sel *index.Selection) (n int) {
	if sel.ClusterIPs {
		if sel.Portless && len(s.target())+1+index.MaxHashLabel > wire.MaxName {
			return 0 // the targets' names are too long
		}

		n = min(101, len(s.entry.Ports.Selected(sel)))
		if s.kubeDNS {
			ips := 0
			for ip := range s.entry.ClusterIPs() {
				if sel.MatchesClusterIP(ip) {
					ips++
				}
			}
			n *= ips
		}
		return n
	}

	whole := sel.Label == nil && sel.Zone == nil
	var before index.SRVTarget
	c := s.entry.TargetsOf(sel)
	if s.kubeDNS {
		c = s.entry.Endpoints(sel)
	}

	for n <= 100 && c.NextPart(sel) {
		ports := min(101, len(c.Part.Ports.Selected(sel)))
		switch {
		case ports == 0:
			continue
		case whole && s.allFit(c.Part.Ports):
			n += ports * min(101, int(c.Part.Served))
			continue
		}

		for n <= 100 && c.NextInPart(sel) {
			if target := (index.SRVTarget{Ports: c.Part.Ports, Hostname: c.Endpoint.Hostname}); (s.kubeDNS ||
				!target.Equals(before)) && s.fits(c.Part.Ports, c.Endpoint) {
				n += ports
				before = target
			}
		}
	}

	return n
}

// writeSRV writes the records; n is countSRV's result.
func (s *serviceLookup) writeSRV(n int, sel *index.Selection) {
	a := &s.q.Answer
	switch {
	case sel.ClusterIPs && sel.Portless:
		var room [1 + index.MaxHashLabel]byte
		for ip := range s.entry.ClusterIPs() {
			if sel.MatchesClusterIP(ip) {
				s.writeSRVTo(n, 0, s.appendLabel(room[:0], cluster.Endpoint{Addr: ip}), s.target())
			}
		}
		return
	case sel.ClusterIPs:
		s.writePorts(n, s.entry.Ports.Selected(sel), nil)
		return
	}

	var before index.SRVTarget
	var room [wire.MaxName]byte
	for c := s.entry.TargetsOf(sel); c.NextPart(sel); {
		ports := c.Part.Ports.Selected(sel)
		for len(ports) > 0 && c.NextInPart(sel) {
			if len(a.Buf) > s.q.SizeLimit() {
				return // the cut sets TC
			}
			if target := (index.SRVTarget{Ports: c.Part.Ports,
				Hostname: c.Endpoint.Hostname}); !target.Equals(before) && s.fits(c.Part.Ports, c.Endpoint) {
				s.writePorts(n, ports, index.AppendLabels(s.appendLabel(room[:0], c.Endpoint), c.Part.Ports.Cluster))
				before = target
			}
		}
	}
}

// writePorts writes the SRV records of one target, and stops when the reply is
// full.
func (s *serviceLookup) writePorts(n int, ports []uint16, labels []byte) {
	for _, port := range ports {
		if len(s.q.Answer.Buf) > s.q.SizeLimit() {
			return
		}
		s.writeSRVTo(n, port, labels, s.target())
	}
}

// writeTargets writes the addresses of the targets.
func (s *serviceLookup) writeTargets(sel *index.Selection) {
	switch {
	case sel.ClusterIPs && sel.Portless:
		var room [1 + index.MaxHashLabel + 2]byte
		for ip := range s.entry.ClusterIPs() {
			if sel.MatchesClusterIP(ip) {
				s.writeGlue(s.appendLabel(room[:0], cluster.Endpoint{Addr: ip}), ip)
			}
		}
		return
	case sel.ClusterIPs: // all addresses of the Service's name
		var room [2]byte
		for ip := range s.entry.ClusterIPs() {
			s.writeGlue(room[:0], ip)
		}
		return
	}

	if len(s.q.Answer.Buf) > s.q.SizeLimit() {
		return
	}

	var room [wire.MaxName]byte
	for c := s.entry.Endpoints(sel); c.NextPart(sel); {
		if !sel.Portless && len(c.Part.Ports.Ports) == 0 {
			continue // it has no targets
		}
		for c.NextInPart(sel) {
			if s.q.ExceedsLimit() { // owners are compressed
				return
			}
			if s.fits(c.Part.Ports, c.Endpoint) {
				s.writeGlue(index.AppendLabels(s.appendLabel(room[:0], c.Endpoint), c.Part.Ports.Cluster), c.Endpoint.Addr)
			}
		}
	}
}

// writeGlue writes an address record of the Service's name with labels in front.
func (s *serviceLookup) writeGlue(labels []byte, ip netip.Addr) {
	a := &s.q.Answer
	a.Buf = wire.AppendAddress(a.Buf, s.appendOwner(labels), s.ttl, ip)
	a.Count[wire.Additional]++
}

// allFit reports whether the names of all endpoints are short enough, with any
// labels.
func (s *serviceLookup) allFit(of *index.PortSet) bool {
	return 1+wire.MaxLabel+1+len(of.Cluster)+len(s.target()) <= wire.MaxName
}

// fits reports whether the name of an endpoint is short enough.
func (s *serviceLookup) fits(ports *index.PortSet, ep cluster.Endpoint) bool {
	const longest = len("ffff-ffff-ffff-ffff-ffff-ffff-ffff-ffff")
	name := len(s.target())
	if 1+max(len(ep.Hostname), longest)+1+len(ports.Cluster)+name <= wire.MaxName {
		return true
	}
	return len(index.AppendLabels(s.appendLabel(nil, ep), ports.Cluster))+name <= wire.MaxName
}

// writeSRVTo writes one of n SRV records, whose target is labels and name, not compressed
// (RFC 2782). Priority and weight are CoreDNS's, with weights that add up to 100, or kube-dns's.
func (s *serviceLookup) writeSRVTo(n int, port uint16, labels, name []byte) {
	a := &s.q.Answer
	priority, weight := 0, max(1, 100/n)
	if s.kubeDNS {
		priority, weight = kubednsPriority, 100/n
	}
	a.Buf = wire.AppendRecordHeader(a.Buf, wire.OwnerIsQuestion, wire.TypeSRV, s.ttl, 6+len(labels)+len(name))
	a.Buf = append(a.Buf, 0, byte(priority), 0, byte(weight), byte(port>>8), byte(port))
	a.Buf = append(append(a.Buf, labels...), name...)
	a.Count[wire.Answers]++
}

// target returns the Service's name in wire form, in the client's spelling.
func (s *serviceLookup) target() []byte {
	if s.name != nil {
		return s.name
	}
	return s.q.QuestionName()[s.q.LabelOffset(s.prefix):]
}

// appendOwner appends the owner that is the Service's name with labels in front.
func (s *serviceLookup) appendOwner(labels []byte) []byte {
	at := s.q.LabelOffset(s.prefix)
	if s.name != nil {
		labels = append(labels, s.name[:len(s.name)-len(s.lookup.zone.name)]...)
		at = s.q.LabelOffset(s.depth)
	}
	zone := wire.QuestionPointer(at)
	return append(labels, zone[:]...)
}
