package kubernetes

import (
	"iter"
	"net/netip"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/wire"
)

// srvRecords writes the SRV records of what sel selects, and the addresses of
// their targets.
func (s *service) srvRecords(sel *selection) {
	sel.portless = s.kubedns && sel.proto == nil
	if n := s.countSRV(sel); n > 0 {
		s.writeSRV(n, sel)
		s.writeTargets(sel)
	}
}

// countSRV is the number that weights are made of, or one above a hundred, from
// where on they are all the same: that of the records (specification 2.3.2,
// 2.4.2: one for each endpoint and port). kube-dns counts one for each address
// and port, before it leaves out those that are equal.
func (s *service) countSRV(sel *selection) (n int) {
	if sel.own {
		if sel.portless && len(s.target())+1+hashDigits > wire.MaxName {
			return 0 // no address has a name
		}
		n = countPorts(s.e.ports(), sel)
		if s.kubedns {
			ips := 0
			for ip := range s.e.clusterIPs() {
				if sel.picksOwn(ip) {
					ips++
				}
			}
			n *= ips
		}
		return n
	}
	var before member
	for w := s.endpoints(sel); n <= 100 && w.next(); {
		if m := (member{w.of, w.ep.Hostname}); (s.kubedns || !m.same(before)) && s.fits(w.of, w.ep) {
			n += countPorts(w.of.ports, sel)
			before = m
		}
	}
	return n
}

// writeSRV writes the records, if n is their number.
func (s *service) writeSRV(n int, sel *selection) {
	a := &s.q.Answer
	switch {
	case sel.own && sel.portless:
		var room [1 + hashDigits]byte
		for ip := range s.e.clusterIPs() {
			if sel.picksOwn(ip) {
				s.srv(n, 0, s.appendLabel(room[:0], cluster.Endpoint{Addr: ip}))
			}
		}
		return
	case sel.own:
		for port := range matching(s.e.ports(), sel) {
			if len(a.Buf) > s.q.Limit() {
				return
			}
			s.srv(n, port, nil)
		}
		return
	}
	var before member
	var room [wire.MaxName]byte
	for w := s.endpoints(sel); w.next(); {
		if len(a.Buf) > s.q.Limit() {
			return // what is missing shows when the message is cut
		}
		if m := (member{w.of, w.ep.Hostname}); !m.same(before) && s.fits(w.of, w.ep) {
			labels := appendDotted(s.appendLabel(room[:0], w.ep), w.of.cluster)
			for port := range matching(w.of.ports, sel) {
				s.srv(n, port, labels)
			}
			before = m
		}
	}
}

// writeTargets writes the addresses of the targets.
func (s *service) writeTargets(sel *selection) {
	switch {
	case sel.own && sel.portless:
		var room [1 + hashDigits + 2]byte
		for ip := range s.e.clusterIPs() {
			if sel.picksOwn(ip) {
				s.additional(s.appendLabel(room[:0], cluster.Endpoint{Addr: ip}), ip)
			}
		}
		return
	case sel.own: // the Service, whichever of its addresses was asked for
		var room [2]byte
		for ip := range s.e.clusterIPs() {
			s.additional(room[:0], ip)
		}
		return
	}
	if len(s.q.Answer.Buf) > s.q.Limit() {
		return
	}
	var room [wire.MaxName]byte
	for w := s.endpoints(sel); w.next(); {
		if s.q.Overfull() { // owners can be compressed
			return
		}
		if !sel.portless && len(w.of.ports) == 0 || !s.fits(w.of, w.ep) {
			continue // no target of any record
		}
		s.additional(appendDotted(s.appendLabel(room[:0], w.ep), w.of.cluster), w.ep.Addr)
	}
}

// additional writes an address of the Service's name with labels in front.
func (s *service) additional(labels []byte, ip netip.Addr) {
	a := &s.q.Answer
	a.Buf = wire.AppendAddress(a.Buf, s.appendOwner(labels), s.ttl, ip)
	a.Count[wire.Additional]++
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
	name := len(s.target())
	if 1+max(len(ep.Hostname), longest)+1+len(of.cluster)+name <= wire.MaxName {
		return true
	}
	return len(appendDotted(s.appendLabel(nil, ep), of.cluster))+name <= wire.MaxName
}

// srv writes one of n SRV records. The target is the Service's name with labels
// in front, never compressed (RFC 2782).
func (s *service) srv(n int, port uint16, labels []byte) { s.srvTo(n, port, labels, s.target()) }

// srvTo is srv for a target that begins with labels and ends with name. Priority
// and weight are CoreDNS's, of which all add up to a hundred, or kube-dns's.
func (s *service) srvTo(n int, port uint16, labels, name []byte) {
	a := &s.q.Answer
	priority, weight := 0, max(1, 100/n)
	if s.kubedns {
		priority, weight = kubednsPriority, 100/n
	}
	a.Buf = wire.AppendHead(a.Buf, wire.OwnerIsQuestion, wire.TypeSRV, s.ttl, 6+len(labels)+len(name))
	a.Buf = append(a.Buf, 0, byte(priority), 0, byte(weight), byte(port>>8), byte(port))
	a.Buf = append(append(a.Buf, labels...), name...)
	a.Count[wire.Answers]++
}

// target is the Service's name in wire form, as the client spells it.
func (s *service) target() []byte {
	if s.name != nil {
		return s.name
	}
	return s.q.SpelledName()[s.q.Offset(s.left):]
}

// appendOwner makes labels in front of the Service's name an owner in the
// answer's form.
func (s *service) appendOwner(labels []byte) []byte {
	at := s.q.Offset(s.left)
	if s.name != nil {
		labels = append(labels, s.name[:len(s.name)-len(s.lookup.zone.name)]...)
		at = s.q.Offset(s.below)
	}
	zone := wire.Pointer(at)
	return append(labels, zone[:]...)
}

// matching gives the ports that sel selects, each number once. A port without
// a name has no name of its own to be asked by.
func matching(ports []cluster.Port, sel *selection) iter.Seq[uint16] {
	fits := func(p cluster.Port) bool {
		return sel.proto == nil ||
			p.Name != "" && p.Protocol == string(sel.proto) && (sel.port == nil || p.Name == string(sel.port))
	}
	return func(yield func(uint16) bool) {
		if sel.portless {
			yield(0)
			return
		}
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

func countPorts(ports []cluster.Port, sel *selection) (n int) {
	for range matching(ports, sel) {
		if n++; n > 100 {
			break
		}
	}
	return n
}

func hasPort(ports []cluster.Port, sel *selection) bool { return countPorts(ports, sel) > 0 }
