package kubetest

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seamark/seamark/test/bound"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/test/chaintest"
)

func TestClusterChanges(t *testing.T) {
	t.Parallel()
	srv := start(t)
	w := writer(t, srv)
	ctx := t.Context()
	w.namespace("shop", nil)
	w.service("shop", "web", "10.0.0.1", nil)

	o := endpoint(srv)
	o.Pods = true
	f := follow(t, o)
	f.synced(t, o)
	f.has(t, cluster.Services, "shop/web")
	if !strings.Contains(f.names(cluster.Namespaces), "shop") {
		t.Errorf("namespaces: got %s, want shop among them", f.names(cluster.Namespaces))
	}

	t.Run("service", func(t *testing.T) {
		s := f.get(cluster.Services, "shop", "web").(*cluster.Service)
		if !slices.Equal(s.ClusterIPs, []netip.Addr{netip.MustParseAddr("10.0.0.1")}) || s.Ports[0] != (cluster.Port{Name: "http", Protocol: "tcp", Port: 80}) {
			t.Errorf("Service: got %+v, want address 10.0.0.1 and port http 80/tcp", s)
		}
		got := must(w.CoreV1().Services("shop").Get(ctx, "web", metav1.GetOptions{}))(t)
		got.Spec.Type, got.Spec.ExternalName = corev1.ServiceTypeExternalName, "Example.COM."
		must(w.CoreV1().Services("shop").Update(ctx, got, metav1.UpdateOptions{}))(t)
		chaintest.Eventually(t, "the update", func() bool {
			return f.get(cluster.Services, "shop", "web").(*cluster.Service).ExternalName == "example.com"
		})
		w.deleteService("shop", "web")
		f.has(t, cluster.Services, "")
	})

	t.Run("slice", func(t *testing.T) {
		w.slice("shop", "web", nil, "10.1.0.1")
		f.has(t, cluster.Slices, "shop/web")
		slices := w.DiscoveryV1().EndpointSlices("shop")
		got := must(slices.Get(ctx, "web", metav1.GetOptions{}))(t)
		got.Endpoints[0].Addresses = []string{"10.1.0.1", "10.1.0.2"}
		got = must(slices.Update(ctx, got, metav1.UpdateOptions{}))(t)
		chaintest.Eventually(t, "a second address", func() bool {
			n := 0
			for range f.get(cluster.Slices, "shop", "web").(*cluster.Slice).Endpoints.All() {
				n++
			}
			return n == 2
		})
		delete(got.Labels, discoveryv1.LabelServiceName)
		got = must(slices.Update(ctx, got, metav1.UpdateOptions{}))(t)
		f.has(t, cluster.Slices, "")
		got.Labels = map[string]string{discoveryv1.LabelServiceName: "web"}
		must(slices.Update(ctx, got, metav1.UpdateOptions{}))(t)
		f.has(t, cluster.Slices, "shop/web")
		if err := slices.Delete(ctx, "web", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		f.has(t, cluster.Slices, "")
	})

	t.Run("pod", func(t *testing.T) {
		pods := w.CoreV1().Pods("shop")
		p := must(pods.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-0"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}, metav1.CreateOptions{}))(t)
		p.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIPs: []corev1.PodIP{{IP: "10.2.0.1"}, {IP: "fd00::1"}}}
		p = must(pods.UpdateStatus(ctx, p, metav1.UpdateOptions{}))(t)
		f.has(t, cluster.Pods, "shop/web-0")
		if ips := f.get(cluster.Pods, "shop", "web-0").(*cluster.Pod).IPs; len(ips) != 2 {
			t.Errorf("addresses of a dual-stack pod: got %v, want two", ips)
		}
		p.Status.PodIPs, p.Status.PodIP = nil, ""
		p = must(pods.UpdateStatus(ctx, p, metav1.UpdateOptions{}))(t)
		f.has(t, cluster.Pods, "")
		p.Status.PodIP = "10.2.0.2"
		p = must(pods.UpdateStatus(ctx, p, metav1.UpdateOptions{}))(t)
		f.has(t, cluster.Pods, "shop/web-0")
		p.Status.Phase = corev1.PodSucceeded
		must(pods.UpdateStatus(ctx, p, metav1.UpdateOptions{}))(t)
		f.has(t, cluster.Pods, "")
	})

	t.Run("namespace", func(t *testing.T) {
		w.namespace("late", nil)
		chaintest.Eventually(t, "a namespace", func() bool { return f.get(cluster.Namespaces, "", "late") != nil })
		if err := w.CoreV1().Namespaces().Delete(ctx, "late", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	})

	t.Run("metrics", func(t *testing.T) {
		var text strings.Builder
		f.metrics.WriteText(&text)
		for _, want := range []string{
			`seamark_kubernetes_data_age_seconds{resource="services"} `,
			`seamark_kubernetes_relists_total{resource="services"} 1`,
			`seamark_kubernetes_events_total{resource="services"} 2`,
			`seamark_kubernetes_watch_errors_total{resource="services"} 0`,
		} {
			if !strings.Contains(text.String(), want) {
				t.Errorf("no %s in\n%s", want, &text)
			}
		}
		f.stop()
		text.Reset()
		f.metrics.WriteText(&text)
		if strings.Contains(text.String(), "data_age") {
			t.Errorf("metrics after the end of Run: got a data age, want none:\n%s", &text)
		}
	})
	if f.log() != "" {
		t.Errorf("log: got\n%s\nwant nothing", f.log())
	}
}

// The API server stops for a moment: changes are known soon after its return, and
// one line logs the outage and one its end.
func TestClusterRestart(t *testing.T) {
	t.Parallel()
	srv := start(t)
	w := writer(t, srv)
	w.service("shop", "web", "10.0.0.1", nil)
	o := endpoint(srv)
	f := follow(t, o)
	f.has(t, cluster.Services, "shop/web")
	f.synced(t, o)
	for i, name := range []string{"a", "b", "c"} {
		srv.StopAPI()
		chaintest.Eventually(t, "a log line", func() bool { return f.logs("API server unreachable") == i+1 })
		failed := f.metrics.Counter("seamark_kubernetes_watch_errors_total", "", "resource", "services")
		until := failed.Value() + uint64(4*i) // each outage is longer
		chaintest.Eventually(t, "more failed requests", func() bool { return failed.Value() >= until })
		if err := srv.StartAPI(t.Context()); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		w.service("shop", name, "10.0.1."+string(rune('1'+i)), nil)
		chaintest.Eventually(t, "a new Service", func() bool { return f.get(cluster.Services, "shop", name) != nil })
		bound.AtMost(t, "finding the API server again", time.Since(began), 10*time.Second)
		chaintest.Eventually(t, "a log line", func() bool { return f.logs("API server reachable again") == i+1 })
	}
	f.has(t, cluster.Services, "shop/a shop/b shop/c shop/web")
	if n := strings.Count(f.log(), "\n"); n != 6 {
		t.Errorf("log lines: got %d, want 6:\n%s", n, f.log())
	}
}

// While the watch is interrupted, an object is deleted and etcd compacts its
// history: the watch gets 410 Expired, and a list detects the deletion.
func TestClusterExpired(t *testing.T) {
	t.Parallel()
	srv := start(t)
	w := writer(t, srv)
	w.service("shop", "web", "10.0.0.1", nil)
	w.service("shop", "old", "10.0.0.2", nil)
	w.service("shop", "older", "10.0.0.3", nil)
	proxy := must(NewProxy(srv))(t)
	t.Cleanup(proxy.Close)
	o := cluster.Options{Endpoint: proxy.URL()}
	f := follow(t, o)
	f.synced(t, o)
	f.has(t, cluster.Services, "shop/old shop/older shop/web")

	// First without compaction.
	proxy.Set(Faults{Unauthorized: true})
	proxy.Cut()
	chaintest.Eventually(t, "a log line", func() bool { return f.logs("API server rejects the token or certificate") == 1 })
	w.deleteService("shop", "older")
	proxy.Set(Faults{})
	f.has(t, cluster.Services, "shop/old shop/web")

	// Then with compaction.
	proxy.Set(Faults{Stall: true})
	proxy.Cut()
	w.deleteService("shop", "old")
	w.service("shop", "new", "10.0.0.4", nil)
	if err := srv.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	srv.StopAPI()
	if err := srv.StartAPI(t.Context()); err != nil {
		t.Fatal(err)
	}
	lists := f.lists(cluster.Services)
	proxy.Set(Faults{})
	proxy.Cut()
	f.has(t, cluster.Services, "shop/new shop/web")
	if f.lists(cluster.Services) == lists {
		t.Error("the watch continued, want it to be refused with 410")
	}
	chaintest.Eventually(t, "a log line", func() bool { return f.logs("accepts the credentials again") == 1 })
}

func TestClusterNoServer(t *testing.T) {
	t.Parallel()
	srv := start(t)
	writer(t, srv).service("shop", "web", "10.0.0.1", nil)
	srv.StopAPI()
	dir := t.TempDir()
	o := cluster.Options{Kubeconfig: filepath.Join(dir, "kubeconfig")}
	f := follow(t, o)
	chaintest.Eventually(t, "a log line", func() bool { return f.logs("level=WARN", "kubeconfig") == 1 })

	if err := os.WriteFile(o.Kubeconfig, []byte("clusters: 7\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	chaintest.Eventually(t, "a log line", func() bool { return f.logs("level=WARN", "kubeconfig") == 2 })

	good := must(os.ReadFile(must(srv.Kubeconfig())(t)))(t)
	if err := os.WriteFile(o.Kubeconfig, good, 0o600); err != nil {
		t.Fatal(err)
	}
	chaintest.Eventually(t, "a log line", func() bool { return f.logs("API server unreachable") == 1 })
	if f.lists(cluster.Services) != 0 {
		t.Errorf("lists of Services without an API server: got %d, want none", f.lists(cluster.Services))
	}
	if err := srv.StartAPI(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.has(t, cluster.Services, "shop/web")
	f.synced(t, o)
}

func TestClusterSelectors(t *testing.T) {
	t.Parallel()
	srv := start(t)
	w := writer(t, srv)
	for _, ns := range []string{"a", "b", "c"} {
		w.namespace(ns, map[string]string{"exposed": ns})
		w.service(ns, "web", "10.0.0.1", map[string]string{"tier": "front"})
		w.service(ns, "db", "10.0.0.2", map[string]string{"tier": "back"})
		w.slice(ns, "web", map[string]string{"tier": "front"}, "10.1.0.1")
		w.slice(ns, "db", nil, "10.1.0.2")
	}

	t.Run("namespaces", func(t *testing.T) {
		o := endpoint(srv)
		o.Namespaces = "a,b,none"
		f := follow(t, o)
		f.synced(t, o)
		f.has(t, cluster.Namespaces, "a b")
		f.has(t, cluster.Services, "a/db a/web b/db b/web")
		f.has(t, cluster.Slices, "a/db a/web b/db b/web")
		w := w
		w.T = t
		w.service("none", "web", "10.0.0.3", nil)
		w.service("c", "new", "10.0.0.3", nil)
		w.namespace("none", nil)
		w.deleteService("a", "web")
		f.has(t, cluster.Services, "a/db b/db b/web none/web")
		f.has(t, cluster.Namespaces, "a b none")
		if n := f.lists(cluster.Services); n != 1 {
			t.Errorf("%d lists of Services, want one of all namespaces", n)
		}
		srv.StopAPI()
		if err := srv.Compact(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := srv.StartAPI(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.service("b", "new", "10.0.0.4", nil)
		f.has(t, cluster.Services, "a/db b/db b/new b/web none/web")
	})
	t.Run("namespace_labels", func(t *testing.T) {
		o := endpoint(srv)
		o.NamespaceLabels = "exposed in (a,c)"
		f := follow(t, o)
		f.synced(t, o)
		f.has(t, cluster.Namespaces, "a c")
		b := must(w.CoreV1().Namespaces().Get(t.Context(), "b", metav1.GetOptions{}))(t)
		b.Labels["exposed"] = "a"
		must(w.CoreV1().Namespaces().Update(t.Context(), b, metav1.UpdateOptions{}))(t)
		f.has(t, cluster.Namespaces, "a b c")
	})
	t.Run("labels", func(t *testing.T) {
		o := endpoint(srv)
		o.Labels = "tier=front"
		f := follow(t, o)
		f.synced(t, o)
		f.has(t, cluster.Services, "b/web c/web")
		f.has(t, cluster.Slices, "a/web b/web c/web")
	})
	t.Run("noendpoints", func(t *testing.T) {
		o := endpoint(srv)
		o.NoEndpoints = true
		f := follow(t, o)
		f.synced(t, o)
		if f.lists(cluster.Slices) != 0 {
			t.Errorf("lists of EndpointSlices: got %d, want none", f.lists(cluster.Slices))
		}
	})
}
