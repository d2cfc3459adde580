package simulation

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The API server sends protobuf or JSON.
const (
	jsonType     = "application/json"
	protobufType = "application/vnd.kubernetes.protobuf"
)

// An apiObject is an object in the types of the API.
type apiObject interface {
	runtime.Object
	metav1.Object
	Marshal() ([]byte, error)
}

func (r resource) kind() string {
	return [...]string{"Namespace", "Service", "EndpointSlice", "Pod"}[r]
}

func (r resource) apiVersion() string {
	return [...]string{"v1", "v1", "discovery.k8s.io/v1", "v1"}[r]
}

// api returns the object as the API server has it.
func (o *object) api(r resource, version int) apiObject {
	meta := metav1.ObjectMeta{Namespace: o.namespace, Name: o.name, ResourceVersion: strconv.Itoa(version), Labels: map[string]string{}}
	if o.front {
		meta.Labels["tier"] = "front"
	}
	switch r {
	case namespaces:
		return &corev1.Namespace{ObjectMeta: meta}
	case pods:
		return &corev1.Pod{ObjectMeta: meta, Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: o.address, PodIPs: []corev1.PodIP{{IP: o.address}}}}
	case services:
		s := &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, ClusterIP: o.clusterIP, ClusterIPs: []string{o.clusterIP}}}
		for _, p := range o.ports {
			s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: p.name, Protocol: corev1.ProtocolTCP, Port: int32(p.port)})
		}
		switch {
		case o.externalName != "":
			s.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: o.externalName}
		case o.clusterIP == "":
			s.Spec.ClusterIP, s.Spec.ClusterIPs = corev1.ClusterIPNone, []string{corev1.ClusterIPNone}
		}
		return s
	}
	meta.Labels[discoveryv1.LabelServiceName] = o.service
	s := &discoveryv1.EndpointSlice{ObjectMeta: meta, AddressType: discoveryv1.AddressTypeIPv4}
	for _, p := range o.ports {
		s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: &p.name, Protocol: new(corev1.ProtocolTCP), Port: new(int32(p.port))})
	}
	for _, e := range o.endpoints {
		out := discoveryv1.Endpoint{Addresses: []string{e.address}, Conditions: discoveryv1.EndpointConditions{Ready: &e.ready}}
		if e.hostname != "" {
			out.Hostname = &e.hostname
		}
		s.Endpoints = append(s.Endpoints, out)
	}
	return s
}

// encode returns an object in a content type.
func encode(contentType, apiVersion, kind string, o interface {
	runtime.Object
	Marshal() ([]byte, error)
}) []byte {
	if contentType == jsonType {
		o.GetObjectKind().SetGroupVersionKind(schema.FromAPIVersionAndKind(apiVersion, kind))
		return must(json.Marshal(o))
	}
	return envelope(apiVersion, kind, must(o.Marshal()))
}

// envelope returns an encoded object as the API server sends it in protobuf.
func envelope(apiVersion, kind string, raw []byte) []byte {
	u := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: apiVersion, Kind: kind}, Raw: raw}
	return append([]byte("k8s\x00"), must(u.Marshal())...)
}

// encodeList returns a list of objects.
func encodeList(contentType string, r resource, version int, objects []*object) []byte {
	if contentType == jsonType {
		var items []string
		for _, o := range objects {
			items = append(items, string(must(json.Marshal(o.api(r, o.version)))))
		}
		return fmt.Appendf(nil, `{"kind":"%sList","apiVersion":%q,"metadata":{"resourceVersion":"%d"},"items":[%s]}`, r.kind(), r.apiVersion(), version, strings.Join(items, ","))
	}
	var list []byte
	field := func(number byte, value []byte) {
		list = append(binary.AppendUvarint(append(list, number<<3|2), uint64(len(value))), value...)
	}
	meta := metav1.ListMeta{ResourceVersion: strconv.Itoa(version)}
	field(1, must(meta.Marshal()))
	for _, o := range objects {
		field(2, must(o.api(r, o.version).Marshal()))
	}
	return envelope(r.apiVersion(), r.kind()+"List", list)
}

// encodeEvent returns the event of a watch.
func encodeEvent(contentType, event string, object []byte) []byte {
	if contentType == jsonType {
		return fmt.Appendf(nil, `{"type":%q,"object":%s}`+"\n", event, object)
	}
	e := metav1.WatchEvent{Type: event, Object: runtime.RawExtension{Raw: object}}
	raw := must(e.Marshal())
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(raw))), raw...)
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
