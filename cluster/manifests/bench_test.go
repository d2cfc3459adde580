package manifests

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/metrics"
)

// BenchmarkDecodeFolder reads a folder of 2,000 Services with an EndpointSlice of
// fifteen endpoints each. kept is the memory that remains on the heap for each
// Service.
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
		sink := new(counter)
		var err error
		o := cluster.Options{Manifests: dir}
		if f, err = openFolder(o, sink, cluster.NewMonitor(o.Kinds(), slog.New(slog.DiscardHandler), new(metrics.Registry))); err != nil {
			b.Fatal(err)
		}
		if f.check(context.Background()); sink.puts != files+2*files*services {
			b.Fatalf("%d objects", sink.puts)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportMetric((float64(after.HeapAlloc)-float64(before.HeapAlloc))/(files*services), "kept/op")
	runtime.KeepAlive(f)
}

// A counter is a Sink that counts the objects that were put.
type counter struct{ puts int }

func (s *counter) Put(_ cluster.Kind, objects ...cluster.Object) { s.puts += len(objects) }
func (s *counter) Delete(cluster.Kind, cluster.Key)              {}
func (s *counter) Listed(cluster.Kind, func(cluster.Key) bool)   {}
