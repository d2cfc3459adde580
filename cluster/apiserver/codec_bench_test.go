package apiserver

import (
	"encoding/binary"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	restwatch "k8s.io/client-go/rest/watch"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/metrics"
)

// A countingSink counts the objects that it receives.
type countingSink struct{ objects int }

func (s *countingSink) Put(_ cluster.Kind, all ...cluster.Object)   { s.objects += len(all) }
func (s *countingSink) Delete(cluster.Kind, cluster.Key)            { s.objects++ }
func (s *countingSink) Listed(cluster.Kind, func(cluster.Key) bool) {}
func (s *countingSink) Programmed(cluster.Key, time.Duration)       {}

// A repeatingReader repeats a text.
type repeatingReader struct {
	text []byte
	at   int
}

func (e *repeatingReader) Read(p []byte) (int, error) {
	n := copy(p, e.text[e.at:])
	e.at = (e.at + n) % len(e.text)
	return n, nil
}

func (e *repeatingReader) Close() error { return nil }

// frame returns the watch event of a changed object.
func frame(t testing.TB, object encodable) []byte {
	t.Helper()
	event := metav1.WatchEvent{Type: "MODIFIED", Object: kruntime.RawExtension{Raw: inProtobuf(t, object)}}
	raw, err := event.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(raw))), raw...)
}

// sliceOf returns an EndpointSlice with n endpoints, as the controller writes it.
func sliceOf(n int) *discoveryv1.EndpointSlice {
	meta := controllerMeta()
	meta.DeletionTimestamp = nil
	s := &discoveryv1.EndpointSlice{ObjectMeta: meta, AddressType: "IPv4",
		Ports: []discoveryv1.EndpointPort{{Name: new("http"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(8080))}}}
	for i := range n {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{fmt.Sprintf("10.1.%d.%d", i/250, i%250)},
			Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)},
			NodeName:   new(fmt.Sprintf("node-%d", i)), Zone: new("west-1"),
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: fmt.Sprintf("web-5d4f8b7c9-%05d", i), UID: "e7b7a3c2-7f5c-4c7e-9f5a-8f0e6d1f2a3b"},
		})
	}
	return s
}

// BenchmarkDecodeEvent measures one event from the frame to the sink, through
// client-go's decoder.
func BenchmarkDecodeEvent(b *testing.B) {
	service := &corev1.Service{ObjectMeta: controllerMeta(), Spec: corev1.ServiceSpec{ClusterIP: "10.0.0.1", ClusterIPs: []string{"10.0.0.1"}, Type: "ClusterIP",
		Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Name: "http", Protocol: "TCP", Port: 80}}}}
	for _, c := range []struct {
		name   string
		object encodable
	}{{"service", service}, {"slice10", sliceOf(10)}, {"slice100", sliceOf(100)}} {
		b.Run(c.name, func(b *testing.B) {
			events, s := decoding(b, c.object)
			b.ReportAllocs()
			for b.Loop() {
				_, object, err := events.Decode()
				if err != nil {
					b.Fatal(err)
				}
				s.put(object.(*decodedObject))
			}
		})
	}
}

// decoding returns an endless watch that reports changes of one object, and a
// store for the changes.
func decoding(t testing.TB, object encodable) (*restwatch.Decoder, *store) {
	kind := cluster.Slices
	if _, ok := object.(*corev1.Service); ok {
		kind = cluster.Services
	}
	sink := new(countingSink)
	source := newSource(new(metrics.Registry))
	source.timed = sink
	c := codecFor(cluster.Options{}, kind, t.Errorf)
	form := negotiatedSerializer{c.Resource}.SupportedMediaTypes()[0]
	text := frame(t, object)
	frames := form.StreamSerializer.NewFrameReader(&repeatingReader{text: text})
	events := restwatch.NewDecoder(streaming.NewDecoder(frames, form.StreamSerializer.Serializer), form.Serializer)
	return events, &store{source: source, kinds: c.Kinds, sink: wholeCluster(sink, source.Monitor)}
}

var _ io.ReadCloser = (*repeatingReader)(nil)

// controllerMeta returns metadata with every field that an API server may send.
func controllerMeta() metav1.ObjectMeta {
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
