package cluster

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

func metaNamed(name, version string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "shop", Name: name, ResourceVersion: version, Labels: map[string]string{discoveryv1.LabelServiceName: "web"}}
}

// A list in either form is slimmed item by item; its items do not say what they
// are.
func TestCodecList(t *testing.T) {
	list := &discoveryv1.EndpointSliceList{ListMeta: metav1.ListMeta{ResourceVersion: "7", Continue: "more"}, Items: []discoveryv1.EndpointSlice{
		{ObjectMeta: metaNamed("web-1", "1"), AddressType: "IPv4", Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}}}},
		{ObjectMeta: named("unlabelled"), AddressType: "IPv4"},
		{ObjectMeta: metaNamed("web-3", "3"), AddressType: "IPv6", Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"fd00::1", "fd00::2"}}}},
	}}
	want := []Object{oracle{}.slice(&list.Items[0], t.Errorf), nil, oracle{}.slice(&list.Items[2], t.Errorf)}
	for form, data := range map[string][]byte{"protobuf": inProtobuf(t, list), "JSON": inJSON(t, list)} {
		var items []Object
		got := &records{take: func(a *arrived) { items = append(items, a.object) }}
		c := codecFor(Options{}, Slices, t.Errorf)
		if object, _, err := c.Decode(data, nil, got); err != nil || object != got {
			t.Fatalf("%s: %v %v", form, object, err)
		}
		if got.ResourceVersion != "7" || got.Continue != "more" || !reflect.DeepEqual(items, want) {
			t.Errorf("%s: got %+v %+v", form, got, items)
		}
		if _, err := runtime.Decode(c, data); err == nil {
			t.Errorf("%s: a list was taken for an object", form)
		}
		if _, _, err := codecFor(Options{}, Services, t.Errorf).Decode(data, nil, new(records)); err == nil {
			t.Errorf("%s: EndpointSlices were taken for Services", form)
		}
	}
}

// What the API server says in place of an object.
func TestCodecStatus(t *testing.T) {
	status := apierrors.NewResourceExpired("too old").Status()
	for form, data := range map[string][]byte{"protobuf": inProtobuf(t, &status), "JSON": inJSON(t, &status)} {
		object, err := runtime.Decode(codecFor(Options{}, Services, t.Errorf), data)
		if err != nil || !apierrors.IsResourceExpired(apierrors.FromObject(object)) {
			t.Errorf("%s: %+v %v", form, object, err)
		}
	}
}

func TestCodecMalformed(t *testing.T) {
	service := inProtobuf(t, &corev1.Service{ObjectMeta: metaNamed("web", "1")})
	for name, data := range map[string][]byte{
		"nothing": nil, "prefix alone": service[:4], "cut": service[:len(service)-3], "no kind": []byte("{}"), "text": []byte("hello"),
		"another kind": inProtobuf(t, &corev1.Pod{}), "another form": []byte(`{"apiVersion":"v1","kind":"Service","spec":{"ports":7}}`),
	} {
		if object, err := runtime.Decode(codecFor(Options{}, Services, t.Errorf), data); err == nil {
			t.Errorf("%s: %+v", name, object)
		}
	}
	event := frame(t, &corev1.Service{})[4:]
	for n := range event {
		var e metav1.WatchEvent
		if err := protobufEvent(event[:n], &e); err == nil && len(e.Object.Raw) > 0 {
			t.Errorf("an event of %d bytes was taken for whole at %d", len(event), n)
		}
	}
}

// protobufAPI answers in protobuf alone, as the API server does: lists, streamed
// lists with a bookmark, and errors.
func protobufAPI(t *testing.T, old bool, objects map[string][]typedObject) (url string) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		resource := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
		w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf")
		if r.URL.Query().Has("sendInitialEvents") && old {
			w.WriteHeader(http.StatusUnprocessableEntity)
			w.Write(inProtobuf(t, &metav1.Status{Status: "Failure", Reason: metav1.StatusReasonInvalid, Code: http.StatusUnprocessableEntity}))
			return
		}
		if !r.URL.Query().Has("watch") {
			var list interface {
				runtime.Object
				Marshal() ([]byte, error)
			}
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
		send := func(what watch.EventType, object typedObject) {
			e := metav1.WatchEvent{Type: string(what), Object: runtime.RawExtension{Raw: inProtobuf(t, object)}}
			raw, _ := e.Marshal()
			w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(raw))), raw...))
		}
		if r.URL.Query().Has("sendInitialEvents") {
			for _, o := range objects[resource] {
				send(watch.Added, o)
			}
			end := metav1.ObjectMeta{ResourceVersion: "7", Annotations: map[string]string{annotationListed: "true"}}
			send(watch.Bookmark, map[string]typedObject{"namespaces": &corev1.Namespace{ObjectMeta: end}, "services": &corev1.Service{ObjectMeta: end}, "endpointslices": &discoveryv1.EndpointSlice{ObjectMeta: end}}[resource])
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

// The whole way in protobuf, with client-go's reflector in it.
func TestLiveProtobuf(t *testing.T) {
	objects := map[string][]typedObject{"services": {&corev1.Service{ObjectMeta: metaNamed("web", "1")}, &corev1.Service{ObjectMeta: metaNamed("empty", "2")}}}
	for _, old := range []bool{false, true} {
		f, stop := watchCluster(t, Options{Endpoint: protobufAPI(t, old, objects)})
		f.got(t, "listed services shop/empty shop/web")
		f.got(t, "listed endpointslices ")
		f.got(t, "put services shop/web")
		f.got(t, "delete services shop/empty")
		f.until(t, "quiet log", func() bool { return f.logged.Len() == 0 })
		stop()
	}
}

// Nothing that is kept lies in the bytes that it came in: they are read into
// again with the next frame.
func TestCodecKeepsNothing(t *testing.T) {
	o := Options{Pods: true, Multicluster: true, PodNames: true, Zones: true, External: true, PodLabels: true}
	for _, object := range fullObjects() {
		data := inProtobuf(t, object)
		var w warnings
		got := decoded(t, codecFor(o, kindOf(object), w.warn), data)
		for i := range data {
			data[i] = '!'
		}
		if want := (oracle{o}).slim(object, func(string, ...any) {}); !reflect.DeepEqual(got.object, want) || got.name != object.GetName() || got.version != object.GetResourceVersion() {
			t.Errorf("got %+v, want %+v", got.object, want)
		}
	}
}

// What an event costs does not depend on the number of endpoints, but for the
// text that holds them.
func TestDecodeAllocations(t *testing.T) {
	for _, c := range []struct {
		object typedObject
		want   float64
	}{
		{sliceOf(10), 12}, {sliceOf(100), 12},
	} {
		events, s := decoding(t, c.object)
		got := testing.AllocsPerRun(200, func() {
			_, object, err := events.Decode()
			if err = errors.Join(err, s.Update(object)); err != nil {
				t.Fatal(err)
			}
		})
		// The event, the object around what is kept, its name, version and namespace,
		// the slice, its ports with a name and a protocol, the endpoints; the rest is
		// client-go's.
		if got > c.want {
			t.Errorf("%v allocations, want %v", got, c.want)
		}
	}
}

func TestDotted(t *testing.T) {
	for _, text := range []string{"0.0.0.0", "255.255.255.255", "10.1.2.3", "1.2.3", "1.2.3.4.5", "1.2.3.4.", ".1.2.3.4", "01.2.3.4", "1.2.3.00", "256.1.1.1", "1.2.3.1000", "", "a.b.c.d", "1.2.3.4a", "::1", "1..2.3", "1.2.3.4 "} {
		want := addrs([]string{text}, "", "", "", func(string, ...any) {})
		got, ok := dotted([]byte(text))
		if ok && !slices.Contains(want, got) || !ok && len(want) > 0 && want[0].Is4() {
			t.Errorf("%q: %v %v, want %v", text, got, ok, want)
		}
	}
	if !bytes.Equal(AppendEndpoint(nil, Endpoint{Addr: ips("10.1.2.3")[0], Ready: true}), []byte{flagReady, 10, 1, 2, 3}) {
		t.Error("packed otherwise")
	}
}
