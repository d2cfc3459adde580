package kubernetes

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/test/clustertest"
)

// The naive model: from the plain set of objects it makes a list of every record,
// as the Kubernetes DNS specification defines them (numbers in comments; M for
// the multi-cluster one), and as CoreDNS does where the specification is silent
// (§: what clients rely on). An answer is a lookup in that list. The model is
// slow and shares no code with the index.

// rrsets is the records of one name: by type, the RDATA in presentation form.
type rrsets map[string][]string

func (r rrsets) add(qtype, rdata string) {
	if !slices.Contains(r[qtype], rdata) {
		r[qtype] = append(r[qtype], rdata)
	}
}

type model struct {
	directive
	have         *clustertest.Objects
	serial       uint32
	importSerial uint32

	primary           string
	names             map[string]rrsets // all existing names
	emptyNonTerminals map[string]bool
	oneOf             map[string][]string // PTR names of an address that is the ClusterIP of several Services: any one is correct
	glue              map[string][]string // additional addresses of SRV records of this name, if they are not all addresses of the targets
	weightCount       map[string]int      // the number of records from which kube-dns computes the weights at this name
}

// newModel returns the model of a cluster.
func newModel(d directive, have *clustertest.Objects, serial, importSerial uint32) *model {
	m := &model{directive: d, have: have, serial: serial, importSerial: importSerial,
		names: map[string]rrsets{}, emptyNonTerminals: map[string]bool{}, oneOf: map[string][]string{}, glue: map[string][]string{}, weightCount: map[string]int{}}
	for _, z := range d.zones {
		if m.primary == "" && !reversed(z) && !slices.Contains(d.multicluster, z) {
			m.primary = z
		}
	}
	for _, z := range d.zones {
		m.addName(z)
		m.addName("dns." + z)
		m.addName("ns.dns." + z)
		switch {
		case reversed(z):
		case slices.Contains(d.multicluster, z):
			m.addZone(z, cluster.Imports, cluster.ImportSlices, "1.0.0") // M3
		default:
			m.addZone(z, cluster.Services, cluster.Slices, "1.1.0") // 2.2
			m.addPodNamespaces(z)
		}
	}
	m.addReverse()
	for _, z := range d.zones {
		m.addApex(z)
	}
	return m
}

func reversed(z string) bool {
	return mdns.IsSubDomain("in-addr.arpa.", z) || mdns.IsSubDomain("ip6.arpa.", z)
}

// zone returns the longest zone that contains the name, which is in lower case.
func (m *model) zone(name string) (zone string) {
	for _, z := range m.zones {
		if (name == z || strings.HasSuffix(name, "."+z)) && len(z) > len(zone) {
			zone = z
		}
	}
	return zone
}

// addName adds a name, and the names between it and its zone (RFC 8020).
func (m *model) addName(name string) rrsets {
	zone := m.zone(name)
	for _, parent, _ := strings.Cut(name, "."); name != zone && parent != zone; _, parent, _ = strings.Cut(parent, ".") {
		if m.names[parent] == nil {
			m.names[parent] = rrsets{}
			m.emptyNonTerminals[parent] = true
		}
	}
	if m.names[name] == nil {
		m.names[name] = rrsets{}
	}
	delete(m.emptyNonTerminals, name)
	return m.names[name]
}

func (m *model) exposed(ns string) bool {
	return m.have[cluster.Namespaces][cluster.Key{Name: ns}] != nil
}

// An endpoint is all addresses with one hostname, or one address without a
// hostname (D2). It may be in several slices, and has the addresses and ports of
// all of them.
type endpoint struct {
	label     string // followed by the cluster ID, if there is one
	host      string
	cluster   string
	addresses []netip.Addr
	zones     []string // of the addresses
	ports     []cluster.Port
}

func (e *endpoint) has(p cluster.Port) bool { return slices.Contains(e.ports, p) }

// endpoints returns the ready endpoints of a Service (D3).
func (m *model) endpoints(s *cluster.Service, from cluster.Kind) (all []*endpoint) {
	for _, o := range m.have.List(from) {
		sl := o.(*cluster.Slice)
		if sl.Namespace != s.Namespace || sl.Service != s.Name {
			continue
		}
		for e := range sl.Endpoints.All() {
			if !e.Ready && !s.PublishNotReady {
				continue
			}
			label := e.Hostname
			if label == "" {
				label = dashed(e.Addr)
			}
			if sl.Cluster != "" {
				label += "." + sl.Cluster
			}
			i := slices.IndexFunc(all, func(o *endpoint) bool { return o.label == label })
			if i < 0 {
				i = len(all)
				all = append(all, &endpoint{label: label, cluster: sl.Cluster})
			}
			all[i].host = cmp.Or(all[i].host, e.Hostname)
			if !slices.Contains(all[i].addresses, e.Addr) {
				all[i].addresses = append(all[i].addresses, e.Addr)
				all[i].zones = append(all[i].zones, e.Zone)
			}
			for _, p := range sl.Ports {
				if !all[i].has(p) {
					all[i].ports = append(all[i].ports, p)
				}
			}
		}
	}
	return all
}

// dashed returns an address as a label (§3.5).
func dashed(ip netip.Addr) string {
	s := strings.NewReplacer(".", "-", ":", "-").Replace(ip.String())
	if strings.HasSuffix(s, "-") {
		s += "0"
	}
	return s
}

// addZone adds the names of a zone of Services.
func (m *model) addZone(z string, services, from cluster.Kind, version string) {
	m.addName("svc." + z)
	m.addName("dns-version."+z).add("TXT", `"`+version+`"`)
	for ns := range m.have[cluster.Namespaces] {
		m.addName(ns.Name + ".svc." + z)
	}
	for _, o := range m.have.List(services) {
		s := o.(*cluster.Service)
		if !m.exposed(s.Namespace) {
			continue
		}
		name := s.Name + "." + s.Namespace + ".svc." + z
		endpoints := m.endpoints(s, from)
		switch {
		case s.ExternalName != "": // 2.5
			if target, ok := hostname(s.ExternalName); ok {
				m.addName(name).add("CNAME", target)
			}
			continue
		case s.Headless:
			if len(endpoints) == 0 { // 2.4.1b, M10
				m.addCNAMEs(name, s, from)
				continue
			}
			if !m.kubedns {
				m.addHeadless(name, endpoints)
			}
			if m.zonal && services == cluster.Services {
				m.addTopology(name, s)
			}
		default:
			if m.ignoreEmpty && len(endpoints) == 0 {
				continue
			}
			if !m.kubedns {
				m.addClusterIP(name, s)
			}
		}
		if m.kubedns {
			m.asKubeDNS(name, s, endpoints)
			continue
		}
		for _, e := range endpoints { // 2.4.1c, d; M9; §3.5 under a ClusterIP too
			m.addAddresses(e.label+"."+name, e.addresses)
			for _, p := range e.ports {
				m.addSRV(e.label+"."+name, p, e.label+"."+name)
			}
		}
	}
}

// addCNAMEs adds the CNAMEs of a headless Service whose slices have one name.
func (m *model) addCNAMEs(name string, s *cluster.Service, from cluster.Kind) {
	names, targets := []string{name}, map[string]bool{}
	var zones, between []string
	for _, o := range m.have.List(from) {
		sl := o.(*cluster.Slice)
		if sl.Namespace != s.Namespace || sl.Service != s.Name {
			continue
		}
		for target, e := range sl.Endpoints.Names() {
			if !e.Ready && !s.PublishNotReady {
				continue
			}
			targets[mdns.Fqdn(target)] = true
			names = append(names, cmp.Or(e.Hostname, strings.ReplaceAll(target, ".", "-"))+"."+name)
			for _, p := range sl.Ports {
				if port, ok := portName(p, name); ok {
					names = append(names, port)
				}
			}
			zones = append(zones, e.Zone)
		}
	}
	if len(targets) != 1 {
		return
	}
	if m.zonal && from == cluster.Slices {
		between = []string{"pin._zone." + name, "prefer._zone." + name}
		for _, zone := range zones {
			if zone != "" {
				names = append(names, zone+".pin._zone."+name)
			}
		}
	}
	for target := range targets {
		for _, at := range names {
			m.addName(at).add("CNAME", target)
		}
		for _, at := range between {
			m.addName(at)
		}
	}
}

// hostname returns an ExternalName in presentation form. An IP address is invalid
// (§3.12).
func hostname(s string) (string, bool) {
	if _, err := netip.ParseAddr(s); err == nil {
		return "", false
	}
	if _, ok := mdns.IsDomainName(s); !ok {
		return "", false
	}
	return strings.ToLower(mdns.Fqdn(s)), true
}

func (m *model) addAddresses(name string, ips []netip.Addr) {
	at := m.addName(name)
	for _, ip := range ips {
		at.add(family(ip), ip.String())
	}
}

func family(ip netip.Addr) string {
	if ip.Is4() {
		return "A"
	}
	return "AAAA"
}

// addSRV adds a SRV record. Its weight is set when all records have been added.
func (m *model) addSRV(name string, p cluster.Port, target string) {
	m.addName(name).add("SRV", fmt.Sprintf("%d %s", p.Port, target))
}

// portName returns the owner of a named port's SRV records (2.3.2, 2.4.2). Other
// ports have none.
func portName(p cluster.Port, service string) (string, bool) {
	return "_" + p.Name + "._" + p.Protocol + "." + service, p.Name != ""
}

func (m *model) addClusterIP(name string, s *cluster.Service) {
	m.addAddresses(name, s.ClusterIPs) // 2.3.1, M4
	for _, p := range s.Ports {
		m.addSRV(name, p, name) // §3.5: all ports, with or without a name
		if port, ok := portName(p, name); ok {
			m.addSRV(port, p, name)            // 2.3.2, M5
			m.addAddresses(port, s.ClusterIPs) // §3.2
		}
	}
}

func (m *model) addHeadless(name string, endpoints []*endpoint) {
	for _, e := range endpoints {
		m.addAddresses(name, e.addresses) // 2.4.1, M8
		for _, p := range e.ports {
			m.addSRV(name, p, e.label+"."+name) // §3.5
			if port, ok := portName(p, name); ok {
				m.addSRV(port, p, e.label+"."+name) // 2.4.2, M11
				m.addAddresses(port, e.addresses)   // §3.2
			}
		}
	}
}

// addTopology adds the names ZONE.pin._zone. preferredRecords returns the records
// of ZONE.prefer._zone.
func (m *model) addTopology(name string, s *cluster.Service) {
	m.addName("pin._zone." + name)
	m.addName("prefer._zone." + name)
	for _, e := range m.endpoints(s, cluster.Slices) {
		for i, ip := range e.addresses {
			for _, how := range []string{"pin", "prefer"} {
				if e.zones[i] == "" {
					continue
				}
				at := e.zones[i] + "." + how + "._zone." + name
				if m.kubedns {
					m.addWithoutPort(at, name, e, e.addresses[i])
					continue
				}
				m.addAddresses(at, e.addresses[i:i+1])
				for _, p := range e.ports {
					m.addSRV(at, p, e.label+"."+name)
				}
				if len(e.ports) > 0 {
					m.glue[at] = append(m.glue[at], record(e.label+"."+name, m.ttl, family(ip), ip.String()))
				}
			}
		}
	}
}

// addPodNamespaces adds the names NS.pod. podName finds the names of pods.
func (m *model) addPodNamespaces(z string) {
	m.addName("pod." + z)
	for ns := range m.have[cluster.Namespaces] {
		if m.pods != podsDisabled {
			m.addName(ns.Name + ".pod." + z)
		}
	}
}

// addReverse adds the reverse zones (2.3.3, 2.4.3). The zone of ServiceImports has
// none (M6).
func (m *model) addReverse() {
	if m.primary == "" {
		return
	}
	owners, members, targets := map[netip.Addr][]string{}, map[netip.Addr][]string{}, map[netip.Addr][]string{}
	put := func(to map[netip.Addr][]string, ip netip.Addr, name string) {
		if !slices.Contains(to[ip], name) {
			to[ip] = append(to[ip], name)
		}
	}
	for _, o := range m.have.List(cluster.Services) {
		s := o.(*cluster.Service)
		name := s.Name + "." + s.Namespace + ".svc." + m.primary
		if m.names[name] == nil || s.ExternalName != "" {
			continue
		}
		for _, ip := range s.ClusterIPs {
			put(owners, ip, name)
		}
		for _, e := range m.endpoints(s, cluster.Slices) {
			for _, ip := range e.addresses {
				put(members, ip, m.endpointLabel(e)+"."+name)
				if m.isTarget(s, ip) {
					put(targets, ip, m.endpointLabel(e)+"."+name)
				}
			}
		}
	}
	for ip, names := range members {
		if targets[ip] != nil {
			names = targets[ip]
		}
		if at, err := mdns.ReverseAddr(ip.String()); err == nil && m.zone(at) != "" && owners[ip] == nil {
			for _, name := range names {
				m.addName(at).add("PTR", name)
			}
		}
	}
	for ip, names := range owners { // §3.7: a ClusterIP takes precedence over endpoints
		if at, err := mdns.ReverseAddr(ip.String()); err == nil && m.zone(at) != "" {
			m.addName(at).add("PTR", names[0])
			m.oneOf[at] = names
		}
	}
}

// isTarget reports whether a targetRef identifies an endpoint of a Service with an address.
func (m *model) isTarget(s *cluster.Service, ip netip.Addr) bool {
	for _, o := range m.have.List(cluster.Slices) {
		sl := o.(*cluster.Slice)
		if sl.Namespace != s.Namespace || sl.Service != s.Name {
			continue
		}
		for e := range sl.Endpoints.All() {
			if e.Addr == ip && e.Target && (e.Ready || s.PublishNotReady) {
				return true
			}
		}
	}
	return false
}

// addApex adds SOA, NS and the addresses of the name server (§3.6): the Services
// that have this server as an endpoint, or ns.dns.
func (m *model) addApex(z string) {
	serial := m.serial
	if slices.Contains(m.multicluster, z) {
		serial = m.importSerial
	}
	m.names[z].add("SOA", fmt.Sprintf("ns.dns.%s hostmaster.%s %d 7200 1800 86400 %d", z, z, serial, m.ttl))
	own := map[string][]netip.Addr{}
	for _, o := range m.have.List(cluster.Services) {
		s := o.(*cluster.Service)
		name := s.Name + "." + s.Namespace + ".svc."
		if m.primary == "" || m.names[name+m.primary] == nil || s.ExternalName != "" || s.Headless || len(s.ClusterIPs) == 0 {
			continue
		}
		for _, e := range m.endpoints(s, cluster.Slices) {
			if slices.ContainsFunc(e.addresses, func(ip netip.Addr) bool { return slices.Contains(m.local, ip) }) {
				own[name] = s.ClusterIPs
			}
		}
	}
	addresses := slices.Concat(slices.Collect(maps.Values(own))...)
	if len(own) == 0 {
		addresses = m.local
	}
	m.addAddresses("ns.dns."+z, addresses)
	if len(own) == 0 || reversed(z) || slices.Contains(m.multicluster, z) {
		own = map[string][]netip.Addr{"ns.dns.": addresses}
	}
	for name := range own {
		m.names[z].add("NS", name+z)
	}
}
