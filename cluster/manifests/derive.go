package manifests

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/cluster/api"
)

// In a cluster, controllers create EndpointSlices from Endpoints and Pods. For a folder
// this file does so, by the same rules. The names of these slices have a slash, so they
// never collide with others.

// endpoints has the fields of v1 Endpoints that the mirroring controller uses.
type endpoints struct {
	api.Meta `json:"metadata"`
	Subsets  []struct {
		Addresses         []endpointAddress `json:"addresses"`
		NotReadyAddresses []endpointAddress `json:"notReadyAddresses"`
		Ports             []struct {
			Name     string `json:"name"`
			Protocol string `json:"protocol"`
			Port     int32  `json:"port"`
		} `json:"ports"`
	} `json:"subsets"`
}

type endpointAddress struct {
	IP        string               `json:"ip"`
	Hostname  *string              `json:"hostname"`
	TargetRef *api.ObjectReference `json:"targetRef"`
}

// mirror returns a slice for each subset and address family of e.
func mirror(e *endpoints) (out []*api.EndpointSlice) {
	if e.Labels[api.LabelSkipMirror] == "true" {
		return nil
	}
	for i, subset := range e.Subsets {
		var ports []api.EndpointPort
		for _, p := range subset.Ports {
			ports = append(ports, api.EndpointPort{Name: &p.Name, Protocol: &p.Protocol, Port: &p.Port})
		}

		byFamily := map[string][]api.Endpoint{}
		add := func(addresses []endpointAddress, ready bool) {
			for _, a := range addresses {
				family := familyOf(a.IP)
				byFamily[family] = append(byFamily[family], api.Endpoint{
					Addresses: []string{a.IP}, Hostname: a.Hostname, TargetRef: a.TargetRef,
					Conditions: api.EndpointConditions{Ready: &ready},
				})
			}
		}
		add(subset.Addresses, true)
		add(subset.NotReadyAddresses, false)

		for _, family := range families() {
			if len(byFamily[family]) == 0 {
				continue
			}
			key := cluster.Key{Namespace: e.Namespace, Name: e.Name}
			s := newSlice(key, fmt.Sprintf("endpoints/%d", i+1), e.Name, family)
			s.Ports, s.Endpoints = ports, byFamily[family]
			out = append(out, s)
		}
	}
	return out
}

func families() []string {
	return []string{api.AddressIPv4, api.AddressIPv6}
}

func familyOf(ip string) string {
	if addr, err := netip.ParseAddr(ip); err == nil && addr.Unmap().Is6() {
		return api.AddressIPv6
	}
	return api.AddressIPv4
}

// newSlice returns an empty slice of a Service. key is the object that it is made from.
func newSlice(key cluster.Key, from, service string, family string) *api.EndpointSlice {
	return &api.EndpointSlice{
		Meta: api.Meta{
			Namespace: key.Namespace,
			Name:      fmt.Sprintf("%s/%s/%s", key.Name, from, strings.ToLower(family)),
			Labels:    map[string]string{api.LabelServiceName: service},
		},
		AddressType: family,
	}
}

// A folderPod has the fields of a running Pod that make an endpoint.
type folderPod struct {
	cluster.Key
	labels   labels.Set
	ips      []netip.Addr
	hostname string // used if subdom is the Service's name
	subdom   string
	zone     string
	ready    bool
	ports    []api.ContainerPort // the named ones
}

func newFolderPod(p *api.Pod, ips []netip.Addr) *folderPod {
	f := &folderPod{
		Key: cluster.Key{Namespace: p.Namespace, Name: p.Name}, labels: p.Labels, ips: ips, ready: isReady(p),
		hostname: p.Spec.Hostname, subdom: p.Spec.Subdomain, zone: p.Labels[api.LabelZone],
	}
	containers := p.Spec.Containers
	for _, c := range p.Spec.InitContainers { // sidecars have the restart policy Always
		if c.RestartPolicy != nil && *c.RestartPolicy == "Always" {
			containers = append(containers, c)
		}
	}
	for _, c := range containers {
		for _, port := range c.Ports {
			if port.Name != "" {
				f.ports = append(f.ports, port)
			}
		}
	}
	return f
}

// isReady reports whether a Pod is ready. A manifest written by hand has no conditions
// and counts as ready.
func isReady(p *api.Pod) bool {
	return len(p.Status.Conditions) == 0 || p.Status.Conditions.Ready()
}

// A podIndex finds the Pods of a selector without testing all Pods.
type podIndex map[podLabel][]*folderPod

type podLabel struct{ namespace, key, value string }

// newPodIndex requires sorted pods: the slices have the same order.
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

// A folderService has the fields of a Service for slices made from Pods and for the
// allocation of an address.
type folderService struct {
	cluster.Key
	address         bool              // a cluster would allocate a ClusterIP
	selector        map[string]string // empty if no controller would create slices
	publishNotReady bool
	families        []string
	ports           []api.ServicePort
}

// newFolderService returns nil for a Service that needs neither slices nor an address.
// An invalid ClusterIP does not count as missing.
func newFolderService(s *api.Service) *folderService {
	f := &folderService{
		Key:             cluster.Key{Namespace: s.Namespace, Name: s.Name},
		address:         s.Spec.ClusterIP == "",
		selector:        s.Spec.Selector,
		publishNotReady: s.Spec.PublishNotReadyAddresses,
		families:        s.Spec.IPFamilies,
		ports:           s.Spec.Ports,
	}
	if s.Spec.Type == api.TypeExternalName || !f.address && len(f.selector) == 0 {
		return nil
	}
	return f
}

// derive returns the slices of a Service for the pods that it selects: one for each
// address family and set of ports, since a named port may have another number in every
// pod, or be missing.
func derive(s *folderService, pods []*folderPod) (out []*api.EndpointSlice) {
	type group struct {
		family string
		ports  string
	}
	made := map[group]*api.EndpointSlice{}
	for _, p := range pods {
		ports, text := p.resolve(s.ports)
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
				made[g] = newSlice(s.Key, "pods"+text, s.Name, family)
				made[g].Ports = ports
				out = append(out, made[g])
			}
			made[g].Endpoints = append(made[g].Endpoints, p.endpoint(s, addresses[:1]))
		}
	}
	return out
}

func hasFamily(s *folderService, family string) bool {
	return len(s.families) == 0 || slices.Contains(s.families, family)
}

func (p *folderPod) endpoint(s *folderService, addresses []string) api.Endpoint {
	ready := p.ready || s.publishNotReady
	e := api.Endpoint{
		Addresses:  addresses,
		Conditions: api.EndpointConditions{Ready: &ready},
		TargetRef:  &api.ObjectReference{Kind: "Pod", Name: p.Name},
	}
	if p.hostname != "" && p.subdom == s.Name {
		e.Hostname = &p.hostname
	}
	if p.zone != "" {
		e.Zone = &p.zone
	}
	return e
}

// resolve returns the Service's ports with this pod's numbers, and the same as text. A
// named port that the pod does not have is left out.
func (p *folderPod) resolve(ports []api.ServicePort) (out []api.EndpointPort, text string) {
	for _, port := range ports {
		protocol := cmp.Or(port.Protocol, "TCP")
		number := port.TargetPort.IntVal
		if port.TargetPort.Type == intstr.String {
			number = p.named(port.TargetPort.StrVal, protocol)
			if number == 0 {
				continue
			}
		} else if number == 0 {
			number = port.Port
		}
		out = append(out, api.EndpointPort{Name: &port.Name, Protocol: &protocol, Port: &number})
		text += strings.TrimSuffix(fmt.Sprintf("/%s-%d-%s", strings.ToLower(protocol), number, port.Name), "-")
	}
	return out, text
}

func (p *folderPod) named(name string, protocol string) int32 {
	for _, port := range p.ports {
		if port.Name == name && cmp.Or(port.Protocol, "TCP") == protocol {
			return port.ContainerPort
		}
	}
	return 0
}
