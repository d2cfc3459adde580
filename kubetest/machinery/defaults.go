package machinery

import (
	"net/netip"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// These are the defaults and derived fields that readers of the API rely on.
// The real server sets many more; add the defaults that readers need.

// defaultNamespace sets the label by which selectors find a namespace by name.
func defaultNamespace(n *corev1.Namespace) {
	if n.Name == "" {
		return // its name has not been generated yet
	}
	if n.Labels == nil {
		n.Labels = map[string]string{}
	}
	n.Labels[corev1.LabelMetadataName] = n.Name
}

// prepareNamespace makes a namespace active; a generated name gets its label.
func prepareNamespace(n, _ *corev1.Namespace) {
	defaultNamespace(n)
	setDefault(&n.Status.Phase, corev1.NamespaceActive)
}

func defaultPod(p *corev1.Pod) {
	setDefault(&p.Spec.RestartPolicy, corev1.RestartPolicyAlways)
	setDefault(&p.Spec.DNSPolicy, corev1.DNSClusterFirst)
	for i := range p.Spec.Containers {
		ports := p.Spec.Containers[i].Ports
		for j := range ports {
			setDefault(&ports[j].Protocol, corev1.ProtocolTCP)
		}
	}
}

// preparePod keeps podIP and podIPs in agreement; if they disagree, podIP wins.
func preparePod(p, _ *corev1.Pod) {
	s := &p.Status
	setDefault(&s.Phase, corev1.PodPending)
	switch {
	case s.PodIP == "" && len(s.PodIPs) > 0:
		s.PodIP = s.PodIPs[0].IP
	case s.PodIP != "" && (len(s.PodIPs) == 0 || s.PodIPs[0].IP != s.PodIP):
		s.PodIPs = []corev1.PodIP{{IP: s.PodIP}}
	}
}

func defaultService(s *corev1.Service) {
	setDefault(&s.Spec.Type, corev1.ServiceTypeClusterIP)
	setDefault(&s.Spec.SessionAffinity, corev1.ServiceAffinityNone)
	if s.Spec.Type != corev1.ServiceTypeExternalName && s.Spec.InternalTrafficPolicy == nil {
		policy := corev1.ServiceInternalTrafficPolicyCluster
		s.Spec.InternalTrafficPolicy = &policy
	}
	for i := range s.Spec.Ports {
		p := &s.Spec.Ports[i]
		setDefault(&p.Protocol, corev1.ProtocolTCP)
		if p.TargetPort == intstr.FromInt32(0) || p.TargetPort == intstr.FromString("") {
			p.TargetPort = intstr.FromInt32(p.Port)
		}
	}
}

// prepareService keeps clusterIP and clusterIPs in agreement. A client that knows
// only clusterIP returns clusterIPs unchanged, so if only one of them changed, the
// other is derived from it. The families are derived from the addresses.
func prepareService(s, old *corev1.Service) {
	spec := &s.Spec
	if spec.Type == corev1.ServiceTypeExternalName {
		spec.ClusterIP, spec.ClusterIPs, spec.IPFamilies, spec.IPFamilyPolicy = "", nil, nil, nil
		return
	}

	if old != nil && spec.ClusterIP != old.Spec.ClusterIP && slices.Equal(spec.ClusterIPs, old.Spec.ClusterIPs) {
		spec.ClusterIPs, spec.IPFamilies, spec.IPFamilyPolicy = nil, nil, nil
	}
	if len(spec.ClusterIPs) == 0 && spec.ClusterIP != "" {
		spec.ClusterIPs = []string{spec.ClusterIP}
	}
	if spec.ClusterIP == "" && len(spec.ClusterIPs) > 0 {
		spec.ClusterIP = spec.ClusterIPs[0]
	}

	if len(spec.IPFamilies) == 0 {
		spec.IPFamilies = families(spec.ClusterIPs)
	}

	if spec.IPFamilyPolicy == nil && len(spec.IPFamilies) > 0 {
		policy := corev1.IPFamilyPolicySingleStack
		if len(spec.IPFamilies) > 1 {
			policy = corev1.IPFamilyPolicyRequireDualStack
		}
		spec.IPFamilyPolicy = &policy
	}
}

// families returns the IP family of each cluster IP. The headless "None" has the
// family of a single-stack cluster, IPv4.
func families(ips []string) []corev1.IPFamily {
	var fs []corev1.IPFamily
	for _, ip := range ips {
		addr, err := netip.ParseAddr(ip)
		if err == nil && addr.Is6() {
			fs = append(fs, corev1.IPv6Protocol)
		} else {
			fs = append(fs, corev1.IPv4Protocol)
		}
	}
	return fs
}

//lint:ignore SA1019 the real server serves it
func defaultEndpoints(e *corev1.Endpoints) {
	for i := range e.Subsets {
		for j := range e.Subsets[i].Ports {
			setDefault(&e.Subsets[i].Ports[j].Protocol, corev1.ProtocolTCP)
		}
	}
}

// defaultEndpointSlice sets the name of unnamed ports to "" and their protocol to
// TCP: readers dereference both pointers.
func defaultEndpointSlice(e *discoveryv1.EndpointSlice) {
	for i := range e.Ports {
		p := &e.Ports[i]
		if p.Name == nil {
			p.Name = new("")
		}
		if p.Protocol == nil {
			p.Protocol = new(corev1.ProtocolTCP)
		}
	}
}

func defaultDeployment(d *appsv1.Deployment) {
	if d.Spec.Replicas == nil {
		d.Spec.Replicas = new(int32(1))
	}
}

// prepareDeployment increments the generation when the specification changes. A controller
// compares it with status.observedGeneration.
func prepareDeployment(d, old *appsv1.Deployment) {
	switch {
	case old == nil:
		d.Generation = 1
	case equality.Semantic.DeepEqual(d.Spec, old.Spec):
		d.Generation = old.Generation
	default:
		d.Generation = old.Generation + 1
	}
}

// setDefault sets *p if it has no value.
func setDefault[T comparable](p *T, value T) {
	var zero T
	if *p == zero {
		*p = value
	}
}
