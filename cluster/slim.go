package cluster

import (
	"net/netip"
	"slices"
	"strings"
	"unique"

	"k8s.io/apimachinery/pkg/util/validation"
)

func (o Options) namespace(n *apiNamespace) *Namespace {
	return &Namespace{Name: n.Name}
}

// service slims a Service. As in kube-proxy, the type ExternalName takes precedence
// over the other fields of the spec.
func (o Options) service(s *apiService, warn func(format string, args ...any)) *Service {
	slim := &Service{Namespace: intern(s.Namespace), Name: s.Name}
	if s.Spec.Type == typeExternalName {
		slim.ExternalName = strings.ToLower(strings.TrimSuffix(s.Spec.ExternalName, "."))
		if !isTarget(slim.ExternalName) {
			warn("Service %s/%s: externalName %q is not a name: it has no answer", s.Namespace, s.Name, s.Spec.ExternalName)
		}
		return slim
	}
	if s.Spec.ClusterIP == "None" {
		slim.Headless = true
	} else {
		ips := s.Spec.ClusterIPs
		if len(ips) == 0 && s.Spec.ClusterIP != "" {
			ips = []string{s.Spec.ClusterIP}
		}
		slim.ClusterIPs = addrs(ips, "Service", s.Namespace, s.Name, warn)
	}
	slim.PublishNotReady, slim.Selector = s.Spec.PublishNotReadyAddresses, len(s.Spec.Selector) > 0
	if o.External {
		slim.External = external(s, warn)
	}
	for _, p := range s.Spec.Ports {
		if outside(p.Port) {
			warn("Service %s/%s: %d is not a port: ignored", s.Namespace, s.Name, p.Port)
			continue
		}
		slim.Ports = appendPort(slim.Ports, p.Name, p.Protocol, p.Port)
	}
	return slim
}

// external returns nil for a Service without external addresses.
func external(s *apiService, warn func(format string, args ...any)) *External {
	texts := slices.Clone(s.Spec.ExternalIPs)
	slim := new(External)
	for _, in := range s.Status.LoadBalancer.Ingress {
		host := strings.ToLower(strings.TrimSuffix(in.Hostname, "."))
		switch {
		case in.IP != "":
			texts = append(texts, in.IP)
		case host != "" && isTarget(host):
			slim.Hosts = append(slim.Hosts, host)
		case host != "":
			warn("Service %s/%s: hostname %q of its load balancer is not a name: ignored", s.Namespace, s.Name, in.Hostname)
		}
	}
	slim.IPs = addrs(texts, "Service", s.Namespace, s.Name, warn)
	if len(slim.IPs)+len(slim.Hosts) == 0 {
		return nil
	}
	return slim
}

// isTarget reports whether name can be the target of a CNAME. As in CoreDNS it may
// have underscores, but may not be an address.
func isTarget(name string) bool {
	if _, err := netip.ParseAddr(name); err == nil || len(name) > 253 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "" {
		return false
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > validation.DNS1123LabelMaxLength {
			return false
		}
	}
	return true
}

// pod returns nil for a pod that has terminated, is terminating, or has no address.
func (o Options) pod(p *apiPod) *Pod {
	switch p.Status.Phase {
	case "Succeeded", "Failed", "Unknown":
		return nil
	}
	if p.DeletionTimestamp != nil {
		return nil
	}
	var ips []string
	for _, ip := range p.Status.PodIPs {
		ips = append(ips, ip.IP)
	}
	if len(ips) == 0 && p.Status.PodIP != "" {
		ips = []string{p.Status.PodIP}
	}
	slim := &Pod{Namespace: intern(p.Namespace), Name: p.Name}
	slim.Host = p.Spec.HostNetwork
	if o.PodLabels {
		slim.Labels = newLabels(p.Labels)
	}
	// The kubelet wrote these addresses: no user can correct them.
	slim.IPs = addrs(ips, "Pod", p.Namespace, p.Name, func(string, ...any) {})
	if len(slim.IPs) == 0 {
		return nil
	}
	return slim
}

// serviceImport slims a ServiceImport to a Service: headless by its type, otherwise
// with the addresses of the cluster set.
func (o Options) serviceImport(s *apiServiceImport, warn func(format string, args ...any)) *Service {
	slim := &Service{Namespace: intern(s.Namespace), Name: s.Name}
	if s.Spec.Type == "Headless" {
		slim.Headless = true
	} else {
		slim.ClusterIPs = addrs(s.Spec.IPs, "ServiceImport", s.Namespace, s.Name, warn)
	}
	for _, p := range s.Spec.Ports {
		if !outside(p.Port) {
			slim.Ports = appendPort(slim.Ports, p.Name, p.Protocol, p.Port)
		}
	}
	return slim
}

// addrs parses the addresses of an object. IPv4-mapped IPv6 addresses become IPv4.
// Invalid addresses are reported and left out.
func addrs(texts []string, kind, namespace, name string, warn func(format string, args ...any)) []netip.Addr {
	out := make([]netip.Addr, 0, len(texts))
	for _, text := range texts {
		addr, err := netip.ParseAddr(text)
		if err != nil || addr.Zone() != "" {
			warn("%s %s/%s: %q is not an IP address: ignored", kind, namespace, name, text)
			continue
		}
		out = append(out, addr.Unmap())
	}
	return out
}

// outside reports whether a port number is invalid. An API server accepts none of
// these.
func outside(port int32) bool { return port < 1 || port > 65535 }

func appendPort(ports []Port, name string, protocol string, number int32) []Port {
	if protocol == "" {
		protocol = "TCP"
	}
	return append(ports, Port{intern(strings.ToLower(name)), intern(strings.ToLower(protocol)), uint16(number)})
}

// intern returns the same memory for equal strings: thousands of objects have the same
// namespace or port names.
func intern(s string) string { return unique.Make(s).Value() }
