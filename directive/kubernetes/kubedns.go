package kubernetes

import (
	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/wire"
)

// This file is the option compatible kube-dns: the labels that kube-dns makes of
// addresses, and its names below the names of Services.

// kubednsPriority is the priority of all SRV records of kube-dns.
const kubednsPriority = 10

// appendLabel appends the label of an endpoint in wire form. With compatible kube-dns it
// is the hash of the address instead of the address with dashes.
func (h *Handler) appendLabel(buf []byte, ep cluster.Endpoint) []byte {
	if !h.kubeDNS || ep.Hostname != "" {
		return appendEndpointLabel(buf, ep)
	}
	at := len(buf)
	buf = appendHashLabel(append(buf, 0), ep.Addr)
	buf[at] = byte(len(buf) - at - 1)
	return buf
}

// selectLabel returns the selection of an endpoint's label. Parsing the label once is
// cheaper than making the label of each endpoint. With compatible kube-dns it may be the
// hostname, the hash of the address or the address with dashes.
func (h *Handler) selectLabel(label []byte) (sel selection) {
	sel.label = label
	sel.addr, _ = addrOfLabel(label)
	if h.kubeDNS {
		sel.anyForm = true
		sel.hash, sel.hashed = parseHashLabel(label)
	}
	return sel
}

// hashedIPs selects the ClusterIP whose hash the label is, and reports whether there is
// one.
func hashedIPs(e *entry, label []byte) (sel selection, ok bool) {
	if sel.hash, sel.hashed = parseHashLabel(label); !sel.hashed {
		return sel, false
	}
	sel.clusterIPs = true
	for ip := range e.clusterIPs() {
		ok = ok || sel.matchesClusterIP(ip)
	}
	return sel, ok
}

// hashedIP answers the hash of a ClusterIP, in front of the Service's name or of a
// port's. kube-dns has the port's records at the same labels.
func (s *serviceLookup) hashedIP() result {
	sel, ok := hashedIPs(s.entry, s.label(0))
	if ok && s.prefix > 1 {
		ok = s.selectPort(&sel) && s.entry.ports.has(&sel)
	}
	if !ok {
		return nameError
	}
	for ip := range s.entry.clusterIPs() {
		if sel.matchesClusterIP(ip) {
			s.address(ip)
		}
	}
	if s.wants(wire.TypeSRV) {
		s.srvRecords(&sel)
	}
	return answered
}

// selectPort sets the port of sel if the name is LABEL._PORT._PROTO in front of the
// Service's, and reports whether it is.
func (s *serviceLookup) selectPort(sel *selection) bool {
	if s.prefix != 3 || s.label(0)[0] == '_' || s.label(1)[0] != '_' || s.label(2)[0] != '_' {
		return false
	}
	sel.port, sel.protocol = s.label(1)[1:], s.label(2)[1:]
	return true
}

// labelledPortName answers a label in front of a port's name.
func (s *serviceLookup) labelledPortName() result {
	if !s.entry.headless {
		return s.hashedIP()
	}
	sel := s.selectLabel(s.label(0))
	if !s.selectPort(&sel) {
		return nameError
	}
	return s.endpointsName(&sel)
}
