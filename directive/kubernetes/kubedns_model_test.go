package kubernetes

import (
	"net/netip"
	"slices"
	"strings"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/test/clustertest"
)

// The model of the options compatible kube-dns and wildcards.

// endpointLabel returns the label of an endpoint in records.
func (m *model) endpointLabel(e *endpoint) string {
	if !m.kubedns || e.host != "" {
		return e.label
	}
	return strings.TrimSuffix(clustertest.HashLabel(e.addresses[0])+"."+e.cluster, ".")
}

// addressesOf returns the addresses of a name.
func (m *model) addressesOf(name string) (ips []netip.Addr) {
	for _, text := range slices.Concat(m.names[name]["A"], m.names[name]["AAAA"]) {
		ips = append(ips, netip.MustParseAddr(text))
	}
	return ips
}

// addCountedSRV adds a SRV record and counts it, even if it exists.
func (m *model) addCountedSRV(name string, port uint16, target string) {
	m.addSRV(name, cluster.Port{Port: port}, target)
	m.weightCount[name]++
}

// addWithoutPort adds kube-dns's records of one address at a name that is not a port's.
func (m *model) addWithoutPort(at, service string, e *endpoint, ip netip.Addr) {
	target := m.endpointLabel(e) + "." + service
	m.addAddresses(at, []netip.Addr{ip})
	m.addCountedSRV(at, 0, target)
	m.glue[at] = append(m.glue[at], record(target, m.ttl, family(ip), ip.String()))
}

// addWithPort adds kube-dns's records of one address at a port's name.
func (m *model) addWithPort(at, service string, e *endpoint, ip netip.Addr, p cluster.Port) {
	target := m.endpointLabel(e) + "." + service
	m.addAddresses(at, []netip.Addr{ip})
	m.addCountedSRV(at, p.Port, target)
	if line := record(target, m.ttl, family(ip), ip.String()); !slices.Contains(m.glue[at], line) {
		m.glue[at] = append(m.glue[at], line)
	}
}

// asKubeDNS adds the names of a Service.
func (m *model) asKubeDNS(name string, s *cluster.Service, endpoints []*endpoint) {
	var ips []netip.Addr
	if !s.Headless {
		ips = m.clusterIPAsKubeDNS(name, s)
	}
	for _, e := range endpoints {
		for _, ip := range e.addresses {
			if s.Headless {
				m.addWithoutPort(name, name, e, ip)
			}
			forms := []string{dashed(ip), clustertest.HashLabel(ip)}
			if e.host != "" && e.host != dashed(ip) && e.host != clustertest.HashLabel(ip) {
				forms = append(forms, e.host)
			}
			for _, form := range forms {
				if slices.ContainsFunc(ips, func(o netip.Addr) bool { return clustertest.HashLabel(o) == form }) {
					continue // the ClusterIP has the label
				}
				label := strings.TrimSuffix(form+"."+e.cluster, ".") + "."
				m.addWithoutPort(label+name, name, e, ip)
				for _, p := range e.ports {
					if port, ok := portName(p, name); ok && s.Headless {
						m.addWithPort(form+"."+port, name, e, ip, p)
					}
				}
			}
			for _, p := range e.ports {
				if port, ok := portName(p, name); ok && s.Headless {
					m.addWithPort(port, name, e, ip, p)
				}
			}
		}
	}
}

func (m *model) clusterIPAsKubeDNS(name string, s *cluster.Service) (ips []netip.Addr) {
	m.addAddresses(name, s.ClusterIPs)
	for _, ip := range s.ClusterIPs {
		if !slices.Contains(ips, ip) {
			ips = append(ips, ip)
		}
	}
	for _, p := range s.Ports {
		if port, ok := portName(p, name); ok {
			m.addAddresses(port, ips)
		}
	}
	for _, ip := range ips {
		target := clustertest.HashLabel(ip) + "." + name
		m.addAddresses(target, []netip.Addr{ip})
		m.addCountedSRV(name, 0, target)
		m.addCountedSRV(target, 0, target)
		m.glue[name] = append(m.glue[name], record(target, m.ttl, family(ip), ip.String()))
		for _, p := range s.Ports {
			if port, ok := portName(p, name); ok {
				m.addCountedSRV(port, p.Port, name)
				m.addCountedSRV(clustertest.HashLabel(ip)+"."+port, p.Port, name)
				m.addAddresses(clustertest.HashLabel(ip)+"."+port, []netip.Addr{ip})
			}
		}
	}
	return ips
}

// addWildcard adds a name with wildcards: the records of all names that it matches.
func (m *model) addWildcard(name, zone string) {
	delete(m.names, name)
	delete(m.glue, name)
	m.weightCount[name] = 0
	labels := mdns.SplitDomainName(strings.TrimSuffix(name, zone))
	n := len(labels)
	matches := func(pattern, label string) bool { return pattern == "*" || pattern == label }
	if labels[n-1] == "pod" {
		m.addPodWildcard(name, zone, labels)
		return
	}
	if !matches(labels[n-1], "svc") {
		return
	}
	if n < 3 {
		for ns := range m.have[cluster.Namespaces] {
			if n == 1 || matches(labels[0], ns.Name) {
				m.addName(name)
			}
		}
		if n == 1 {
			m.addName(name)
		}
		return
	}
	front := labels[:n-3]
	if len(front) == 1 && front[0] == "*" || len(front) == 3 && front[0] == "*" && strings.HasPrefix(front[1], "_") && strings.HasPrefix(front[2], "_") && m.kubedns {
		front = front[1:]
	}
	if slices.Contains(front, "*") || slices.Contains(front, "_zone") {
		return
	}
	var aliases []string
	for _, o := range m.have.List(cluster.Services) {
		s := o.(*cluster.Service)
		at := strings.Join(append(slices.Clone(front), s.Name, s.Namespace, "svc", zone), ".")
		if m.names[at] == nil || !m.exposed(s.Namespace) || !matches(labels[n-2], s.Namespace) || !matches(labels[n-3], s.Name) {
			continue
		}
		if own := strings.Join([]string{s.Name, s.Namespace, "svc", zone}, "."); m.names[own]["CNAME"] != nil && n > 3 {
			continue
		} else if target := m.names[at]["CNAME"]; target != nil {
			aliases = append(aliases, s.Name+" "+s.Namespace+" "+target[0])
			continue
		}
		m.addRecordsOf(name, at)
	}
	if slices.Sort(aliases); len(aliases) > 0 && m.names[name] == nil {
		m.addName(name).add("CNAME", strings.Fields(aliases[0])[2])
	}
}

// addRecordsOf adds the records of another name.
func (m *model) addRecordsOf(name, at string) {
	m.addName(name)
	targets := map[string]bool{}
	for rtype, all := range m.names[at] {
		for _, rdata := range all {
			m.names[name].add(rtype, rdata)
			if rtype == "SRV" {
				targets[rdata[strings.LastIndexByte(rdata, ' ')+1:]] = true
			}
		}
	}
	if m.names[at]["SRV"] == nil {
		return
	}
	if glue, ok := m.glue[at]; ok {
		m.glue[name] = append(m.glue[name], glue...)
	} else {
		for target := range targets {
			for _, ip := range m.addressesOf(target) {
				m.glue[name] = append(m.glue[name], record(target, m.ttl, family(ip), ip.String()))
			}
		}
	}
	m.weightCount[name] += m.weightCount[at]
}

func (m *model) addPodWildcard(name, zone string, labels []string) {
	for ns := range m.have[cluster.Namespaces] {
		switch {
		case m.pods == podsDisabled:
		case len(labels) == 2:
			m.addName(name)
		case len(labels) == 3 && labels[0] != "*":
			if at, ok := m.podName(labels[0]+"."+ns.Name+".pod."+zone, zone); ok {
				m.names[name] = at
			}
		}
	}
}
