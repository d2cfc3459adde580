package cluster

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// In a cluster, controllers make EndpointSlices of Endpoints and of Pods. In a
// folder nobody does, so it is done here by their rules. The names of such
// slices hold a slash, so that they are never those of others.

// endpoints are v1 Endpoints as far as the mirroring controller reads them;
// the API's own type is deprecated.
type endpoints struct {
	metav1.ObjectMeta `json:"metadata"`
	Subsets           []struct {
		Addresses         []endpointAddress `json:"addresses"`
		NotReadyAddresses []endpointAddress `json:"notReadyAddresses"`
		Ports             []struct {
			Name     string          `json:"name"`
			Protocol corev1.Protocol `json:"protocol"`
			Port     int32           `json:"port"`
		} `json:"ports"`
	} `json:"subsets"`
}

type endpointAddress struct {
	IP        string                  `json:"ip"`
	Hostname  *string                 `json:"hostname"`
	TargetRef *corev1.ObjectReference `json:"targetRef"`
}

// mirror makes a slice of each subset and family of e.
func mirror(e *endpoints) (out []*discoveryv1.EndpointSlice) {
	if e.Labels[discoveryv1.LabelSkipMirror] == "true" {
		return nil
	}
	for i, subset := range e.Subsets {
		var ports []discoveryv1.EndpointPort
		for _, p := range subset.Ports {
			ports = append(ports, discoveryv1.EndpointPort{Name: &p.Name, Protocol: &p.Protocol, Port: &p.Port})
		}
		byFamily := map[discoveryv1.AddressType][]discoveryv1.Endpoint{}
		add := func(addresses []endpointAddress, ready bool) {
			for _, a := range addresses {
				family := familyOf(a.IP)
				byFamily[family] = append(byFamily[family], discoveryv1.Endpoint{
					Addresses: []string{a.IP}, Hostname: a.Hostname, TargetRef: a.TargetRef,
					Conditions: discoveryv1.EndpointConditions{Ready: &ready},
				})
			}
		}
		add(subset.Addresses, true)
		add(subset.NotReadyAddresses, false)
		for _, family := range families() {
			if len(byFamily[family]) == 0 {
				continue
			}
			s := newSlice(e.ObjectMeta, fmt.Sprintf("endpoints/%d", i+1), e.Name, family)
			s.Annotations = e.Annotations
			s.Ports, s.Endpoints = ports, byFamily[family]
			out = append(out, s)
		}
	}
	return out
}

func families() []discoveryv1.AddressType {
	return []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6}
}

func familyOf(ip string) discoveryv1.AddressType {
	if addr, err := netip.ParseAddr(ip); err == nil && addr.Unmap().Is6() {
		return discoveryv1.AddressTypeIPv6
	}
	return discoveryv1.AddressTypeIPv4
}

// newSlice makes an empty slice of an object's Service. It has the object's
// labels, as a controller's slices have.
func newSlice(of metav1.ObjectMeta, from, service string, family discoveryv1.AddressType) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: of.Namespace,
			Name:      fmt.Sprintf("%s/%s/%s", of.Name, from, strings.ToLower(string(family))),
			Labels:    map[string]string{discoveryv1.LabelServiceName: service},
		},
		AddressType: family,
	}
}

// A folderPod is what makes endpoints of a Pod that is running.
type folderPod struct {
	Key
	labels   labels.Set
	ips      []netip.Addr
	hostname string // with its subdomain, which must be the Service's name
	subdom   string
	zone     string
	ready    bool
	ports    []corev1.ContainerPort // the named ones
}

func newFolderPod(p *corev1.Pod, ips []netip.Addr) *folderPod {
	f := &folderPod{
		Key: Key{p.Namespace, p.Name}, labels: p.Labels, ips: ips, ready: isReady(p),
		hostname: p.Spec.Hostname, subdom: p.Spec.Subdomain, zone: p.Labels[corev1.LabelTopologyZone],
	}
	containers := p.Spec.Containers
	for _, c := range p.Spec.InitContainers { // those that keep running are sidecars
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			containers = append(containers, c)
		}
	}
	for _, c := range containers {
		for _, port := range c.Ports {
			if port.Name != "" {
				f.ports = append(f.ports, corev1.ContainerPort{Name: port.Name, Protocol: port.Protocol, ContainerPort: port.ContainerPort})
			}
		}
	}
	return f
}

// isReady: a manifest that was written by hand has no conditions, and its
// author means the address that it gives.
func isReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return len(p.Status.Conditions) == 0
}

// A podIndex finds the Pods of a selector without asking each.
type podIndex map[podLabel][]*folderPod

type podLabel struct{ namespace, key, value string }

// newPodIndex wants the pods sorted: the slices have them in that order.
func newPodIndex(pods []*folderPod) podIndex {
	x := podIndex{}
	for _, p := range pods {
		for k, v := range p.labels {
			l := podLabel{p.Namespace, k, v}
			x[l] = append(x[l], p)
		}
	}
	return x
}

func (x podIndex) find(namespace string, selector map[string]string) (found []*folderPod) {
	var fewest []*folderPod
	first := true
	for k, v := range selector {
		if with := x[podLabel{namespace, k, v}]; first || len(with) < len(fewest) {
			fewest, first = with, false
		}
	}
	wanted := labels.SelectorFromSet(selector)
	for _, p := range fewest {
		if wanted.Matches(p.labels) {
			found = append(found, p)
		}
	}
	return found
}

// wantsPods says whether a controller would make slices for s.
func wantsPods(s *corev1.Service) bool {
	return len(s.Spec.Selector) > 0 && s.Spec.Type != corev1.ServiceTypeExternalName
}

// derive makes the slices of a Service from the pods it selects: one for each
// family and each set of ports, since a named port may be another number in
// every pod.
func derive(s *corev1.Service, pods []*folderPod) (out []*discoveryv1.EndpointSlice) {
	type group struct {
		family discoveryv1.AddressType
		ports  string
	}
	made := map[group]*discoveryv1.EndpointSlice{}
	for _, p := range pods {
		ports, text := p.resolve(s.Spec.Ports)
		for _, family := range families() {
			var addresses []string
			for _, ip := range p.ips {
				if familyOf(ip.String()) == family {
					addresses = append(addresses, ip.String())
				}
			}
			if len(addresses) == 0 || !hasFamily(s, family) {
				continue
			}
			g := group{family, text}
			if made[g] == nil {
				made[g] = newSlice(s.ObjectMeta, "pods"+text, s.Name, family)
				made[g].Ports = ports
				out = append(out, made[g])
			}
			made[g].Endpoints = append(made[g].Endpoints, p.endpoint(s, addresses[:1]))
		}
	}
	return out
}

func hasFamily(s *corev1.Service, family discoveryv1.AddressType) bool {
	return len(s.Spec.IPFamilies) == 0 || slices.Contains(s.Spec.IPFamilies, corev1.IPFamily(family))
}

func (p *folderPod) endpoint(s *corev1.Service, addresses []string) discoveryv1.Endpoint {
	ready := p.ready || s.Spec.PublishNotReadyAddresses
	e := discoveryv1.Endpoint{
		Addresses:  addresses,
		Conditions: discoveryv1.EndpointConditions{Ready: &ready},
		TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: p.Namespace, Name: p.Name},
	}
	if p.hostname != "" && p.subdom == s.Name {
		e.Hostname = &p.hostname
	}
	if p.zone != "" {
		e.Zone = &p.zone
	}
	return e
}

// resolve gives the Service's ports as this pod has them, and as text. A name
// that the pod lacks is left out.
func (p *folderPod) resolve(ports []corev1.ServicePort) (out []discoveryv1.EndpointPort, text string) {
	for _, port := range ports {
		protocol := cmp.Or(port.Protocol, corev1.ProtocolTCP)
		number := port.TargetPort.IntVal
		if port.TargetPort.Type == intstr.String {
			number = p.named(port.TargetPort.StrVal, protocol)
			if number == 0 {
				continue
			}
		} else if number == 0 {
			number = port.Port
		}
		out = append(out, discoveryv1.EndpointPort{Name: &port.Name, Protocol: &protocol, Port: &number})
		text += fmt.Sprintf("/%s-%d", strings.ToLower(string(protocol)), number)
	}
	return out, text
}

func (p *folderPod) named(name string, protocol corev1.Protocol) int32 {
	for _, port := range p.ports {
		if port.Name == name && cmp.Or(port.Protocol, corev1.ProtocolTCP) == protocol {
			return port.ContainerPort
		}
	}
	return 0
}
