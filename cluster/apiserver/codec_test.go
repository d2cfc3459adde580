package apiserver

import (
	"encoding/binary"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/cluster/api"
)

// typeOf returns the type that the API server writes into such an object.
func typeOf(t testing.TB, object runtime.Object) schema.GroupVersionKind {
	t.Helper()
	name := reflect.TypeOf(object).Elem().Name()
	switch name {
	case "EndpointSlice", "EndpointSliceList":
		return discoveryv1.SchemeGroupVersion.WithKind(name)
	}
	return corev1.SchemeGroupVersion.WithKind(name)
}

// An encodable object is one of the API's types.
type encodable interface {
	runtime.Object
	Marshal() ([]byte, error)
}

func inProtobuf(t testing.TB, object encodable) []byte {
	t.Helper()
	raw, err := object.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return wrapped(t, raw, typeOf(t, object))
}

// wrapped returns an encoded object in the envelope of the API server.
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
	object.GetObjectKind().SetGroupVersionKind(typeOf(t, object))
	raw, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// codecFor returns the codec of a resource.
func codecFor(o cluster.Options, kind cluster.Kind, warn func(format string, args ...any)) *codec {
	resources := api.Slimmer{Options: o, Warn: warn}.Resources()
	i := slices.IndexFunc(resources, func(r api.Resource) bool { return r.Kinds[0] == kind })
	return &codec{Resource: resources[i]}
}

func decoded(t testing.TB, c *codec, data []byte) *decodedObject {
	t.Helper()
	object, err := runtime.Decode(c, data)
	if err != nil {
		t.Fatalf("decoding %q: got error %v, want none", data, err)
	}
	return object.(*decodedObject)
}

func metaNamed(name, version string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "shop", Name: name, ResourceVersion: version, Labels: map[string]string{discoveryv1.LabelServiceName: "web"}}
}

// The items of a list have no type of their own in either form.
func TestCodecList(t *testing.T) {
	list := &discoveryv1.EndpointSliceList{ListMeta: metav1.ListMeta{ResourceVersion: "7", Continue: "more"}, Items: []discoveryv1.EndpointSlice{
		{ObjectMeta: metaNamed("web-1", "1"), AddressType: "IPv4", Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "unlabelled"}, AddressType: "IPv4"},
		{ObjectMeta: metaNamed("web-3", "3"), AddressType: "IPv6", Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"fd00::1", "fd00::2"}}}},
	}}
	addr := netip.MustParseAddr
	want := []cluster.Object{
		&cluster.Slice{Namespace: "shop", Name: "web-1", Service: "web", Endpoints: cluster.Endpoints(cluster.AppendEndpoint(nil, cluster.Endpoint{Addr: addr("10.0.0.1"), Ready: true}))},
		nil,
		&cluster.Slice{Namespace: "shop", Name: "web-3", Service: "web", Endpoints: cluster.Endpoints(cluster.AppendEndpoint(cluster.AppendEndpoint(nil,
			cluster.Endpoint{Addr: addr("fd00::1"), Ready: true}), cluster.Endpoint{Addr: addr("fd00::2"), Ready: true}))},
	}
	for form, data := range map[string][]byte{"protobuf": inProtobuf(t, list), "JSON": inJSON(t, list)} {
		var items []cluster.Object
		got := &objectList{put: func(o *api.Decoded) { items = append(items, o.Slim) }}
		c := codecFor(cluster.Options{}, cluster.Slices, t.Errorf)
		if object, _, err := c.Decode(data, nil, got); err != nil || object != got {
			t.Fatalf("%s: got %v and error %v, want the list", form, object, err)
		}
		if got.ResourceVersion != "7" || got.Continue != "more" || !reflect.DeepEqual(items, want) {
			t.Errorf("%s: got %+v with items %+v, want version 7, continue more and items %+v", form, got, items, want)
		}
		if _, err := runtime.Decode(c, data); err == nil {
			t.Errorf("%s: decoding a list as an object: got no error, want one", form)
		}
		if _, _, err := codecFor(cluster.Options{}, cluster.Services, t.Errorf).Decode(data, nil, new(objectList)); err == nil {
			t.Errorf("%s: decoding EndpointSlices as Services: got no error, want one", form)
		}
	}
}

// An error of the API server is decoded in place of an object.
func TestCodecStatus(t *testing.T) {
	status := apierrors.NewResourceExpired("too old").Status()
	for form, data := range map[string][]byte{"protobuf": inProtobuf(t, &status), "JSON": inJSON(t, &status)} {
		object, err := runtime.Decode(codecFor(cluster.Options{}, cluster.Services, t.Errorf), data)
		if err != nil || !apierrors.IsResourceExpired(apierrors.FromObject(object)) {
			t.Errorf("%s: got %+v and error %v, want the status Expired", form, object, err)
		}
	}
}

// Objects of each kind are decoded in both forms.
func TestCodecObject(t *testing.T) {
	meta := metaNamed("web", "4")
	for _, test := range []struct {
		options cluster.Options
		kind    cluster.Kind
		object  encodable
	}{
		{cluster.Options{}, cluster.Namespaces, &corev1.Namespace{ObjectMeta: meta}},
		{cluster.Options{}, cluster.Services, &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{ClusterIP: "10.0.0.1"}}},
		{cluster.Options{}, cluster.Slices, sliceOf(3)},
		{cluster.Options{Pods: true}, cluster.Pods, &corev1.Pod{ObjectMeta: meta, Status: corev1.PodStatus{PodIP: "10.1.0.1"}}},
		{cluster.Options{ConfigMap: "shop/web"}, cluster.ConfigMaps, &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"a": "b"}}},
		{cluster.Options{Nodes: true}, cluster.Nodes, &corev1.Node{ObjectMeta: meta}},
	} {
		c := codecFor(test.options, test.kind, t.Errorf)
		raw, err := test.object.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		var want api.Decoded
		if err := c.ReadProtobuf(raw, &want, new([]byte)); err != nil || want.Slim == nil {
			t.Fatalf("%s: got %+v, %v", test.kind, want, err)
		}
		for form, data := range map[string][]byte{"protobuf": inProtobuf(t, test.object), "JSON": inJSON(t, test.object)} {
			if got := decoded(t, c, data).Decoded; !reflect.DeepEqual(got, want) {
				t.Errorf("%s in %s: got %+v, want %+v", test.kind, form, got, want)
			}
		}
	}
}

func TestCodecMalformed(t *testing.T) {
	service := inProtobuf(t, &corev1.Service{ObjectMeta: metaNamed("web", "1")})
	for name, data := range map[string][]byte{
		"nothing": nil, "prefix alone": service[:4], "cut": service[:len(service)-3], "no kind": []byte("{}"), "text": []byte("hello"),
		"another kind": inProtobuf(t, &corev1.Pod{}), "another form": []byte(`{"apiVersion":"v1","kind":"Service","spec":{"ports":7}}`),
	} {
		if object, err := runtime.Decode(codecFor(cluster.Options{}, cluster.Services, t.Errorf), data); err == nil {
			t.Errorf("%s: got %+v, want an error", name, object)
		}
	}
	event := frame(t, &corev1.Service{})[4:]
	for n := range event {
		var e metav1.WatchEvent
		if err := protobufEvent(event[:n], &e); err == nil && len(e.Object.Raw) > 0 {
			t.Errorf("the first %[2]d of %[1]d bytes of an event: got an object, want none", len(event), n)
		}
	}
}

// protobufAPI starts a server that responds only in protobuf: with lists,
// streamed lists and errors.
func protobufAPI(t *testing.T, old bool, objects map[string][]encodable) (url string) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		resource := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
		w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf")
		if r.URL.Query().Has("sendInitialEvents") && old {
			w.WriteHeader(http.StatusUnprocessableEntity)
			w.Write(inProtobuf(t, &metav1.Status{Status: "Failure", Reason: metav1.StatusReasonInvalid, Code: http.StatusUnprocessableEntity}))
			return
		}
		if !r.URL.Query().Has("watch") {
			var list encodable
			meta := metav1.ListMeta{ResourceVersion: "7"}
			switch resource {
			case "namespaces":
				list = &corev1.NamespaceList{ListMeta: meta}
			case "services":
				services := &corev1.ServiceList{ListMeta: meta}
				for _, o := range objects[resource] {
					services.Items = append(services.Items, *o.(*corev1.Service))
				}
				list = services
			case "endpointslices":
				list = &discoveryv1.EndpointSliceList{ListMeta: meta}
			}
			w.Write(inProtobuf(t, list))
			return
		}
		w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf;stream=watch")
		send := func(what watch.EventType, object encodable) {
			e := metav1.WatchEvent{Type: string(what), Object: runtime.RawExtension{Raw: inProtobuf(t, object)}}
			raw, _ := e.Marshal()
			w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(raw))), raw...))
		}
		if r.URL.Query().Has("sendInitialEvents") {
			for _, o := range objects[resource] {
				send(watch.Added, o)
			}
			end := metav1.ObjectMeta{ResourceVersion: "7", Annotations: map[string]string{api.AnnotationListEnd: "true"}}
			send(watch.Bookmark, map[string]encodable{"namespaces": &corev1.Namespace{ObjectMeta: end}, "services": &corev1.Service{ObjectMeta: end}, "endpointslices": &discoveryv1.EndpointSlice{ObjectMeta: end}}[resource])
		}
		if resource == "services" {
			send(watch.Modified, &corev1.Service{ObjectMeta: metaNamed("web", "8")})
			send(watch.Deleted, &corev1.Service{ObjectMeta: metaNamed("empty", "9")})
		}
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// TestLiveProtobuf runs the feeds against a server that responds in protobuf.
func TestLiveProtobuf(t *testing.T) {
	objects := map[string][]encodable{"services": {&corev1.Service{ObjectMeta: metaNamed("web", "1")}, &corev1.Service{ObjectMeta: metaNamed("empty", "2")}}}
	for _, old := range []bool{false, true} {
		f, stop := watchCluster(t, cluster.Options{Endpoint: protobufAPI(t, old, objects)})
		f.waitForCall(t, "listed services shop/empty shop/web")
		f.waitForCall(t, "listed endpointslices ")
		f.waitForCall(t, "put services shop/web")
		f.waitForCall(t, "delete services shop/empty")
		f.waitFor(t, "quiet log", func() bool { return f.logged.Len() == 0 })
		stop()
	}
}

// The number of allocations for an event does not depend on the number of
// endpoints.
func TestDecodeAllocations(t *testing.T) {
	for _, c := range []struct {
		object encodable
		want   float64
	}{
		{sliceOf(10), 12}, {sliceOf(100), 12},
	} {
		events, s := decoding(t, c.object)
		got := testing.AllocsPerRun(200, func() {
			_, object, err := events.Decode()
			if err != nil {
				t.Fatal(err)
			}
			s.put(object.(*decodedObject))
		})
		// The event, the Decoded object, its name, version and namespace, the
		// slice, its ports with a name and a protocol, and the endpoints; the
		// others are client-go's.
		if got > c.want {
			t.Errorf("%v allocations, want %v", got, c.want)
		}
	}
}
