package kubetest

import (
	"bytes"
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/cluster/sources"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/test/chaintest"
)

// A follower runs a source of a cluster and keeps the objects that it delivers.
type follower struct {
	mu      sync.Mutex
	objects [cluster.Kinds]map[cluster.Key]cluster.Object
	relists [cluster.Kinds]int
	logged  bytes.Buffer
	metrics metrics.Registry
	stop    func() // ends Run and waits for it
}

// follow runs a follower until the test ends.
func follow(t *testing.T, o cluster.Options) *follower {
	t.Helper()
	if err := o.Check(); err != nil {
		t.Fatal(err)
	}
	f := new(follower)
	for k := range f.objects {
		f.objects[k] = map[cluster.Key]cluster.Object{}
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		sources.Run(ctx, o, f, slog.New(slog.NewTextHandler(f, nil)), &f.metrics, nil, nil)
	}()
	f.stop = func() {
		cancel()
		select {
		case <-done:
		case <-time.After(patience):
			t.Error("Run has not returned after the end of its context")
		}
	}
	t.Cleanup(func() {
		f.stop()
		if t.Failed() {
			t.Logf("the source's log:\n%s", f.log())
		}
	})
	return f
}

func (f *follower) Write(line []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.logged.Write(line)
}

func (f *follower) log() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.logged.String()
}

func (f *follower) Put(k cluster.Kind, os ...cluster.Object) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, o := range os {
		f.objects[k][o.Key()] = o
	}
}

func (f *follower) Delete(k cluster.Kind, key cluster.Key) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.objects[k], key)
}

func (f *follower) Listed(k cluster.Kind, has func(cluster.Key) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.relists[k]++
	maps.DeleteFunc(f.objects[k], func(key cluster.Key, _ cluster.Object) bool { return !has(key) })
}

// get returns an object, nil if there is none.
func (f *follower) get(k cluster.Kind, namespace, name string) cluster.Object {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.objects[k][cluster.Key{Namespace: namespace, Name: name}]
}

// names returns the keys of a kind as namespace/name, sorted.
func (f *follower) names(k cluster.Kind) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var names []string
	for key := range maps.Keys(f.objects[k]) {
		names = append(names, strings.TrimPrefix(key.Namespace+"/"+key.Name, "/"))
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// lists returns how often a kind was listed.
func (f *follower) lists(k cluster.Kind) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.relists[k]
}

// synced waits for the first list of each kind.
func (f *follower) synced(t *testing.T, o cluster.Options) {
	t.Helper()
	for _, k := range o.Kinds() {
		chaintest.Eventually(t, "the first list of "+k.String(), func() bool { return f.lists(k) > 0 })
	}
}

// has waits until a kind has exactly the objects in want.
func (f *follower) has(t *testing.T, k cluster.Kind, want string) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for f.names(k) != want {
		if time.Now().After(deadline) {
			t.Fatalf("%s: got %q, want %q", k, f.names(k), want)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// logs counts the log lines that contain all of these words.
func (f *follower) logs(words ...string) int {
	n := 0
	for line := range strings.Lines(f.log()) {
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) }) {
			n++
		}
	}
	return n
}

// A clusterWriter changes the objects of a server. An error ends the test.
type clusterWriter struct {
	*testing.T
	kubernetes.Interface
	imports dynamic.NamespaceableResourceInterface
}

func writer(t *testing.T, srv *Server) clusterWriter {
	t.Helper()
	c := srv.Config()
	d, err := dynamic.NewForConfigAndClient(c, httpClient(t, c))
	if err != nil {
		t.Fatal(err)
	}
	imports := schema.GroupVersionResource{Group: "multicluster.x-k8s.io", Version: "v1alpha1", Resource: "serviceimports"}
	return clusterWriter{t, client(t, c), d.Resource(imports)}
}

func must[T any](o T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
}

func (w clusterWriter) namespace(name string, labels map[string]string) {
	w.Helper()
	must(w.CoreV1().Namespaces().Create(w.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, metav1.CreateOptions{}))(w.T)
}

func (w clusterWriter) service(namespace, name, ip string, labels map[string]string) {
	w.Helper()
	must(w.CoreV1().Services(namespace).Create(w.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec:       corev1.ServiceSpec{ClusterIP: ip, Ports: []corev1.ServicePort{{Name: "HTTP", Port: 80}}},
	}, metav1.CreateOptions{}))(w.T)
}

func (w clusterWriter) deleteService(namespace, name string) {
	w.Helper()
	if err := w.CoreV1().Services(namespace).Delete(w.Context(), name, metav1.DeleteOptions{}); err != nil {
		w.Fatal(err)
	}
}

// slice creates an EndpointSlice for the Service of the same name.
func (w clusterWriter) slice(namespace, name string, labels map[string]string, addrs ...string) {
	w.Helper()
	all := map[string]string{discoveryv1.LabelServiceName: name}
	if labels[discoveryv1.LabelServiceName] == "-" {
		delete(all, discoveryv1.LabelServiceName)
		delete(labels, discoveryv1.LabelServiceName)
	}
	maps.Copy(all, labels)
	must(w.DiscoveryV1().EndpointSlices(namespace).Create(w.Context(), &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: name, Labels: all},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: addrs}},
	}, metav1.CreateOptions{}))(w.T)
}

func endpoint(srv *Server) cluster.Options {
	return cluster.Options{Endpoint: srv.URL(), CA: srv.CAFile()}
}
