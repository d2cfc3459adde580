package kubetest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/test/chaintest"
)

// comparisons returns the number of comparisons with a result.
func (f *follower) comparisons(resource, result string) int {
	return int(f.metrics.Counter("seamark_kubernetes_comparisons_total", "", "resource", resource, "result", result).Value())
}

// A change that a watch has not delivered is found, and the objects are listed again.
func TestClusterMissedEvents(t *testing.T) {
	t.Parallel()
	srv := start(t)
	w := writer(t, srv)
	w.namespace("shop", map[string]string{"exposed": "yes"})
	front := map[string]string{"tier": "front"}
	for _, c := range []struct {
		name, resource string
		kind           cluster.Kind
		options        func(*cluster.Options)
		create         func(w clusterWriter, name string)
		delete         func(w clusterWriter, name string) error
	}{
		{
			"Service", "services", cluster.Services, func(*cluster.Options) {},
			func(w clusterWriter, name string) { w.service("shop", name, "10.0.0.1", front) },
			func(w clusterWriter, name string) error {
				return w.CoreV1().Services("shop").Delete(w.Context(), name, metav1.DeleteOptions{})
			},
		}, {
			"Service with a label", "services", cluster.Services, func(o *cluster.Options) { o.Labels = "tier=front" },
			func(w clusterWriter, name string) { w.service("shop", name, "10.0.0.1", front) },
			func(w clusterWriter, name string) error {
				return w.CoreV1().Services("shop").Delete(w.Context(), name, metav1.DeleteOptions{})
			},
		}, {
			"Service of a namespace", "services", cluster.Services, func(o *cluster.Options) { o.Namespaces = "shop" },
			func(w clusterWriter, name string) { w.service("shop", name, "10.0.0.1", front) },
			func(w clusterWriter, name string) error {
				return w.CoreV1().Services("shop").Delete(w.Context(), name, metav1.DeleteOptions{})
			},
		}, {
			"EndpointSlice", "endpointslices", cluster.Slices, func(*cluster.Options) {},
			func(w clusterWriter, name string) { w.slice("shop", name, nil, "10.1.0.1") },
			func(w clusterWriter, name string) error {
				return w.DiscoveryV1().EndpointSlices("shop").Delete(w.Context(), name, metav1.DeleteOptions{})
			},
		}, {
			"Pod", "pods", cluster.Pods, func(o *cluster.Options) { o.Pods = true },
			func(w clusterWriter, name string) { w.pod("shop", name, "10.2.0.1") },
			func(w clusterWriter, name string) error {
				return w.CoreV1().Pods("shop").Delete(w.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
			},
		}, {
			"ServiceImport", "serviceimports", cluster.Imports, func(o *cluster.Options) { o.Multicluster = true },
			func(w clusterWriter, name string) { w.serviceImport("shop", name, map[string]any{"type": "Headless"}) },
			func(w clusterWriter, name string) error {
				return w.imports.Namespace("shop").Delete(w.Context(), name, metav1.DeleteOptions{})
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			proxy := must(NewProxy(srv))(t)
			t.Cleanup(proxy.Close)
			w := w
			w.T = t
			o := cluster.Options{Endpoint: proxy.URL(), CompareInterval: 500 * time.Millisecond}
			c.options(&o)
			f := follow(t, o)
			f.synced(t, o)
			chaintest.Eventually(t, "a comparison", func() bool { return f.comparisons(c.resource, "equal") > 0 })
			// without loses an event and waits until the watch has delivered a later one.
			others := 0
			without := func(change func()) {
				proxy.Set(Faults{Lose: "lost"})
				change()
				others++
				name := fmt.Sprintf("other-%d", others)
				c.create(w, name)
				chaintest.Eventually(t, "another object", func() bool { return f.get(c.kind, "shop", name) != nil })
				proxy.Set(Faults{})
			}
			without(func() { c.create(w, "lost") })
			chaintest.Eventually(t, "the object that was created", func() bool { return f.get(c.kind, "shop", "lost") != nil })
			without(func() {
				if err := c.delete(w, "lost"); err != nil {
					t.Fatal(err)
				}
			})
			chaintest.Eventually(t, "the deletion", func() bool { return f.get(c.kind, "shop", "lost") == nil })
			different := f.comparisons(c.resource, "different")
			if different < 2 || f.logs("level=WARN", "Watch has missed changes, listing again") != different || f.comparisons(c.resource, "failed") > 0 {
				t.Errorf("comparisons: got %d different and %d failed, want at least 2, none, and as many warnings", different, f.comparisons(c.resource, "failed"))
			}
			for i := range others {
				if err := c.delete(w, fmt.Sprintf("other-%d", i+1)); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// A missed update of an object is found, too.
func TestClusterMissedUpdate(t *testing.T) {
	t.Parallel()
	srv := start(t)
	w := writer(t, srv)
	w.service("shop", "lost", "10.0.0.1", nil)
	proxy := must(NewProxy(srv))(t)
	t.Cleanup(proxy.Close)
	o := cluster.Options{Endpoint: proxy.URL(), CompareInterval: 500 * time.Millisecond}
	f := follow(t, o)
	f.synced(t, o)
	proxy.Set(Faults{Lose: "lost"})
	s := must(w.CoreV1().Services("shop").Get(t.Context(), "lost", metav1.GetOptions{}))(t)
	s.Spec.Type, s.Spec.ExternalName = corev1.ServiceTypeExternalName, "example.com"
	must(w.CoreV1().Services("shop").Update(t.Context(), s, metav1.UpdateOptions{}))(t)
	w.service("shop", "other", "10.0.0.2", nil)
	chaintest.Eventually(t, "another object", func() bool { return f.get(cluster.Services, "shop", "other") != nil })
	proxy.Set(Faults{})
	chaintest.Eventually(t, "the update", func() bool {
		return f.get(cluster.Services, "shop", "lost").(*cluster.Service).ExternalName == "example.com"
	})
}

// Comparisons in several pages, while objects change, find no differences.
func TestClusterComparesWhileChanging(t *testing.T) {
	t.Parallel()
	srv := start(t)
	w := writer(t, srv)
	for i := range 1100 {
		w.service("shop", fmt.Sprintf("s%d", i), "10.0.0.1", nil)
	}
	o := endpoint(srv)
	o.CompareInterval = 20 * time.Millisecond
	f := follow(t, o)
	f.synced(t, o)
	for i := 0; f.comparisons("services", "equal") < 5; i++ {
		name := fmt.Sprintf("s%d", i%1100)
		w.deleteService("shop", name)
		w.service("shop", name, "10.0.0.2", nil)
	}
	if different, failed := f.comparisons("services", "different"), f.comparisons("services", "failed"); different+failed > 0 || strings.Contains(f.log(), "missed") {
		t.Errorf("comparisons: got %d different and %d failed, want none; log:\n%s", different, failed, f.log())
	}
}
