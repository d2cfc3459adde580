package api

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/seamark/seamark/cluster"
)

// An oracle slims the types of k8s.io/api. Slimming the same object from its
// bytes must have the same result.
type oracle struct{ cluster.Options }

func (o oracle) namespace(n *corev1.Namespace) *cluster.Namespace {
	return &cluster.Namespace{Name: n.Name}
}

// service slims a Service. The type ExternalName takes precedence, as in
// kube-proxy.
func (o oracle) service(s *corev1.Service, warn func(msg string, attrs ...any)) *cluster.Service {
	slim := &cluster.Service{Namespace: intern(s.Namespace), Name: s.Name}
	if s.Spec.Type == corev1.ServiceTypeExternalName {
		slim.ExternalName = strings.ToLower(strings.TrimSuffix(s.Spec.ExternalName, "."))
		if !IsTarget(slim.ExternalName) {
			warn("Invalid externalName, the Service has no answer", "kind", "Service", "namespace", s.Namespace, "name", s.Name, "value", s.Spec.ExternalName)
		}
		return slim
	}
	if s.Spec.ClusterIP == corev1.ClusterIPNone {
		slim.Headless = true
	} else {
		ips := s.Spec.ClusterIPs
		if len(ips) == 0 && s.Spec.ClusterIP != "" {
			ips = []string{s.Spec.ClusterIP}
		}
		slim.ClusterIPs = Slimmer{Warn: warn}.addrs(ips, "Service", s.Namespace, s.Name)
	}
	slim.PublishNotReady, slim.Selector = s.Spec.PublishNotReadyAddresses, len(s.Spec.Selector) > 0
	if o.External {
		slim.External = typedExternal(s, warn)
	}
	for _, p := range s.Spec.Ports {
		port := ServicePort{Name: p.Name, Protocol: string(p.Protocol), Port: p.Port}
		slim.Ports = Slimmer{Warn: warn}.appendPort(slim.Ports, port, "Service", s.Namespace, s.Name)
	}
	return slim
}

// typedExternal returns nil for a Service without external addresses.
func typedExternal(s *corev1.Service, warn func(msg string, attrs ...any)) *cluster.External {
	texts := slices.Clone(s.Spec.ExternalIPs)
	slim := new(cluster.External)
	for _, in := range s.Status.LoadBalancer.Ingress {
		host := strings.ToLower(strings.TrimSuffix(in.Hostname, "."))
		switch {
		case in.IP != "":
			texts = append(texts, in.IP)
		case host != "" && IsTarget(host):
			slim.Hosts = append(slim.Hosts, host)
		case host != "":
			warn("Ignored invalid hostname of a load balancer", "kind", "Service", "namespace", s.Namespace, "name", s.Name, "value", in.Hostname)
		}
	}
	slim.IPs = Slimmer{Warn: warn}.addrs(texts, "Service", s.Namespace, s.Name)
	if len(slim.IPs)+len(slim.Hosts) == 0 {
		return nil
	}
	return slim
}

// slice slims an EndpointSlice. It returns nil for a slice without a Service and for an
// imported slice with addressType FQDN. A slice with the multi-cluster labels never
// belongs to this cluster, even if it also names a derived Service of it.
func (o oracle) slice(s *discoveryv1.EndpointSlice, warn func(msg string, attrs ...any)) *cluster.Slice {
	slim := &cluster.Slice{Namespace: intern(s.Namespace), Name: s.Name}
	if imported := s.Labels[LabelImportService]; imported != "" {
		if !o.Multicluster {
			return nil
		}
		if slim.Cluster = strings.ToLower(s.Labels[LabelImportCluster]); slim.Cluster == "" {
			slim.Cluster = "unknown"
			warn("Imported EndpointSlice without a label, its cluster is unknown", "namespace", s.Namespace, "name", s.Name, "label", LabelImportCluster)
		}
		slim.Service = imported
	} else {
		slim.Service = s.Labels[discoveryv1.LabelServiceName]
	}
	names := s.AddressType == discoveryv1.AddressTypeFQDN
	if names && slim.Cluster != "" {
		warn("Ignored names of an imported EndpointSlice", "kind", "EndpointSlice", "namespace", s.Namespace, "name", s.Name, "value", "FQDN")
	}
	if slim.Service == "" || names && slim.Cluster != "" {
		return nil
	}
	for _, p := range s.Ports {
		if p.Port == nil {
			continue // without a number there is no SRV record
		}
		var name string
		var protocol corev1.Protocol
		if p.Name != nil {
			name = *p.Name
		}
		if p.Protocol != nil {
			protocol = *p.Protocol
		}
		port := ServicePort{Name: name, Protocol: string(protocol), Port: *p.Port}
		slim.Ports = Slimmer{Warn: warn}.appendPort(slim.Ports, port, "EndpointSlice", s.Namespace, s.Name)
	}
	var buf []byte
	for i := range s.Endpoints {
		e := o.endpoint(&s.Endpoints[i])
		ref := s.Endpoints[i].TargetRef
		e.Target = slim.Namespace == "default" && slim.Service == "kubernetes"
		if ref != nil && (ref.Kind == "Node" || ref.Kind == "Pod") {
			e.Target = ref.Kind == "Node" || ref.Namespace == "" || ref.Namespace == slim.Namespace
		}
		if e.Hostname != "" && len(validation.IsDNS1123Label(e.Hostname)) > 0 {
			warn("Ignored invalid hostname of an endpoint", "kind", "EndpointSlice", "namespace", s.Namespace, "name", s.Name, "value", e.Hostname)
			e.Hostname = ""
		}
		for _, name := range s.Endpoints[i].Addresses {
			if trimmed := strings.ToLower(strings.TrimSuffix(name, ".")); names && IsTarget(trimmed) {
				buf = cluster.AppendName(buf, trimmed, e)
			} else if names {
				warn("Ignored invalid name of an endpoint", "kind", "EndpointSlice", "namespace", s.Namespace, "name", s.Name, "value", name)
			}
		}
		if names {
			continue
		}
		for _, addr := range (Slimmer{Warn: warn}).addrs(s.Endpoints[i].Addresses, "EndpointSlice", s.Namespace, s.Name) {
			e.Addr = addr
			buf = cluster.AppendEndpoint(buf, e)
		}
	}
	slim.Endpoints = cluster.Endpoints(buf)
	return slim
}

// endpoint returns an endpoint without its addresses.
func (o oracle) endpoint(e *discoveryv1.Endpoint) cluster.Endpoint {
	slim := cluster.Endpoint{Ready: e.Conditions.Ready == nil || *e.Conditions.Ready}
	switch {
	case e.Hostname != nil && *e.Hostname != "":
		slim.Hostname = strings.ToLower(*e.Hostname)
	case o.PodNames && e.TargetRef != nil && e.TargetRef.Kind == "Pod":
		// A pod's name may be longer than a label, or be several labels.
		if name := e.TargetRef.Name; len(name) < maxPodName && !strings.Contains(name, ".") {
			slim.Hostname = strings.ToLower(name)
		}
	}
	if o.Zones && e.Zone != nil {
		slim.Zone = strings.ToLower(*e.Zone)
	}
	if o.Zones && o.Hints && e.Hints != nil && len(e.Hints.ForZones) > 0 {
		own := e.Zone != nil && slices.Contains(e.Hints.ForZones, discoveryv1.ForZone{Name: *e.Zone})
		if !own {
			slim.Zone = strings.ToLower(e.Hints.ForZones[0].Name)
		}
	}
	return slim
}

// pod returns nil for a Pod that has terminated, is terminating or has no
// address.
func (o oracle) pod(p *corev1.Pod) *cluster.Pod {
	switch p.Status.Phase {
	case corev1.PodSucceeded, corev1.PodFailed, corev1.PodUnknown:
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
	slim := &cluster.Pod{Namespace: intern(p.Namespace), Name: p.Name}
	slim.Host = p.Spec.HostNetwork
	if o.PodLabels {
		slim.Labels = cluster.NewLabels(p.Labels)
	}
	// The kubelet wrote these addresses: a warning would help no user.
	slim.IPs = Slimmer{Warn: func(string, ...any) {}}.addrs(ips, "Pod", p.Namespace, p.Name)
	if len(slim.IPs) == 0 {
		return nil
	}
	return slim
}

func (o oracle) node(n *corev1.Node) *cluster.Node {
	zone, region := n.Labels[corev1.LabelTopologyZone], n.Labels[corev1.LabelTopologyRegion]
	own := strings.ToLower(cmp.Or(zone, n.Labels[corev1.LabelFailureDomainBetaZone]))
	if zone == "" || region == "" {
		zone, region = n.Labels[corev1.LabelFailureDomainBetaZone], n.Labels[corev1.LabelFailureDomainBetaRegion]
	}
	if zone == "" || region == "" {
		return &cluster.Node{Name: n.Name, OwnZone: own}
	}
	return &cluster.Node{Name: n.Name, Zone: strings.ToLower(zone), Region: strings.ToLower(region), OwnZone: own}
}

func (o oracle) configMap(c *corev1.ConfigMap) *cluster.ConfigMap {
	if o.ConfigMap != "" && o.ConfigMapKey() != (cluster.Key{Namespace: c.Namespace, Name: c.Name}) {
		return nil
	}
	slim := &cluster.ConfigMap{Namespace: c.Namespace, Name: c.Name, Data: make(map[string]string, len(c.Data)+len(c.BinaryData))}
	if !c.CreationTimestamp.IsZero() {
		slim.Created = c.CreationTimestamp.Unix()
	}
	for key, value := range c.BinaryData {
		slim.Data[key] = string(value)
	}
	for key, value := range c.Data {
		slim.Data[key] = value
	}
	return slim
}
