package cluster

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// A serviceImport is a ServiceImport of the Multi-Cluster Services API as far
// as DNS reads it. The API's own Go module would bring its whole client for
// these few fields.
type serviceImport struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Type  string   `json:"type"` // ClusterSetIP or Headless
		IPs   []string `json:"ips"`
		Ports []struct {
			Name     string          `json:"name"`
			Protocol corev1.Protocol `json:"protocol"`
			Port     int32           `json:"port"`
		} `json:"ports"`
	} `json:"spec"`
}

type serviceImportList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []serviceImport `json:"items"`
}

// DeepCopyObject makes a shallow copy: nothing here changes an object that it
// has decoded.
func (s *serviceImport) DeepCopyObject() runtime.Object { c := *s; return &c }

// DeepCopyObject makes a shallow copy, for the same reason.
func (l *serviceImportList) DeepCopyObject() runtime.Object { c := *l; return &c }
