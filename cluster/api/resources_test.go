package api

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/seamark/seamark/cluster"
)

// A typedObject is one of the API's own types.
type typedObject interface {
	runtime.Object
	metav1.Object
	Marshal() ([]byte, error)
}

func resourceOf(o cluster.Options, kind cluster.Kind, warn func(msg string, attrs ...any)) Resource {
	resources := Slimmer{o, warn}.Resources()
	return resources[slices.IndexFunc(resources, func(r Resource) bool { return r.Kinds[0] == kind })]
}

func kindOf(object runtime.Object) cluster.Kind {
	switch object.(type) {
	case *corev1.Namespace:
		return cluster.Namespaces
	case *corev1.Service:
		return cluster.Services
	case *discoveryv1.EndpointSlice:
		return cluster.Slices
	case *corev1.Pod:
		return cluster.Pods
	case *corev1.Node:
		return cluster.Nodes
	}
	return cluster.ConfigMaps
}

// slim returns nil if the object is not delivered.
func (o oracle) slim(object runtime.Object, warn func(msg string, attrs ...any)) cluster.Object {
	var slim cluster.Object
	switch object := object.(type) {
	case *corev1.Namespace:
		slim = o.namespace(object)
	case *corev1.Service:
		slim = o.service(object, warn)
	case *discoveryv1.EndpointSlice:
		slim = o.slice(object, warn)
	case *corev1.Pod:
		slim = o.pod(object)
	case *corev1.ConfigMap:
		slim = o.configMap(object)
	case *corev1.Node:
		slim = o.node(object)
	}
	if reflect.ValueOf(slim).IsNil() {
		return nil
	}
	return slim
}

// arrive slims an object in protobuf and in JSON and compares the results with
// the oracle's. It calls warn once for each warning.
func arrive(t testing.TB, o cluster.Options, object typedObject, warn func(msg string, attrs ...any)) cluster.Object {
	t.Helper()
	var want warnings
	slim := oracle{o}.slim(object, want.warn)
	protobuf, err := object.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	for form, data := range map[string][]byte{"protobuf": protobuf, "JSON": text} {
		var w warnings
		got, r := new(Decoded), resourceOf(o, kindOf(object), w.warn)
		if form == "JSON" {
			err = r.ReadJSON(data, got)
		} else {
			err = r.ReadProtobuf(data, got, new([]byte))
		}
		if err != nil || !reflect.DeepEqual(got.Slim, slim) || !slices.Equal(w, want) {
			t.Errorf("%s: got %+v, %v, warned %q\nwant %+v, %q", form, got.Slim, err, w, slim, want)
		}
		if got.Name != object.GetName() || got.Namespace != object.GetNamespace() || got.Version != object.GetResourceVersion() ||
			!got.Changed.Equal(changedAt(object)) || got.Ending != (object.GetDeletionTimestamp() != nil) ||
			got.ListEnd != object.GetAnnotations()[AnnotationListEnd] {
			t.Errorf("%s: got metadata %+v of %+v", form, got, object)
		}
	}
	for _, text := range want {
		warn(text)
	}
	return slim
}

func changedAt(object metav1.Object) time.Time {
	at, _ := time.Parse(time.RFC3339Nano, object.GetAnnotations()[corev1.EndpointsLastChangeTriggerTime])
	return at
}

// everyOption returns options that keep the most fields, and options that keep
// the fewest.
func everyOption() []cluster.Options {
	return []cluster.Options{
		{Pods: true},
		{Pods: true, Multicluster: true, PodNames: true, Zones: true, Hints: true, External: true, PodLabels: true},
		{Pods: true, PodNames: true},
	}
}

// fullMeta returns metadata with every field that an API server may send.
func fullMeta() metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: "web-x7k2p", GenerateName: "web-", Namespace: "shop", UID: "u-1", ResourceVersion: "4711", Generation: 3,
		CreationTimestamp: metav1.Now(), DeletionTimestamp: new(metav1.Now()), DeletionGracePeriodSeconds: new(int64(30)),
		Labels:          map[string]string{discoveryv1.LabelServiceName: "web", "app": "web", "": "", "empty": ""},
		Annotations:     map[string]string{corev1.EndpointsLastChangeTriggerTime: "2026-11-21T10:00:00Z", "big": strings.Repeat("x", 300)},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: "web", Controller: new(true)}},
		Finalizers:      []string{"a/b"},
		ManagedFields:   []metav1.ManagedFieldsEntry{{Manager: "m", Operation: "Apply", FieldsV1: metav1.NewFieldsV1(`{"f:a":{}}`)}},
	}
}

// fullObjects returns objects of each kind with more fields than are read.
func fullObjects() []typedObject {
	living := fullMeta()
	living.DeletionTimestamp = nil
	imported := fullMeta()
	imported.Labels = map[string]string{LabelImportService: "web", LabelImportCluster: "East"}
	ports := []corev1.ServicePort{
		{Name: "HTTP", Protocol: "TCP", AppProtocol: new("h2c"), Port: 80, TargetPort: intstr.FromString("web"), NodePort: 30080},
		{Name: "dns", Protocol: "UDP", Port: 53, TargetPort: intstr.FromInt32(5353)}, {Port: -1}, {Port: 70000},
	}
	spec := corev1.ServiceSpec{
		Ports: ports, Selector: map[string]string{"app": "web"}, ClusterIP: "10.0.0.1", ClusterIPs: []string{"10.0.0.1", "fd00::1"}, Type: "LoadBalancer",
		ExternalIPs: []string{"192.0.2.1", "x"}, SessionAffinity: "ClientIP", LoadBalancerSourceRanges: []string{"10.0.0.0/8"}, ExternalName: "a.b",
		HealthCheckNodePort: 1, PublishNotReadyAddresses: true, IPFamilies: []corev1.IPFamily{"IPv4"}, AllocateLoadBalancerNodePorts: new(true),
		SessionAffinityConfig: &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(int32(5))}},
	}
	balancer := corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: "192.0.2.9", IPMode: new(corev1.LoadBalancerIPModeVIP)}, {Hostname: "LB.example."}, {Hostname: "no name"}}}
	headless, named := spec, spec
	headless.ClusterIP, headless.ClusterIPs = "None", []string{"None"}
	named.Type = "ExternalName"
	eps := []discoveryv1.Endpoint{
		{Addresses: []string{"10.1.0.1", "010.1.0.1", "10.1.0.256", "1.2.3", "1.2.3.4.5", "", "1..2.3", "fd00::2", "::ffff:10.1.0.9", "fe80::1%eth0"},
			Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)}, NodeName: new("n"), Zone: new("West"),
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: "Web-1", UID: "u"}, DeprecatedTopology: map[string]string{"a": "b"},
			Hints: &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "west"}}}},
		{Addresses: []string{"10.1.0.2"}, Hostname: new("DB-0"), Conditions: discoveryv1.EndpointConditions{Ready: new(false)}},
		{Addresses: []string{"10.1.0.3"}, Hostname: new("not a name"), TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: "web.3"}},
		{Addresses: []string{"10.1.0.4"}, Hostname: new(""), TargetRef: &corev1.ObjectReference{Kind: "Node", Name: "node-4"}},
		{},
	}
	slicePorts := []discoveryv1.EndpointPort{{Name: new("HTTP"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(8080)), AppProtocol: new("x")}, {Name: new("all")}, {Port: new(int32(0))}, {Port: new(int32(1))}}
	slice := func(meta metav1.ObjectMeta, family discoveryv1.AddressType) typedObject {
		return &discoveryv1.EndpointSlice{ObjectMeta: meta, AddressType: family, Endpoints: eps, Ports: slicePorts}
	}
	pod := corev1.PodSpec{NodeName: "n", HostNetwork: true, Hostname: "web-0", Subdomain: "web", Containers: []corev1.Container{{Name: "c", Image: "i", Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: 80}}}}}
	status := corev1.PodStatus{Phase: "Running", PodIP: "10.2.0.1", PodIPs: []corev1.PodIP{{IP: "10.2.0.1"}, {IP: "fd00::3"}, {IP: "x"}}, HostIP: "10.9.0.1",
		Conditions: []corev1.PodCondition{{Type: "Ready", Status: "True"}}, ContainerStatuses: []corev1.ContainerStatus{{Name: "c", Ready: true}}}
	return []typedObject{
		&corev1.Namespace{ObjectMeta: fullMeta(), Spec: corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{"kubernetes"}}}, &corev1.Namespace{},
		&corev1.Service{ObjectMeta: fullMeta(), Spec: spec, Status: corev1.ServiceStatus{LoadBalancer: balancer, Conditions: []metav1.Condition{{Type: "x"}}}},
		&corev1.Service{ObjectMeta: living, Spec: headless}, &corev1.Service{ObjectMeta: living, Spec: named}, &corev1.Service{},
		slice(fullMeta(), "IPv4"), slice(living, "IPv6"), slice(living, "FQDN"), slice(imported, "IPv4"), &discoveryv1.EndpointSlice{},
		&corev1.Pod{ObjectMeta: fullMeta(), Spec: pod, Status: status}, &corev1.Pod{ObjectMeta: living, Spec: pod, Status: status},
		&corev1.Pod{ObjectMeta: living, Status: corev1.PodStatus{PodIP: "10.2.0.2", Phase: "Pending"}}, &corev1.Pod{},
	}
}

// Objects in both forms are slimmed like the API's own types, with the same
// warnings in the same order.
func TestCodecObjects(t *testing.T) {
	for i, o := range everyOption() {
		for _, object := range fullObjects() {
			t.Run(fmt.Sprintf("%s/%d", kindOf(object), i), func(t *testing.T) {
				arrive(t, o, object, func(string, ...any) {})
			})
		}
	}
}

// A decoded object does not share memory with its message, whose buffer is reused.
func TestReadProtobufCopies(t *testing.T) {
	o := cluster.Options{Pods: true, Multicluster: true, PodNames: true, Zones: true, External: true, PodLabels: true}
	for _, object := range fullObjects() {
		data, err := object.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		got := new(Decoded)
		if err := resourceOf(o, kindOf(object), func(string, ...any) {}).ReadProtobuf(data, got, new([]byte)); err != nil {
			t.Fatal(err)
		}
		for i := range data {
			data[i] = '!'
		}
		if want := (oracle{o}).slim(object, func(string, ...any) {}); !reflect.DeepEqual(got.Slim, want) || got.Name != object.GetName() || got.Version != object.GetResourceVersion() {
			t.Errorf("got %+v, want %+v", got.Slim, want)
		}
	}
}
