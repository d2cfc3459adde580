package api

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"unique"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/seamark/seamark/cluster"
)

// A Slimmer makes slim objects with the fields that the options select. It leaves out
// invalid fields, and calls Warn with a log message and attributes for each.
type Slimmer struct {
	Options cluster.Options
	Warn    func(msg string, attrs ...any)
}

// warn warns of a field's value.
func (s Slimmer) warn(msg, kind, namespace, name string, value any) {
	s.Warn(msg, "kind", kind, "namespace", namespace, "name", name, "value", value)
}

// Namespace slims a Namespace.
func (s Slimmer) Namespace(n *Namespace) *cluster.Namespace {
	slim := &cluster.Namespace{Name: n.Name}
	if s.Options.Published != 0 {
		all := map[string]string{}
		maps.Copy(all, n.Labels)
		all[LabelNamespaceName] = n.Name // which a manifest need not have
		slim.Labels = cluster.NewLabels(all)
	}
	return slim
}

// Service slims a Service. As in kube-proxy, the type ExternalName takes precedence
// over the other fields of the spec.
func (s Slimmer) Service(full *Service) *cluster.Service {
	slim := &cluster.Service{Namespace: intern(full.Namespace), Name: full.Name}
	if full.Spec.Type == TypeExternalName {
		slim.ExternalName = strings.ToLower(strings.TrimSuffix(full.Spec.ExternalName, "."))
		if !IsTarget(slim.ExternalName) {
			s.warn("Invalid externalName, the Service has no answer",
				"Service", full.Namespace, full.Name, full.Spec.ExternalName)
		}
		return slim
	}

	if full.Spec.ClusterIP == "None" {
		slim.Headless = true
	} else {
		ips := full.Spec.ClusterIPs
		if len(ips) == 0 && full.Spec.ClusterIP != "" {
			ips = []string{full.Spec.ClusterIP}
		}
		slim.ClusterIPs = s.addrs(ips, "Service", full.Namespace, full.Name)
	}

	slim.PublishNotReady, slim.Selector = full.Spec.PublishNotReadyAddresses, len(full.Spec.Selector) > 0
	if s.Options.External {
		slim.External = s.external(full)
	}
	for _, p := range full.Spec.Ports {
		slim.Ports = s.appendPort(slim.Ports, p, "Service", full.Namespace, full.Name)
	}
	return slim
}

// external returns nil for a Service without external addresses.
func (s Slimmer) external(full *Service) *cluster.External {
	texts := slices.Clone(full.Spec.ExternalIPs)
	slim := new(cluster.External)
	for _, in := range full.Status.LoadBalancer.Ingress {
		host := strings.ToLower(strings.TrimSuffix(in.Hostname, "."))
		switch {
		case in.IP != "":
			texts = append(texts, in.IP)
		case host != "" && IsTarget(host):
			slim.Hosts = append(slim.Hosts, host)
		case host != "":
			s.warn("Ignored invalid hostname of a load balancer", "Service", full.Namespace, full.Name, in.Hostname)
		}
	}
	slim.IPs = s.addrs(texts, "Service", full.Namespace, full.Name)
	if len(slim.IPs)+len(slim.Hosts) == 0 {
		return nil
	}
	return slim
}

// IsTarget reports whether name, in lower case, can be the target of a CNAME. As in CoreDNS it may
// have underscores, but may not be an address.
func IsTarget(name string) bool {
	const characters = "abcdefghijklmnopqrstuvwxyz0123456789-_."
	if _, err := netip.ParseAddr(name); err == nil || len(name) > 253 || strings.Trim(name, characters) != "" {
		return false
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > validation.DNS1123LabelMaxLength {
			return false
		}
	}
	return true
}

// Pod slims a Pod. It returns nil for a Pod that has terminated, is terminating, or has
// no address.
func (s Slimmer) Pod(full *Pod) *cluster.Pod {
	switch full.Status.Phase {
	case "Succeeded", "Failed", "Unknown":
		return nil
	}
	if full.DeletionTimestamp != nil {
		return nil
	}

	var ips []string
	for _, ip := range full.Status.PodIPs {
		ips = append(ips, ip.IP)
	}
	if len(ips) == 0 && full.Status.PodIP != "" {
		ips = []string{full.Status.PodIP}
	}

	slim := &cluster.Pod{Namespace: intern(full.Namespace), Name: full.Name, Host: full.Spec.HostNetwork}
	if s.Options.PodLabels {
		slim.Labels = cluster.NewLabels(full.Labels)
	}
	for _, ip := range ips {
		// The kubelet wrote the address: no user can correct it.
		if addr, ok := parseAddr(ip); ok {
			slim.IPs = append(slim.IPs, addr)
		}
	}
	if len(slim.IPs) == 0 {
		return nil
	}
	return slim
}

// ServiceImport slims a ServiceImport to a Service: headless by its type, otherwise
// with the addresses of the cluster set.
func (s Slimmer) ServiceImport(full *ServiceImport) *cluster.Service {
	slim := &cluster.Service{Namespace: intern(full.Namespace), Name: full.Name}
	if full.Spec.Type == "Headless" {
		slim.Headless = true
	} else {
		slim.ClusterIPs = s.addrs(full.Spec.IPs, "ServiceImport", full.Namespace, full.Name)
	}
	for _, p := range full.Spec.Ports {
		port := ServicePort{Name: p.Name, Protocol: p.Protocol, Port: p.Port}
		slim.Ports = s.appendPort(slim.Ports, port, "ServiceImport", full.Namespace, full.Name)
	}
	return slim
}

// ConfigMap slims a ConfigMap. It returns nil for one that the options do not name, if they
// name one.
func (s Slimmer) ConfigMap(full *ConfigMap) *cluster.ConfigMap {
	key := cluster.Key{Namespace: full.Namespace, Name: full.Name}
	if s.Options.ConfigMap != "" && s.Options.ConfigMapKey() != key {
		return nil
	}
	slim := &cluster.ConfigMap{
		Namespace: intern(full.Namespace), Name: full.Name, Created: int64(full.CreationTimestamp),
		Data: make(map[string]string, len(full.Data)+len(full.BinaryData)),
	}
	for key, value := range full.BinaryData {
		slim.Data[key] = string(value)
	}
	maps.Copy(slim.Data, full.Data)
	return slim
}

// DNSEndpoint slims a DNSEndpoint. A cluster may have many of one record, so their slices have
// no room for more elements.
func (s Slimmer) DNSEndpoint(full *DNSEndpoint) *cluster.DNSEndpoint {
	slim := &cluster.DNSEndpoint{
		Namespace: intern(full.Namespace), Name: full.Name, Created: int64(full.CreationTimestamp),
		Endpoints: make([]cluster.EndpointRecords, len(full.Spec.Endpoints)),
	}
	for i, e := range full.Spec.Endpoints {
		slim.Endpoints[i] = cluster.EndpointRecords{
			Name: e.DNSName, Type: intern(e.RecordType), Set: e.SetIdentifier, TTL: e.RecordTTL,
			Targets: slices.Clone(e.Targets),
		}
	}
	return slim
}

// Node slims a Node.
func (s Slimmer) Node(full *Node) *cluster.Node {
	slim := &cluster.Node{Name: full.Name}
	for _, prefix := range [...]string{"topology.kubernetes.io/", "failure-domain.beta.kubernetes.io/"} {
		zone, region := full.Labels[prefix+"zone"], full.Labels[prefix+"region"]
		if slim.OwnZone == "" {
			slim.OwnZone = intern(strings.ToLower(zone))
		}
		if zone != "" && region != "" {
			slim.Zone, slim.Region = intern(strings.ToLower(zone)), intern(strings.ToLower(region))
			break
		}
	}
	return slim
}

// addrs parses the addresses of an object.
func (s Slimmer) addrs(texts []string, kind, namespace, name string) []netip.Addr {
	out := make([]netip.Addr, 0, len(texts))
	for _, text := range texts {
		if addr, ok := parseAddr(text); ok {
			out = append(out, addr)
		} else {
			s.warn("Ignored invalid IP address", kind, namespace, name, text)
		}
	}
	return out
}

// parseAddr parses an address without a zone. IPv4-mapped IPv6 addresses become IPv4.
func parseAddr(text string) (addr netip.Addr, ok bool) {
	addr, err := netip.ParseAddr(text)
	return addr.Unmap(), err == nil && addr.Zone() == ""
}

// appendPort appends a port of an object. An API server accepts only valid numbers.
func (s Slimmer) appendPort(ports []cluster.Port, p ServicePort, kind, namespace, name string) []cluster.Port {
	if p.Port < 1 || p.Port > 65535 {
		s.warn("Ignored invalid port", kind, namespace, name, p.Port)
		return ports
	}
	protocol := intern(cmp.Or(strings.ToLower(p.Protocol), "tcp"))
	return append(ports, cluster.Port{Name: intern(strings.ToLower(p.Name)), Protocol: protocol, Port: uint16(p.Port)})
}

// intern returns the same memory for equal strings: thousands of objects have the same
// namespace or port names.
func intern(s string) string { return unique.Make(s).Value() }
