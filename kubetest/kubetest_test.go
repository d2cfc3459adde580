package kubetest

import (
	"context"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/seamark/seamark/test/chaintest"
)

// patience is how long a test waits for an event.
const patience = time.Minute

// start starts a server for a test, which takes seconds.
func start(t *testing.T) *Server {
	t.Helper()
	if testing.Short() {
		t.Skip("it starts an API server")
	}
	srv, err := Start(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Stop)
	return srv
}

// client returns a client that leaves no idle connections behind.
func client(t *testing.T, c *rest.Config) kubernetes.Interface {
	t.Helper()
	k, err := kubernetes.NewForConfigAndClient(c, httpClient(t, c))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// httpClient returns an HTTP client whose connections end with the test.
func httpClient(t *testing.T, c *rest.Config) *http.Client {
	t.Helper()
	tlsConfig, err := rest.TLSConfigFor(c)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: tlsConfig, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// next returns the next event of a watch.
func next(t *testing.T, w watch.Interface) watch.Event {
	t.Helper()
	select {
	case e, ok := <-w.ResultChan():
		if !ok {
			t.Fatal("the watch has ended, want an event")
		}
		return e
	case <-time.After(patience):
		t.Fatalf("got no event within %v, want one", patience)
	}
	panic("unreachable")
}

// configMap returns a ConfigMap.
func configMap(name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"key": value}}
}

// put creates a ConfigMap in the namespace and returns it as stored.
func put(t *testing.T, k kubernetes.Interface, ns, name string) *corev1.ConfigMap {
	t.Helper()
	c, err := k.CoreV1().ConfigMaps(ns).Create(t.Context(), configMap(name, "1"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// reflect keeps a store in step with the ConfigMaps of a namespace during the
// test.
func reflect(t *testing.T, k kubernetes.Interface, ns string) cache.Store {
	store := cache.NewStore(cache.MetaNamespaceKeyFunc)
	lw := cache.NewListWatchFromClient(k.CoreV1().RESTClient(), "configmaps", ns, fields.Everything())
	r := cache.NewReflectorWithOptions(lw, &corev1.ConfigMap{}, store, cache.ReflectorOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.RunWithContext(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return store
}

// has reports whether the store holds an object with that key.
func has(store cache.Store, key string) func() bool {
	return func() bool {
		_, ok, _ := store.GetByKey(key)
		return ok
	}
}

func TestRestartKeepsPortAndReflectorReconnects(t *testing.T) {
	t.Parallel()
	srv := start(t)
	k := client(t, srv.Config())
	put(t, k, "a", "before")
	store := reflect(t, k, "a")
	chaintest.Eventually(t, "the first object", has(store, "a/before"))

	url := srv.URL()
	w, err := k.CoreV1().ConfigMaps("a").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if e := next(t, w); e.Type != watch.Added {
		t.Fatalf("first event of the watch: got %v, want ADDED", e)
	}
	srv.StopAPI()
	srv.StopAPI() // A second call does nothing.
	select {
	case e, ok := <-w.ResultChan():
		if ok {
			t.Errorf("event after the stop: got %v, want none", e)
		}
	case <-time.After(patience):
		t.Error("the watch is still open after the stop, want it closed")
	}
	_, err = k.CoreV1().ConfigMaps("a").List(t.Context(), metav1.ListOptions{})
	if err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("list from a stopped server: got error %v, want connection refused", err)
	}
	if err := srv.StartAPI(t.Context()); err != nil {
		t.Fatal(err)
	}
	if srv.URL() != url {
		t.Errorf("URL after the restart: got %s, want %s", srv.URL(), url)
	}
	put(t, k, "a", "after")
	chaintest.Eventually(t, "the reflector's return", has(store, "a/after"))
	if !has(store, "a/before")() {
		t.Error("a/before is missing after the restart, want it in the store")
	}
}

func TestExpired(t *testing.T) {
	t.Parallel()
	srv := start(t)
	k := client(t, srv.Config())
	old := put(t, k, "a", "old").ResourceVersion
	put(t, k, "a", "new")

	list := func() error {
		_, err := k.CoreV1().ConfigMaps("a").List(t.Context(), metav1.ListOptions{
			ResourceVersion: old, ResourceVersionMatch: metav1.ResourceVersionMatchExact})
		return err
	}
	if err := list(); err != nil {
		t.Fatalf("list at an old version before compaction: got error %v, want none", err)
	}
	for range 2 { // A second attempt has the same result.
		if err := srv.Compact(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	srv.StopAPI()
	if err := srv.StartAPI(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := list(); !apierrors.IsResourceExpired(err) {
		t.Errorf("list at a compacted version: %v; want expired", err)
	}
	w, err := k.CoreV1().ConfigMaps("a").Watch(t.Context(), metav1.ListOptions{ResourceVersion: old})
	if err == nil {
		defer w.Stop()
		err = apierrors.FromObject(next(t, w).Object)
	}
	if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		t.Errorf("watch at a compacted version: %v; want 410", err)
	}
	if _, err := k.CoreV1().ConfigMaps("a").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("list at the present: %v", err)
	}
}

func TestKubeconfigAndCA(t *testing.T) {
	t.Parallel()
	srv := start(t)
	path, err := srv.Kubeconfig()
	if err != nil {
		t.Fatal(err)
	}
	c, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client(t, c).Discovery().ServerVersion(); err != nil {
		t.Errorf("with the kubeconfig: %v", err)
	}
	c = &rest.Config{Host: srv.URL(), TLSClientConfig: rest.TLSClientConfig{CAFile: srv.CAFile()}}
	if _, err := client(t, c).Discovery().ServerVersion(); err != nil {
		t.Errorf("with the CA file: %v", err)
	}
}

func TestStartFails(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it builds the API server")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if srv, err := Start(ctx, t.TempDir()); err == nil {
		srv.Stop()
		t.Error("Start with a cancelled context: got no error, want one")
	}
	if srv, err := Start(t.Context(), os.DevNull); err == nil {
		srv.Stop()
		t.Error("Start in /dev/null: got no error, want one")
	}
}

// BenchmarkStart measures the cost for each test: a start, a stop, and a restart
// of the API.
func BenchmarkStart(b *testing.B) {
	var starting, restarting, stopping time.Duration
	for b.Loop() {
		t0 := time.Now()
		srv, err := Start(b.Context(), b.TempDir())
		if err != nil {
			b.Fatal(err)
		}
		t1 := time.Now()
		srv.StopAPI()
		if err := srv.StartAPI(b.Context()); err != nil {
			b.Fatal(err)
		}
		t2 := time.Now()
		srv.Stop()
		starting, restarting, stopping = starting+t1.Sub(t0), restarting+t2.Sub(t1), stopping+time.Since(t2)
	}
	b.ReportMetric(float64(starting.Milliseconds())/float64(b.N), "ms/start")
	b.ReportMetric(float64(restarting.Milliseconds())/float64(b.N), "ms/restart")
	b.ReportMetric(float64(stopping.Milliseconds())/float64(b.N), "ms/stop")
}
