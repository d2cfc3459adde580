package kubernetes

import (
	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/directive/kubernetes/index"
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
		return index.AppendEndpointLabel(buf, ep)
	}
	at := len(buf)
	buf = index.AppendHashLabel(append(buf, 0), ep.Addr)
	buf[at] = byte(len(buf) - at - 1)
	return buf
}

// selectLabel returns the selection of an endpoint's label. Parsing the label once is
// cheaper than making the label of each endpoint. With compatible kube-dns it may be the
// hostname, the hash of the address or the address with dashes.
func (h *Handler) selectLabel(label []byte) (sel index.Selection) {
	sel.Label = label
	sel.Addr, _ = index.AddrOfLabel(label)
	if h.kubeDNS {
		sel.AnyForm = true
		sel.Hash, sel.Hashed = index.ParseHashLabel(label)
	}
	return sel
}

// hashedIPs selects the ClusterIP whose hash the label is, and reports whether there is
// one.
func hashedIPs(e *index.Entry, label []byte) (sel index.Selection, ok bool) {
	if sel.Hash, sel.Hashed = index.ParseHashLabel(label); !sel.Hashed {
		return sel, false
	}
	sel.ClusterIPs = true
	for ip := range e.ClusterIPs() {
		ok = ok || sel.MatchesClusterIP(ip)
	}
	return sel, ok
}

// hashedIP answers the hash of a ClusterIP, in front of the Service's name or of a
// port's. kube-dns has the port's records at the same labels.
func (s *serviceLookup) hashedIP() result {
	sel, ok := hashedIPs(s.entry, s.label(0))
	if ok && s.prefix > 1 {
		ok = s.selectPort(&sel) && s.entry.Ports.Has(&sel)
	}
	if !ok {
		return noPort
	}
	for ip := range s.entry.ClusterIPs() {
		if sel.MatchesClusterIP(ip) {
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
func (s *serviceLookup) selectPort(sel *index.Selection) bool {
	if s.prefix != 3 || s.label(0)[0] == '_' || s.label(1)[0] != '_' || s.label(2)[0] != '_' {
		return false
	}
	sel.Port, sel.Protocol = s.label(1)[1:], s.label(2)[1:]
	return true
}

// labelledPortName answers a label in front of a port's name.
func (s *serviceLookup) labelledPortName() result {
	if !s.entry.Headless {
		return s.hashedIP()
	}
	sel := s.selectLabel(s.label(0))
	if !s.selectPort(&sel) || s.endpointsName(&sel) != answered {
		return noPort
	}
	return answered
}
