package cluster

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// The types of this file are the API's objects, with the fields that are used here.
// Protobuf is decoded into the same types (protobuf.go). The types of k8s.io/api
// would add all of Kubernetes to the binary and every field to the heap.

func coreVersion() schema.GroupVersion { return schema.GroupVersion{Version: "v1"} }

func slicesVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: "discovery.k8s.io", Version: "v1"}
}

func importsVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: "multicluster.x-k8s.io", Version: "v1alpha1"}
}

// Labels and annotations of the API.
const (
	labelServiceName   = "kubernetes.io/service-name"
	labelSkipMirror    = "endpointslice.kubernetes.io/skip-mirror"
	labelNamespaceName = "kubernetes.io/metadata.name"
	labelZone          = "topology.kubernetes.io/zone"
	// Labels of the Multi-Cluster Services API (KEP-1645) on an EndpointSlice
	// imported from another cluster.
	labelImportService = "multicluster.kubernetes.io/service-name"
	labelImportCluster = "multicluster.kubernetes.io/source-cluster"
	// annotationChanged is the time of the change that caused an EndpointSlice's.
	annotationChanged = "endpoints.kubernetes.io/last-change-trigger-time"
)

// Values of the API.
const (
	typeExternalName = "ExternalName" // of a Service
	addressFQDN      = "FQDN"         // address types of an EndpointSlice
	addressIPv4      = "IPv4"
	addressIPv6      = "IPv6"
)

// apiMeta is the metadata of every object.
type apiMeta struct {
	Name              string            `json:"name"`
	Namespace         string            `json:"namespace"`
	ResourceVersion   string            `json:"resourceVersion"`
	DeletionTimestamp *metav1.Time      `json:"deletionTimestamp"`
	Labels            map[string]string `json:"labels"`
	Annotations       map[string]string `json:"annotations"`
}

// meta returns the metadata of any object.
func (m *apiMeta) meta() *apiMeta { return m }

type apiNamespace struct {
	apiMeta `json:"metadata"`
}

type apiNode struct {
	apiMeta `json:"metadata"`
}

type apiService struct {
	apiMeta `json:"metadata"`
	Spec    struct {
		Type                     string            `json:"type"`
		ClusterIP                string            `json:"clusterIP"`
		ClusterIPs               []string          `json:"clusterIPs"`
		ExternalName             string            `json:"externalName"`
		ExternalIPs              []string          `json:"externalIPs"`
		Selector                 map[string]string `json:"selector"`
		PublishNotReadyAddresses bool              `json:"publishNotReadyAddresses"`
		IPFamilies               []string          `json:"ipFamilies"`
		Ports                    []apiServicePort  `json:"ports"`
	} `json:"spec"`
	Status struct {
		LoadBalancer struct {
			Ingress []apiIngress `json:"ingress"`
		} `json:"loadBalancer"`
	} `json:"status"`
}

type apiServicePort struct {
	Name       string             `json:"name"`
	Protocol   string             `json:"protocol"`
	Port       int32              `json:"port"`
	TargetPort intstr.IntOrString `json:"targetPort"`
}

type apiIngress struct {
	IP       string `json:"ip"`
	Hostname string `json:"hostname"`
}

type apiSlice struct {
	apiMeta     `json:"metadata"`
	AddressType string        `json:"addressType"`
	Ports       []apiPort     `json:"ports"`
	Endpoints   []apiEndpoint `json:"endpoints"`
}

type apiPort struct {
	Name     *string `json:"name"`
	Protocol *string `json:"protocol"`
	Port     *int32  `json:"port"`
}

type apiEndpoint struct {
	Addresses  []string      `json:"addresses"`
	Conditions apiConditions `json:"conditions"`
	Hostname   *string       `json:"hostname"`
	TargetRef  *apiTarget    `json:"targetRef"`
	Zone       *string       `json:"zone"`
}

type apiConditions struct {
	Ready *bool `json:"ready"`
}

type apiTarget struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
}

type apiPod struct {
	apiMeta `json:"metadata"`
	Spec    struct {
		HostNetwork    bool           `json:"hostNetwork"`
		Hostname       string         `json:"hostname"`
		Subdomain      string         `json:"subdomain"`
		Containers     []apiContainer `json:"containers"`
		InitContainers []apiContainer `json:"initContainers"`
	} `json:"spec"`
	Status struct {
		Phase      string         `json:"phase"`
		PodIP      string         `json:"podIP"`
		PodIPs     []apiPodIP     `json:"podIPs"`
		Conditions []apiCondition `json:"conditions"`
	} `json:"status"`
}

type apiPodIP struct {
	IP string `json:"ip"`
}

type apiCondition struct {
	Type   string `json:"type"`
	Status string `json:"status"`
}

type apiContainer struct {
	RestartPolicy *string            `json:"restartPolicy"`
	Ports         []apiContainerPort `json:"ports"`
}

type apiContainerPort struct {
	Name          string `json:"name"`
	Protocol      string `json:"protocol"`
	ContainerPort int32  `json:"containerPort"`
}

type apiConfigMap struct {
	apiMeta    `json:"metadata"`
	Data       map[string]string `json:"data"`
	BinaryData map[string][]byte `json:"binaryData"`
}

// An apiServiceImport is an object of the Multi-Cluster Services API. As a custom
// resource it is sent as JSON only.
type apiServiceImport struct {
	apiMeta `json:"metadata"`
	Spec    struct {
		Type  string   `json:"type"` // ClusterSetIP or Headless
		IPs   []string `json:"ips"`
		Ports []struct {
			Name     string `json:"name"`
			Protocol string `json:"protocol"`
			Port     int32  `json:"port"`
		} `json:"ports"`
	} `json:"spec"`
}
