package apiserver

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/cluster/api"
	"github.com/seamark/seamark/metrics"
)

const webAndEmpty = `{"metadata":{"namespace":"shop","name":"web"},"spec":{"clusterIP":"10.0.0.1"}},{"metadata":{"namespace":"shop","name":"empty"}}`

// TestLiveRequests checks the paths, parameters and content types of the
// requests.
func TestLiveRequests(t *testing.T) {
	a := serve(t, &fakeServer{objects: map[string]string{"services": webAndEmpty}})
	f, stop := watchCluster(t, cluster.Options{
		Endpoint: a.URL, NamespaceLabels: "exposed", Labels: "tier=front", Pods: true, Multicluster: true,
	})
	f.waitForCall(t, "listed services shop/empty shop/web")
	for _, kind := range []string{"namespaces", "endpointslices", "pods", "serviceimports", "endpointslices (multicluster)"} {
		f.waitForCall(t, "listed "+kind+" ")
	}
	stop()
	want := map[string]string{
		"/api/v1/namespaces":                                 "exposed|",
		"/api/v1/services":                                   "tier=front|",
		"/apis/discovery.k8s.io/v1/endpointslices":           "tier=front|",
		"/api/v1/pods":                                       "tier=front|status.phase!=Succeeded,status.phase!=Failed,status.phase!=Unknown",
		"/apis/multicluster.x-k8s.io/v1beta1/serviceimports": "|",
	}
	for _, r := range a.received() {
		q := r.URL.Query()
		selectors, ok := want[r.URL.Path]
		delete(want, r.URL.Path)
		if got := q.Get("labelSelector") + "|" + q.Get("fieldSelector"); !ok || got != selectors {
			t.Errorf("%s: got selectors %q, want %q", r.URL.Path, got, selectors)
		}
		if q.Get("allowWatchBookmarks") != "true" || q.Get("sendInitialEvents") != "true" || q.Get("timeoutSeconds") == "" {
			t.Errorf("got request %s, want a streaming list with bookmarks and a timeout", r.URL)
		}
		accept := "application/vnd.kubernetes.protobuf"
		if strings.HasSuffix(r.URL.Path, "serviceimports") {
			accept = "application/json"
		}
		if got := r.Header.Get("Accept"); !strings.HasPrefix(got, accept) {
			t.Errorf("%s: header Accept: got %q, want prefix %q", r.URL.Path, got, accept)
		}
		if got := r.UserAgent(); !strings.HasPrefix(got, "seamark/") {
			t.Errorf("header User-Agent: got %q, want prefix seamark/", got)
		}
	}
	if len(want) > 0 {
		t.Errorf("requests not received: %v", want)
	}
}

// An API server that does not stream lists receives plain list requests.
func TestLiveOldServer(t *testing.T) {
	a := serve(t, &fakeServer{old: true, objects: map[string]string{"services": webAndEmpty,
		"endpointslices": `{"metadata":{"namespace":"shop","name":"unlabelled"},"addressType":"IPv4"}`}})
	f, _ := watchCluster(t, cluster.Options{Endpoint: a.URL})
	f.waitForCall(t, "listed services shop/empty shop/web")
	f.waitForCall(t, "listed endpointslices ")
	f.waitFor(t, "quiet log", func() bool { return f.logged.Len() == 0 })
}

// A cluster without the Multi-Cluster Services API has an empty list of
// ServiceImports, and the other kinds do not wait for it.
func TestLiveNoImports(t *testing.T) {
	a := serve(t, &fakeServer{refuse: func(r *http.Request) int {
		if strings.HasSuffix(r.URL.Path, "serviceimports") {
			return http.StatusNotFound
		}
		return 0
	}})
	f, _ := watchCluster(t, cluster.Options{Endpoint: a.URL, Multicluster: true})
	f.waitForCall(t, "listed serviceimports ")
	f.waitForLog(t, "Resource not defined in the API server, retrying\" kind=ServiceImport")
}

// An API server has one version of the Multi-Cluster Services API, or both. When a version is
// removed, the other one is watched.
func TestLiveImportVersions(t *testing.T) {
	for _, served := range []string{"v1alpha1", "v1beta1"} {
		var mu sync.Mutex
		is := served
		a := serve(t, &fakeServer{
			objects: map[string]string{"serviceimports": `{"metadata":{"namespace":"shop","name":"web"},"spec":{"type":"ClusterSetIP","ips":["10.0.0.1"]}}`},
			refuse: func(r *http.Request) int {
				mu.Lock()
				defer mu.Unlock()
				if strings.HasSuffix(r.URL.Path, "serviceimports") && !strings.Contains(r.URL.Path, "/"+is+"/") {
					return http.StatusNotFound
				}
				return 0
			},
		})
		f, _ := watchCluster(t, cluster.Options{Endpoint: a.URL, Multicluster: true, Namespaces: "other,shop"})
		f.waitForCall(t, "listed serviceimports shop/web")
		f.waitFor(t, "a quiet log with "+served, func() bool { return f.logged.Len() == 0 })

		// The watches end, and are resumed with the other version.
		mu.Lock()
		is = map[string]string{"v1alpha1": "v1beta1", "v1beta1": "v1alpha1"}[served]
		mu.Unlock()
		a.CloseClientConnections()
		f.waitFor(t, "a watch of "+is, func() bool {
			for _, r := range a.received() {
				if strings.HasSuffix(r.URL.Path, "/"+is+"/namespaces/shop/serviceimports") && r.URL.Query().Get("resourceVersion") != "" {
					return true
				}
			}
			return false
		})
		if f.logged.Len() > 0 && strings.Contains(f.logged.String(), "not defined") {
			t.Errorf("%s: got log %s, want no problem", served, f.logged.String())
		}
	}
}

// With two requests per second and a burst of one, the third request is sent at
// least a second after the first. Limits of client-go do not apply to watches.
func TestLiveQPS(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	var mu sync.Mutex
	var times []time.Time
	a := serve(t, &fakeServer{refuse: func(*http.Request) int {
		mu.Lock()
		defer mu.Unlock()
		times = append(times, time.Now())
		return 0
	}})
	f, _ := watchCluster(t, cluster.Options{Endpoint: a.URL, QPS: 2, Burst: 1})
	for _, kind := range []cluster.Kind{cluster.Namespaces, cluster.Services, cluster.Slices} {
		f.waitForCall(t, fmt.Sprintf("listed %s ", kind))
	}
	mu.Lock()
	defer mu.Unlock()
	if took := times[2].Sub(times[0]); took < 900*time.Millisecond {
		t.Errorf("three requests with a limit of two per second: got %v, want at least 900ms", took)
	}
}

// At most MaxInflight requests wait for a response. A watch that has begun does
// not count: the first watches would block all other requests.
func TestLiveMaxInflight(t *testing.T) {
	var mu sync.Mutex
	inflight, most := 0, 0
	a := serve(t, &fakeServer{refuse: func(*http.Request) int {
		mu.Lock()
		inflight++
		most = max(most, inflight)
		mu.Unlock()
		time.Sleep(20 * time.Millisecond) // A limit above one would let other requests arrive meanwhile.
		mu.Lock()
		inflight--
		mu.Unlock()
		return 0
	}})
	f, _ := watchCluster(t, cluster.Options{Endpoint: a.URL, Pods: true, MaxInflight: 1})
	for _, kind := range []cluster.Kind{cluster.Namespaces, cluster.Services, cluster.Slices, cluster.Pods} {
		f.waitForCall(t, fmt.Sprintf("listed %s ", kind))
	}
	mu.Lock()
	defer mu.Unlock()
	if most != 1 {
		t.Errorf("concurrent requests: got %d, want 1", most)
	}
}

// An API server that is starting or overloaded counts as unavailable: the same
// request is sent again soon, and a failure that lasts is logged once for each
// resource.
func TestLiveUnavailable(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	var mu sync.Mutex
	n := map[string]int{}
	a := serve(t, &fakeServer{refuse: func(r *http.Request) int {
		mu.Lock()
		defer mu.Unlock()
		times := 6
		if strings.HasSuffix(r.URL.Path, "services") {
			times = 3 // This is too short to be logged.
		}
		if n[r.URL.Path]++; n[r.URL.Path] > times {
			return 0
		}
		return []int{http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusTooManyRequests}[n[r.URL.Path]%3]
	}})
	f, _ := watchCluster(t, cluster.Options{Endpoint: a.URL, NoEndpoints: true})
	f.waitForCall(t, "listed services ")
	f.waitForCall(t, "listed namespaces ")
	f.waitForLog(t, "List or watch failed, retrying\" kind=Namespace verb=watch")
	f.waitForLog(t, "List or watch recovered\" kind=Namespace")
	f.waitFor(t, "two lines", func() bool { return strings.Count(f.logged.String(), "\n") == 2 })
	for _, r := range a.received() {
		if !r.URL.Query().Has("watch") {
			t.Errorf("got request %s, want only watches", r.URL)
		}
	}
}

// The kubeconfig is missing, then names no server, then is valid.
func TestLiveKubeconfig(t *testing.T) {
	a := serve(t, &fakeServer{objects: map[string]string{"services": webAndEmpty}})
	file := filepath.Join(t.TempDir(), "kubeconfig")
	f, _ := watchCluster(t, cluster.Options{Kubeconfig: file, KubeconfigContext: "prod"})
	f.waitForLog(t, "no such file or directory")
	config := `{"apiVersion":"v1","kind":"Config","clusters":[{"name":"c","cluster":{"server":%q}}],"contexts":[{"name":%q,"context":{"cluster":"c"}}]}`
	write := func(context string) {
		t.Helper()
		if err := os.WriteFile(file, fmt.Appendf(nil, config, a.URL, context), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("dev")
	f.waitForLog(t, "context was not found for specified context: prod")
	write("prod")
	f.waitForCall(t, "listed services shop/empty shop/web")
	f.waitForLog(t, "API server address known")
}

func TestLiveNotInPod(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	f, _ := watchCluster(t, cluster.Options{})
	f.waitForLog(t, "not in a pod (KUBERNETES_SERVICE_HOST is not set): name an endpoint, a kubeconfig or a folder of manifests")
}

// An untrusted certificate is reported as such.
func TestLiveUntrusted(t *testing.T) {
	a := &fakeServer{ended: make(chan struct{})}
	a.Server = httptest.NewUnstartedServer(a)
	a.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	a.StartTLS()
	t.Cleanup(a.Close)
	f, _ := watchCluster(t, cluster.Options{Endpoint: a.URL})
	f.waitForLog(t, "certificate signed by unknown authority")
}

// A connection that no longer delivers data is detected by HTTP/2 pings, and the
// watch resumes over a new connection.
func TestLiveHalfOpenConnection(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	t.Setenv("HTTP2_READ_IDLE_TIMEOUT_SECONDS", "1") // client-go's defaults are 30 and 15
	t.Setenv("HTTP2_PING_TIMEOUT_SECONDS", "1")
	a := &fakeServer{ended: make(chan struct{})}
	ca := serveTLS(t, a)
	r := newRelay(t, a.Listener.Addr().String())
	f, _ := watchCluster(t, cluster.Options{Endpoint: "https://" + r.addr, CA: ca, NoEndpoints: true})
	f.waitForCall(t, "listed services ")
	f.waitForCall(t, "listed namespaces ")
	before := len(a.received())
	r.freeze()
	f.waitFor(t, "watch over a new connection", func() bool { return len(a.received()) >= before+2 })
}

// When Run has returned, all of its goroutines have ended, whatever the state of
// its requests was.
func TestLiveStops(t *testing.T) {
	dead := httptest.NewServer(nil)
	dead.Close()
	hangs := serve(t, &fakeServer{refuse: func(r *http.Request) int { <-r.Context().Done(); return 500 }})
	works := serve(t, &fakeServer{})
	for name, o := range map[string]cluster.Options{
		"away":    {Endpoint: dead.URL},
		"hangs":   {Endpoint: hangs.URL},
		"works":   {Endpoint: works.URL, Namespaces: "a,b", Pods: true},
		"limited": {Endpoint: hangs.URL, MaxInflight: 1, QPS: 0.001},
		"nowhere": {Kubeconfig: filepath.Join(t.TempDir(), "none")},
	} {
		t.Run(name, func(t *testing.T) {
			before := runtime.NumGoroutine()
			f, stop := watchCluster(t, o)
			switch name {
			case "works":
				f.waitForCall(t, "listed pods ")
			case "away", "nowhere":
				f.waitForLog(t, "retrying")
			}
			stop()
			f.waitFor(t, "end of goroutines", func() bool { return runtime.NumGoroutine() <= before+2 }) // The other goroutines are the fake server's.
		})
	}
}

// A watch whose server is silent ends 30 s after the time at which the server
// should have ended it.
func TestLiveWatchEnds(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	a := serve(t, &fakeServer{})
	source, o := newSource(new(metrics.Registry)), cluster.Options{Endpoint: a.URL}
	reporter := &reporter{log: source.Log, age: source.Age}
	f := &feed{Resource: api.Slimmer{Options: o, Warn: t.Errorf}.Resources()[0], client: newClient(o, reporter, nil), reporter: reporter, store: &store{source: source}, detector: newStallDetector(defaultTimeouts())}
	defer f.client.closeIdle()
	w, err := f.watch(t.Context(), metav1.ListOptions{TimeoutSeconds: new(int64(-29))})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	select {
	case e, ok := <-w.ResultChan():
		if ok && e.Type != watch.Error {
			t.Errorf("got event %v, want the end of the watch", e)
		}
	case <-time.After(time.Minute):
		t.Error("the watch continued, want it to end")
	}
}

// A response that no API server sends is rejected: an empty JSON object is not an
// empty cluster, and redirects are not followed. The failure is logged once.
func TestLiveInvalidResponses(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"empty object": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte("{}"))
		},
		"redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusFound)
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(answer)
			defer server.Close()
			f, stop := watchCluster(t, cluster.Options{Endpoint: server.URL, NoEndpoints: true})
			f.waitForLog(t, "List or watch failed, retrying\" kind=Namespace verb=list")
			f.waitForLog(t, "List or watch failed, retrying\" kind=Service verb=list")
			stop()
			if len(f.sink.lines) > 0 {
				t.Errorf("%s: got %s in the sink, want nothing", name, f.sink.lines)
			}
		})
	}
}

// An invalid object is received again with each of its changes and with each
// list; the warning is logged once.
func TestLiveWarnsOnce(t *testing.T) {
	var out bytes.Buffer
	warn := warnOnce(slog.New(slog.NewTextHandler(&out, nil)))
	for i := range 3 * maxWarnings {
		for range 2 {
			warn("Service shop/%d: that", i)
		}
	}
	if got := strings.Count(out.String(), "\n"); got != maxWarnings+1 || !strings.Contains(out.String(), "Suppressed further warnings") {
		t.Errorf("log lines: got %d, want %d and a last one about suppressed warnings", got, maxWarnings)
	}
}
