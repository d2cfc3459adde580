// Package api decodes the objects of the Kubernetes API, in JSON and protobuf, and slims
// them to the objects of package cluster.
//
// Its types have only the fields that are used (types.go). A Slimmer validates these and
// makes slim objects of them (slim.go); an EndpointSlice in protobuf is packed as it is
// decoded (slice.go), since a cluster has more endpoints than anything else. A Resource
// describes how a kind is requested from an API server, and decodes it (resources.go).
// Package manifests decodes JSON into the types and uses the Slimmer alone.
package api

import (
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/seamark/seamark/cluster"
)

// The types of this file are the API's objects, with the fields that are used here. The
// types of k8s.io/api would add all of Kubernetes to the binary and every field to the
// heap.

// Versions returns the group and the versions in which objects of a kind are read, the newest first. The
// fields that are read are the same in all.
func Versions(k cluster.Kind) (versions []schema.GroupVersion) {
	group, names := "", []string{"v1"}
	switch k {
	case cluster.Slices, cluster.ImportSlices:
		group = "discovery.k8s.io"
	case cluster.Imports:
		group, names = "multicluster.x-k8s.io", []string{"v1beta1", "v1alpha1"}
	case cluster.DNSEndpoints:
		group, names = "externaldns.k8s.io", []string{"v1alpha1"}
	case cluster.Gateways, cluster.HTTPRoutes:
		group, names = GatewayGroup, []string{"v1", "v1beta1"}
	case cluster.ListenerSets:
		group = GatewayGroup
	case cluster.GRPCRoutes:
		group, names = GatewayGroup, []string{"v1", "v1alpha2"}
	case cluster.TLSRoutes:
		group, names = GatewayGroup, []string{"v1", "v1alpha3", "v1alpha2"}
	case cluster.Ingresses:
		group = "networking.k8s.io"
	case cluster.NetworkPolicies:
		group, names = "policy.networking.k8s.io", []string{"v1beta1", "v1alpha2"}
	}
	for _, version := range names {
		versions = append(versions, schema.GroupVersion{Group: group, Version: version})
	}
	return versions
}

// Labels and annotations of the API.
const (
	LabelServiceName   = "kubernetes.io/service-name"
	LabelSkipMirror    = "endpointslice.kubernetes.io/skip-mirror"
	LabelNamespaceName = "kubernetes.io/metadata.name"
	LabelZone          = "topology.kubernetes.io/zone"
	// Labels of the Multi-Cluster Services API (KEP-1645) on an EndpointSlice
	// imported from another cluster.
	LabelImportService = "multicluster.kubernetes.io/service-name"
	LabelImportCluster = "multicluster.kubernetes.io/source-cluster"
	// annotationChanged is the time of the change that caused an EndpointSlice's.
	annotationChanged = "endpoints.kubernetes.io/last-change-trigger-time"
)

// Values of the API.
const (
	TypeExternalName = "ExternalName" // of a Service
	typeLoadBalancer = "LoadBalancer"
	addressFQDN      = "FQDN" // address types of an EndpointSlice
	AddressIPv4      = "IPv4"
	AddressIPv6      = "IPv6"
)

// Meta is the metadata of every object.
type Meta struct {
	Name              string            `json:"name"`
	Namespace         string            `json:"namespace"`
	ResourceVersion   string            `json:"resourceVersion"`
	CreationTimestamp Seconds           `json:"creationTimestamp"`
	DeletionTimestamp *metav1.Time      `json:"deletionTimestamp"`
	Labels            map[string]string `json:"labels"`
	Annotations       map[string]string `json:"annotations"`
	Owners            []OwnerReference  `json:"ownerReferences"`
}

// Seconds is a time in seconds since 1970. A time in JSON that is invalid is zero: an API server
// sends none, and a file may have any.
type Seconds int64

// UnmarshalJSON implements json.Unmarshaler.
func (s *Seconds) UnmarshalJSON(text []byte) error {
	*s = 0
	if at, err := time.Parse(time.RFC3339, strings.Trim(string(text), `"`)); err == nil {
		*s = Seconds(at.Unix())
	}
	return nil
}

// Metadata returns the metadata of any object.
func (m *Meta) Metadata() *Meta { return m }

type Namespace struct {
	Meta `json:"metadata"`
}

type Node struct {
	Meta `json:"metadata"`
}

type Service struct {
	Meta `json:"metadata"`
	Spec struct {
		Type                     string            `json:"type"`
		ClusterIP                string            `json:"clusterIP"`
		ClusterIPs               []string          `json:"clusterIPs"`
		ExternalName             string            `json:"externalName"`
		ExternalIPs              []string          `json:"externalIPs"`
		Selector                 map[string]string `json:"selector"`
		PublishNotReadyAddresses bool              `json:"publishNotReadyAddresses"`
		IPFamilies               []string          `json:"ipFamilies"`
		Ports                    []ServicePort     `json:"ports"`
	} `json:"spec"`
	Status struct {
		LoadBalancer struct {
			Ingress []Ingress `json:"ingress"`
		} `json:"loadBalancer"`
	} `json:"status"`
}

type ServicePort struct {
	Name       string             `json:"name"`
	Protocol   string             `json:"protocol"`
	Port       int32              `json:"port"`
	TargetPort intstr.IntOrString `json:"targetPort"`
}

type Ingress struct {
	IP       string `json:"ip"`
	Hostname string `json:"hostname"`
}

type EndpointSlice struct {
	Meta        `json:"metadata"`
	AddressType string         `json:"addressType"`
	Ports       []EndpointPort `json:"ports"`
	Endpoints   []Endpoint     `json:"endpoints"`
}

type EndpointPort struct {
	Name     *string `json:"name"`
	Protocol *string `json:"protocol"`
	Port     *int32  `json:"port"`
}

type Endpoint struct {
	Addresses  []string           `json:"addresses"`
	Conditions EndpointConditions `json:"conditions"`
	Hostname   *string            `json:"hostname"`
	TargetRef  *ObjectReference   `json:"targetRef"`
	Zone       *string            `json:"zone"`
	Hints      *EndpointHints     `json:"hints"`
}

// EndpointHints name the topology zones whose clients should use an endpoint.
type EndpointHints struct {
	ForZones []ForZone `json:"forZones"`
}

type ForZone struct {
	Name string `json:"name"`
}

type EndpointConditions struct {
	Ready *bool `json:"ready"`
}

type ObjectReference struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

type Pod struct {
	Meta `json:"metadata"`
	Spec struct {
		HostNetwork    bool        `json:"hostNetwork"`
		NodeName       string      `json:"nodeName"`
		Hostname       string      `json:"hostname"`
		Subdomain      string      `json:"subdomain"`
		Containers     []Container `json:"containers"`
		InitContainers []Container `json:"initContainers"`
	} `json:"spec"`
	Status struct {
		Phase      string     `json:"phase"`
		PodIP      string     `json:"podIP"`
		PodIPs     []PodIP    `json:"podIPs"`
		Conditions Conditions `json:"conditions"`
	} `json:"status"`
}

type PodIP struct {
	IP string `json:"ip"`
}

type Container struct {
	RestartPolicy *string         `json:"restartPolicy"`
	Ports         []ContainerPort `json:"ports"`
}

type ContainerPort struct {
	Name          string `json:"name"`
	Protocol      string `json:"protocol"`
	ContainerPort int32  `json:"containerPort"`
}

type ConfigMap struct {
	Meta       `json:"metadata"`
	Data       map[string]string `json:"data"`
	BinaryData map[string][]byte `json:"binaryData"`
}

// A ServiceImport is an object of the Multi-Cluster Services API. As a custom
// resource it is sent as JSON only.
type ServiceImport struct {
	Meta `json:"metadata"`
	Spec struct {
		Type  string   `json:"type"` // ClusterSetIP or Headless
		IPs   []string `json:"ips"`
		Ports []struct {
			Name     string `json:"name"`
			Protocol string `json:"protocol"`
			Port     int32  `json:"port"`
		} `json:"ports"`
	} `json:"spec"`
}

// A DNSEndpoint is an object of ExternalDNS. As a custom resource it is sent as JSON only.
type DNSEndpoint struct {
	Meta `json:"metadata"`
	Spec struct {
		Endpoints []EndpointRecords `json:"endpoints"`
	} `json:"spec"`
}

type EndpointRecords struct {
	DNSName       string   `json:"dnsName"`
	RecordType    string   `json:"recordType"`
	SetIdentifier string   `json:"setIdentifier"`
	RecordTTL     int64    `json:"recordTTL"`
	Targets       []string `json:"targets"`
}
