package cluster

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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// A typedObject is one of the API's own types.
type typedObject interface {
	runtime.Object
	metav1.Object
	Marshal() ([]byte, error)
}

// says is what the API server writes into such an object.
func says(t testing.TB, object runtime.Object) schema.GroupVersionKind {
	t.Helper()
	name := reflect.TypeOf(object).Elem().Name()
	switch name {
	case "EndpointSlice", "EndpointSliceList":
		return discoveryv1.SchemeGroupVersion.WithKind(name)
	}
	return corev1.SchemeGroupVersion.WithKind(name)
}

func inProtobuf(t testing.TB, object interface {
	runtime.Object
	Marshal() ([]byte, error)
}) []byte {
	t.Helper()
	raw, err := object.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return wrapped(t, raw, says(t, object))
}

// wrapped is what the API server sends of an object.
func wrapped(t testing.TB, raw []byte, is schema.GroupVersionKind) []byte {
	t.Helper()
	version, kind := is.ToAPIVersionAndKind()
	u := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: version, Kind: kind}, Raw: raw}
	data, err := u.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return append([]byte("k8s\x00"), data...)
}

func inJSON(t testing.TB, object runtime.Object) []byte {
	t.Helper()
	object = object.DeepCopyObject()
	object.GetObjectKind().SetGroupVersionKind(says(t, object))
	raw, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// codecFor gives the codec of a resource.
func codecFor(o Options, kind Kind, warn func(format string, args ...any)) *codec {
	resources := o.resources(warn)
	if kind == ConfigMaps {
		resources = []resource{o.configMaps()}
	} else if kind == Nodes {
		resources = []resource{o.nodes()}
	}
	i := slices.IndexFunc(resources, func(r resource) bool { return r.kinds[0] == kind })
	return &codec{resource: resources[i]}
}

func decoded(t testing.TB, c *codec, data []byte) *arrived {
	t.Helper()
	object, err := runtime.Decode(c, data)
	if err != nil {
		t.Fatalf("%v\n%q", err, data)
	}
	return object.(*arrived)
}

func kindOf(object runtime.Object) Kind {
	switch object.(type) {
	case *corev1.Namespace:
		return Namespaces
	case *corev1.Service:
		return Services
	case *discoveryv1.EndpointSlice:
		return Slices
	case *corev1.Pod:
		return Pods
	case *corev1.Node:
		return Nodes
	}
	return ConfigMaps
}

// slim is what the oracle makes of an object; nil is nothing.
func (o oracle) slim(object runtime.Object, warn func(format string, args ...any)) Object {
	var slim Object
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

// arrive slims an object in every form in which it may arrive, and wants the
// same of all. warn gets what is warned of, once.
func arrive(t testing.TB, o Options, object typedObject, warn func(format string, args ...any)) Object {
	t.Helper()
	var want warnings
	slim := oracle{o}.slim(object, want.warn)
	for form, data := range map[string][]byte{"protobuf": inProtobuf(t, object), "JSON": inJSON(t, object)} {
		var w warnings
		got := decoded(t, codecFor(o, kindOf(object), w.warn), data)
		if !reflect.DeepEqual(got.object, slim) || !slices.Equal(w, want) {
			t.Errorf("%s: got %+v, warned %q\nwant %+v, %q", form, got.object, w, slim, want)
		}
		if got.name != object.GetName() || got.namespace != object.GetNamespace() || got.version != object.GetResourceVersion() ||
			!got.changed.Equal(changedAt(object)) || got.ending != (object.GetDeletionTimestamp() != nil) ||
			got.annotations[annotationListed] != object.GetAnnotations()[annotationListed] {
			t.Errorf("%s: got metadata %+v", form, got)
		}
	}
	for _, text := range want {
		warn("%s", text)
	}
	return slim
}

func changedAt(object metav1.Object) time.Time {
	at, _ := time.Parse(time.RFC3339Nano, object.GetAnnotations()[corev1.EndpointsLastChangeTriggerTime])
	return at
}

// everyOption are the options under which most is kept, and the fewest.
func everyOption() []Options {
	return []Options{
		{Pods: true},
		{Pods: true, Multicluster: true, PodNames: true, Zones: true, External: true, PodLabels: true},
		{Pods: true, PodNames: true},
	}
}

// fullMeta has every field that an API server may send.
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

// fullObjects are objects of each kind with more in them than is read.
func fullObjects() []typedObject {
	living := fullMeta()
	living.DeletionTimestamp = nil
	imported := fullMeta()
	imported.Labels = map[string]string{labelImportService: "web", labelImportCluster: "East"}
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

// Whatever an API server sends, in either form, is slimmed as its own types
// would be, with the same warnings in the same order.
func TestCodecObjects(t *testing.T) {
	for i, o := range everyOption() {
		for _, object := range fullObjects() {
			t.Run(fmt.Sprintf("%s/%d", kindOf(object), i), func(t *testing.T) {
				arrive(t, o, object, func(string, ...any) {})
			})
		}
	}
}
