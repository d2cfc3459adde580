package cluster

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	restwatch "k8s.io/client-go/rest/watch"

	"github.com/seamark/seamark/metrics"
)

// An idle sink takes everything and does nothing.
type idle struct{ objects int }

func (s *idle) Put(_ Kind, all ...Object)     { s.objects += len(all) }
func (s *idle) Delete(Kind, Key)              { s.objects++ }
func (s *idle) Listed(Kind, func(Key) bool)   {}
func (s *idle) Programmed(Key, time.Duration) {}

// endless repeats a text.
type endless struct {
	text []byte
	at   int
}

func (e *endless) Read(p []byte) (int, error) {
	n := copy(p, e.text[e.at:])
	e.at = (e.at + n) % len(e.text)
	return n, nil
}

func (e *endless) Close() error { return nil }

// frame is the event of a changed object as a watch brings it.
func frame(t testing.TB, object typedObject) []byte {
	t.Helper()
	event := metav1.WatchEvent{Type: "MODIFIED", Object: kruntime.RawExtension{Raw: inProtobuf(t, object)}}
	raw, err := event.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(raw))), raw...)
}

// sliceOf is an EndpointSlice as the controller writes it, with n endpoints.
func sliceOf(n int) *discoveryv1.EndpointSlice {
	meta := fullMeta()
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

// BenchmarkDecodeEvent is what one event costs from the frame to the sink, by
// the way that client-go takes.
func BenchmarkDecodeEvent(b *testing.B) {
	service := &corev1.Service{ObjectMeta: fullMeta(), Spec: corev1.ServiceSpec{ClusterIP: "10.0.0.1", ClusterIPs: []string{"10.0.0.1"}, Type: "ClusterIP",
		Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Name: "http", Protocol: "TCP", Port: 80}}}}
	for _, c := range []struct {
		name   string
		object typedObject
	}{{"service", service}, {"slice10", sliceOf(10)}, {"slice100", sliceOf(100)}} {
		b.Run(c.name, func(b *testing.B) {
			events, s := decoding(b, c.object)
			b.ReportAllocs()
			for b.Loop() {
				_, object, err := events.Decode()
				if err != nil {
					b.Fatal(err)
				}
				if err := s.Update(object); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// decoding is a watch without end of changes of one object, and the store they
// go to.
func decoding(t testing.TB, object typedObject) (*restwatch.Decoder, *store) {
	sink := new(idle)
	source := Open(Options{}, slog.New(slog.DiscardHandler), new(metrics.Registry))
	source.timed = sink
	c := codecFor(source.opts, kindOf(object), t.Errorf)
	form := forms{c.resource}.SupportedMediaTypes()[0]
	text := frame(t, object)
	frames := form.StreamSerializer.NewFrameReader(&endless{text: text})
	events := restwatch.NewDecoder(streaming.NewDecoder(frames, form.StreamSerializer.Serializer), form.Serializer)
	return events, &store{source: source, kinds: c.kinds, out: whole{sink, source}, fine: func() {}}
}

// BenchmarkDecodeFolder reads a folder of 2,000 Services with an EndpointSlice
// of fifteen endpoints each. kept is what stays on the heap for each of these.
func BenchmarkDecodeFolder(b *testing.B) {
	const files, services = 10, 200
	dir := b.TempDir()
	for file := range files {
		var text strings.Builder
		for i := range services {
			fmt.Fprintf(&text, "---\napiVersion: v1\nkind: Service\nmetadata:\n  name: web-%d\n  namespace: ns-%d\n  labels:\n    app: web\nspec:\n  type: ClusterIP\n  clusterIP: 10.96.%d.%d\n  clusterIPs: [10.96.%d.%d]\n  ports:\n  - name: http\n    protocol: TCP\n    port: 80\n    targetPort: 8080\n", i, file, file, i, file, i)
			fmt.Fprintf(&text, "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n  name: web-%d-x7k2p\n  namespace: ns-%d\n  labels:\n    kubernetes.io/service-name: web-%d\naddressType: IPv4\nports:\n- name: http\n  protocol: TCP\n  port: 8080\nendpoints:\n", i, file, i)
			for j := range 15 {
				fmt.Fprintf(&text, "- addresses: [10.%d.%d.%d]\n  conditions: {ready: true, serving: true, terminating: false}\n  nodeName: node-%d\n  targetRef: {kind: Pod, namespace: ns-%d, name: web-5d4f8b7c9-%05d}\n", file, i, j, j, file, j)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.yaml", file)), []byte(text.String()), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var f *folder
	b.ReportAllocs()
	for b.Loop() {
		sink := new(idle)
		var err error
		if f, err = Open(Options{Manifests: dir}, slog.New(slog.DiscardHandler), new(metrics.Registry)).openFolder(sink); err != nil {
			b.Fatal(err)
		}
		if f.check(context.Background()); sink.objects != files+2*files*services {
			b.Fatalf("%d objects", sink.objects)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportMetric((float64(after.HeapAlloc)-float64(before.HeapAlloc))/(files*services), "kept/op")
	runtime.KeepAlive(f)
}

var _ io.ReadCloser = (*endless)(nil)
