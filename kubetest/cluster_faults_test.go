package kubetest

import (
	"strings"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/test/chaintest"
)

func (w clusterWriter) serviceImport(namespace, name string, spec map[string]any) {
	w.Helper()
	must(w.imports.Namespace(namespace).Create(w.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ServiceImport",
		"metadata": map[string]any{"name": name}, "spec": spec,
	}}, metav1.CreateOptions{}))(w.T)
}

// One watch of EndpointSlices feeds two kinds, by their labels.
func TestClusterImports(t *testing.T) {
	t.Parallel()
	srv := start(t)
	w := writer(t, srv)
	imported := func(cluster string) map[string]string {
		return map[string]string{
			discoveryv1.LabelServiceName:                "-",
			"multicluster.kubernetes.io/service-name":   "web",
			"multicluster.kubernetes.io/source-cluster": cluster,
		}
	}
	w.serviceImport("shop", "web", map[string]any{"type": "ClusterSetIP", "ips": []any{"10.9.0.1"}, "ports": []any{map[string]any{"name": "http", "port": 80}}})
	w.slice("shop", "own", nil, "10.1.0.1")
	w.slice("shop", "from-east", imported("east.example"), "10.1.0.2")

	o := endpoint(srv)
	plain := follow(t, o)
	o.Multicluster = true
	f := follow(t, o)
	plain.has(t, cluster.Slices, "shop/own")
	f.synced(t, o)
	f.has(t, cluster.Imports, "shop/web")
	f.has(t, cluster.Slices, "shop/own")
	f.has(t, cluster.ImportSlices, "shop/from-east")
	if s := f.get(cluster.ImportSlices, "shop", "from-east").(*cluster.Slice); s.Service != "web" || s.Cluster != "east.example" {
		t.Errorf("imported slice: got %+v, want Service web and cluster east.example", s)
	}
	if s := f.get(cluster.Imports, "shop", "web").(*cluster.Service); len(s.ClusterIPs) != 1 || len(s.Ports) != 1 || s.Ports[0].Protocol != "tcp" {
		t.Errorf("ServiceImport: got %+v, want one address and one tcp port", s)
	}

	// A slice may move from one kind to the other.
	slices := w.DiscoveryV1().EndpointSlices("shop")
	s := must(slices.Get(t.Context(), "from-east", metav1.GetOptions{}))(t)
	s.Labels = map[string]string{discoveryv1.LabelServiceName: "web"}
	must(slices.Update(t.Context(), s, metav1.UpdateOptions{}))(t)
	f.has(t, cluster.Slices, "shop/from-east shop/own")
	f.has(t, cluster.ImportSlices, "")
	plain.has(t, cluster.Slices, "shop/from-east shop/own")

	w.serviceImport("shop", "db", map[string]any{"type": "Headless"})
	f.has(t, cluster.Imports, "shop/db shop/web")
	if err := w.imports.Namespace("shop").Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	f.has(t, cluster.Imports, "shop/db")
}

// A resource that the service account may not read is logged once, and the others
// are served.
func TestClusterForbidden(t *testing.T) {
	t.Parallel()
	srv := start(t)
	w := writer(t, srv)
	w.service("shop", "web", "10.0.0.1", nil)
	w.slice("shop", "web", nil, "10.1.0.1")
	proxy := must(NewProxy(srv))(t)
	t.Cleanup(proxy.Close)
	proxy.Set(Faults{Forbidden: []string{"endpointslices"}})

	f := follow(t, cluster.Options{Endpoint: proxy.URL()})
	f.has(t, cluster.Services, "shop/web")
	w.service("shop", "db", "10.0.0.2", nil)
	f.has(t, cluster.Services, "shop/db shop/web")
	failed := f.metrics.Counter("seamark_kubernetes_watch_errors_total", "", "resource", "endpointslices")
	chaintest.Eventually(t, "several attempts", func() bool { return failed.Value() >= 6 })
	if f.logs("List or watch forbidden, grant both to the service account", "kind=EndpointSlice verb=list") != 1 || f.logs("") != 1 {
		t.Errorf("log: got\n%s\nwant one line with the verb and the resource", f.log())
	}
	if f.lists(cluster.Slices) != 0 {
		t.Errorf("lists of forbidden EndpointSlices: got %d, want none", f.lists(cluster.Slices))
	}
	proxy.Set(Faults{})
	f.has(t, cluster.Slices, "shop/web")
	chaintest.Eventually(t, "a log line", func() bool { return f.logs("level=INFO", "List or watch recovered", "kind=EndpointSlice") == 1 })

	// The same after the start: known data are kept.
	proxy.Set(Faults{Forbidden: []string{"endpointslices"}})
	proxy.Cut()
	chaintest.Eventually(t, "a log line", func() bool { return f.logs("level=WARN", "List or watch forbidden", "kind=EndpointSlice") == 2 })
	f.has(t, cluster.Slices, "shop/web")
}

// Truncated and invalid responses are requested again, with backoff.
func TestClusterBrokenAnswers(t *testing.T) {
	t.Parallel()
	srv := start(t)
	w := writer(t, srv)
	w.service("shop", "web", "10.0.0.1", nil)
	proxy := must(NewProxy(srv))(t)
	t.Cleanup(proxy.Close)
	for name, faults := range map[string]Faults{
		"garbage":      {Garbage: true},
		"cut":          {CutAfter: 100},
		"unauthorized": {Unauthorized: true},
	} {
		t.Run(name, func(t *testing.T) {
			proxy.Set(faults)
			o := cluster.Options{Endpoint: proxy.URL(), NoEndpoints: true}
			f := follow(t, o)
			failed := f.metrics.Counter("seamark_kubernetes_watch_errors_total", "", "resource", "services")
			began := time.Now()
			chaintest.Eventually(t, "several attempts", func() bool { return failed.Value() >= 6 })
			if took := time.Since(began); took < 60*time.Millisecond {
				t.Errorf("six attempts: got %v, want at least 60ms", took)
			}
			if n := strings.Count(f.log(), "level=WARN"); n < 1 || n > 3 {
				t.Errorf("warnings: got %d, want 1 to 3:\n%s", n, f.log())
			}
			proxy.Set(Faults{})
			f.has(t, cluster.Services, "shop/web")
			f.synced(t, o)
		})
	}
}
