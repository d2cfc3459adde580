package machinery

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// importVersion returns the group of ServiceImport with a version of it: v1alpha1 or v1beta1.
func importVersion(version string) schema.GroupVersion {
	return schema.GroupVersion{Group: "multicluster.x-k8s.io", Version: version}
}

// A ServiceImport is a Service that other clusters of the clusterset export,
// as the multi-cluster Services API defines it (KEP-1645), reduced to the fields
// that a DNS server reads. It is served as a custom resource: in JSON and YAML.
type ServiceImport struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              ServiceImportSpec   `json:"spec,omitempty"`
	Status            ServiceImportStatus `json:"status,omitempty"`
}

// ServiceImportSpec has the addresses and ports of the imported Service.
type ServiceImportSpec struct {
	Type  string              `json:"type"`          // "ClusterSetIP" or "Headless"
	IPs   []string            `json:"ips,omitempty"` // the clusterset IPs; none if headless
	Ports []ServiceImportPort `json:"ports"`
}

// ServiceImportPort is a port of an imported Service.
type ServiceImportPort struct {
	Name        string          `json:"name,omitempty"`
	Protocol    corev1.Protocol `json:"protocol,omitempty"`
	AppProtocol *string         `json:"appProtocol,omitempty"`
	Port        int32           `json:"port"`
}

// ServiceImportStatus lists the exporting clusters.
type ServiceImportStatus struct {
	Clusters []ServiceImportCluster `json:"clusters,omitempty"`
}

// ServiceImportCluster is a cluster that exports the Service.
type ServiceImportCluster struct {
	Cluster string `json:"cluster"`
}

// ServiceImportList is a list of ServiceImports.
type ServiceImportList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ServiceImport `json:"items"`
}

// DeepCopy returns a copy that shares nothing with s.
func (s *ServiceImport) DeepCopy() *ServiceImport {
	c := *s
	s.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	c.Spec.IPs = slices.Clone(s.Spec.IPs)
	c.Spec.Ports = slices.Clone(s.Spec.Ports)
	for i, p := range c.Spec.Ports {
		if p.AppProtocol != nil {
			c.Spec.Ports[i].AppProtocol = new(*p.AppProtocol)
		}
	}
	c.Status.Clusters = slices.Clone(s.Status.Clusters)
	return &c
}

// DeepCopyObject implements runtime.Object.
func (s *ServiceImport) DeepCopyObject() runtime.Object { return s.DeepCopy() }

// DeepCopyObject returns a copy that shares nothing with l.
func (l *ServiceImportList) DeepCopyObject() runtime.Object {
	c := *l
	l.ListMeta.DeepCopyInto(&c.ListMeta)
	c.Items = slices.Clone(l.Items)
	for i := range l.Items {
		c.Items[i] = *l.Items[i].DeepCopy()
	}
	return &c
}

// OpenAPIModelName returns the name of the type in API descriptions.
func (ServiceImport) OpenAPIModelName() string { return "io.x-k8s.multicluster.v1alpha1.ServiceImport" }

// OpenAPIModelName returns the name of the type in API descriptions.
func (ServiceImportList) OpenAPIModelName() string {
	return "io.x-k8s.multicluster.v1alpha1.ServiceImportList"
}
