package servers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"github.com/seamark/seamark/cluster"
)

// The pods of a cluster: a ready server, one that is not ready, one that has ended, one whose admin
// has a port of its own, and a node cache with the chart's labels.
const clusterPods = `{"items":[
{"metadata":{"namespace":"kube-system","name":"seamark-c"},"spec":{"nodeName":"n3","containers":[{"args":["-conf","x"]}]},"status":{"phase":"Running"}},
{"metadata":{"namespace":"kube-system","name":"seamark-b"},"spec":{"nodeName":"n2","containers":[{"args":["-conf","x","-admin","localhost:9000"]}]},"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}},
{"metadata":{"namespace":"kube-system","name":"seamark-a"},"spec":{"nodeName":"n1","containers":[{},{"args":["-admin=localhost:8053"]}]},"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}},
{"metadata":{"namespace":"kube-system","name":"seamark-old","deletionTimestamp":"2026-01-01T00:00:00Z"},"status":{"phase":"Running"}},
{"metadata":{"namespace":"kube-system","name":"test"},"status":{"phase":"Succeeded"}},
{"metadata":{"namespace":"kube-system","name":"cache"},"spec":{"containers":[{"args":["node","-localip=169.254.20.10","-admin=localhost:8054"]}]},"status":{"phase":"Running"}}]}`

// options returns options for an API server with responses by path and labels. A port forward to
// seamark-a reaches a server, one to hung a server that does not answer, one to another pod nothing.
func options(t *testing.T, responses map[string]string) Options {
	t.Helper()
	admin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"summary":"Healthy."}`)
	}))
	t.Cleanup(admin.Close)
	supervisor := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "# HELP x y\nseamark_node_gate_open 0\nseamark_node_capture_paused_interfaces 3\n"+
			"seamark_node_worker_restarts_total 0\ncoredns_nodecache_setup_errors_total{errortype=\"configmap\"} 2\nnonsense\n")
	}))
	t.Cleanup(supervisor.Close)
	silent, err := net.Listen("tcp", "127.0.0.1:0") // connections wait in its backlog
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := r.URL.Path
		if selector := r.URL.Query().Get("labelSelector"); selector != "" {
			key += " " + selector
		}
		if page := r.URL.Query().Get("continue"); page != "" {
			key += " " + page
		}
		switch text, ok := responses[key]; {
		case strings.HasSuffix(key, "/seamark-a/portforward"):
			portForward(w, r, admin.Listener.Addr().String())
		case strings.HasSuffix(key, "/cache/portforward"):
			portForward(w, r, supervisor.Listener.Addr().String())
		case strings.HasSuffix(key, "/hung/portforward"):
			portForward(w, r, silent.Addr().String())
		case strings.HasSuffix(key, "/seamark-b/portforward"):
			portForward(w, r, "127.0.0.1:1")
		case ok && text != "403":
			fmt.Fprint(w, text)
		case strings.HasSuffix(key, " "+canarySelector):
			fmt.Fprint(w, `{"items":[]}`)
		case ok || strings.HasSuffix(key, "/portforward"):
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"the account is forbidden to do this","reason":"Forbidden","code":403}`)
		default:
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"pods not found","code":404}`)
		}
	}))
	t.Cleanup(api.Close)

	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters: [{name: a, cluster: {server: %q}}]\n"+
		"contexts: [{name: a, context: {cluster: a}}]\ncurrent-context: a\n", api.URL)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return Options{Cluster: cluster.Options{Kubeconfig: file}, Namespace: Namespace, Timeout: time.Minute}
}

// portForward serves a port forward to an address.
func portForward(w http.ResponseWriter, r *http.Request, target string) {
	if _, err := httpstream.Handshake(r, w, []string{"portforward.k8s.io"}); err != nil {
		return
	}
	failures := make(chan httpstream.Stream, 10)
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, _ <-chan struct{}) error {
		if s.Headers().Get("streamType") == "error" {
			failures <- s // before its data stream
			return nil
		}
		go forward(s, <-failures, target)
		return nil
	})
	if conn != nil {
		<-conn.CloseChan()
	}
}

func forward(data, failure httpstream.Stream, target string) {
	defer func() { _ = data.Close() }()
	conn, err := net.Dial("tcp", target)
	if err != nil {
		fmt.Fprint(failure, "failed to connect to localhost:9000 inside namespace: connection refused")
		_ = failure.Close()
		return
	}
	defer func() { _ = conn.Close() }()
	_ = failure.Close()
	go func() {
		_, _ = io.Copy(conn, data)
		_ = conn.Close()
	}()
	_, _ = io.Copy(data, conn)
}

const (
	list     = "/api/v1/namespaces/kube-system/pods " + Selector
	nodeList = "/api/v1/namespaces/kube-system/pods " + NodeSelector
)

// All running servers are found, the ready ones first, and node caches only with Nodes.
func TestPodsOfCluster(t *testing.T) {
	o := options(t, map[string]string{list: clusterPods, nodeList: clusterPods,
		"/api/v1/namespaces/kube-system/pods/seamark-b": `{"metadata":{"namespace":"kube-system","name":"seamark-b"}}`})
	for _, c := range []struct {
		change func(*Options)
		want   []string
	}{
		{func(*Options) {}, []string{"kube-system/seamark-a port 8053 n1", "kube-system/seamark-b port 9000 n2", "kube-system/seamark-c port 8053 n3"}},
		{func(o *Options) { o.Nodes = true }, []string{"kube-system/cache port 8054 "}},
		{func(o *Options) { o.Port = 7000; o.Name = "seamark-b" }, []string{"kube-system/seamark-b port 7000 "}},
	} {
		changed := o
		c.change(&changed)
		found, err := Pods(t.Context(), changed)
		var got []string
		for _, s := range found {
			got = append(got, s.Address()+" "+s.Node)
			s.Close()
		}
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%+v: got %q and error %v, want %q", changed, got, err, c.want)
		}
	}
}

// Pods of a canary have the name of CoreDNS behind the Service of CoreDNS's chart, and are found by a label of their own.
func TestPodsOfCanary(t *testing.T) {
	const behind = `{"items":[{"metadata":{"namespace":"kube-system","name":"seamark-canary-a"},"spec":{},"status":{"phase":"Running"}}]}`
	for _, c := range []struct {
		listed, selector string
		want             []string
	}{
		{`{"items":[]}`, "", []string{"seamark-canary-a"}},
		{clusterPods, "", []string{"seamark-a", "seamark-b", "seamark-c", "seamark-canary-a"}},
		{clusterPods, Selector, []string{"seamark-a", "seamark-b", "cache", "seamark-c"}},
	} {
		o := options(t, map[string]string{list: c.listed, "/api/v1/namespaces/kube-system/pods " + canarySelector: behind})
		o.Selector = c.selector
		found, err := Pods(t.Context(), o)
		var got []string
		for _, s := range found {
			got = append(got, s.Pod.Name)
			s.Close()
		}
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("selector %q: got %q and error %v, want %q", c.selector, got, err, c.want)
		}
	}
}

// The API server lists pods in pages, of which the first may have node caches only.
func TestPodsOfSeveralPages(t *testing.T) {
	const caches = `{"metadata":{"continue":"a+b/="},"items":[{"metadata":{"namespace":"kube-system","name":"cache"},"spec":{"containers":[{"args":["node","-localip=169.254.20.10"]}]},"status":{"phase":"Running"}}]}`
	more := strings.Replace(clusterPods, `{"items"`, `{"metadata":{"continue":"3"},"items"`, 1)
	last := `{"items":[{"metadata":{"namespace":"kube-system","name":"seamark-z"},"spec":{},"status":{"phase":"Running"}}]}`
	found, err := Pods(t.Context(), options(t, map[string]string{list: caches, list + " a+b/=": more, list + " 3": last}))
	var got []string
	for _, s := range found {
		got = append(got, s.Pod.Name)
		s.Close()
	}
	if want := []string{"seamark-a", "seamark-b", "seamark-c", "seamark-z"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q and error %v, want %q", got, err, want)
	}
}

// Each server is reached by a port forward of its own; errors say what to do.
func TestPortForwardsToPods(t *testing.T) {
	found, err := Pods(t.Context(), options(t, map[string]string{list: clusterPods}))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{
		"", "its pod has no admin there: add -admin=localhost:9000 to its arguments",
		"you need the permission to create pods/portforward in its namespace",
	} {
		defer found[i].Close()
		s, err := found[i].Status(t.Context())
		switch {
		case want == "" && (err != nil || s.Summary != "Healthy."):
			t.Errorf("%s: got %+v and error %v, want a healthy server", found[i].Address(), s, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: got error %v, want %q", found[i].Address(), err, want)
		}
	}
}

func TestPodsErrors(t *testing.T) {
	one := `{"items":[{"metadata":{"namespace":"dns","name":"a"},"status":{"phase":"%s"}}]}`
	socket := `{"metadata":{"namespace":"kube-system","name":"a"},"spec":{"containers":[{"args":["--admin=unix:/run/a"]}]}}`
	for _, c := range []struct {
		responses map[string]string
		name      string
		want      string
	}{
		{map[string]string{list: `{"items":[]}`}, "", "set --namespace, --selector or --pod, or --admin"},
		{map[string]string{list: `{"items":[]}`, "/api/v1/pods " + Selector: fmt.Sprintf(one, "Running")}, "", "set --namespace dns"},
		{map[string]string{list: fmt.Sprintf(one, "Pending")}, "", "does not run: see kubectl -n kube-system describe pod a"},
		{map[string]string{list: "403"}, "", "you need the permissions to get and list pods, and to create pods/portforward"},
		{map[string]string{}, "a", "see kubectl -n kube-system get pods -l " + Selector},
		{map[string]string{"/api/v1/namespaces/kube-system/pods/a": socket}, "a", "listens on unix:/run/a, which no port forward reaches"},
		{map[string]string{list: "x"}, "", "reading the pods with the labels"},
	} {
		o := options(t, c.responses)
		o.Name = c.name
		if found, err := Pods(t.Context(), o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: got %v and error %v, want %q", c.responses, found, err, c.want)
		}
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Pods(ctx, options(t, nil)); err == nil {
		t.Error("after the end of the context: got no error")
	}
}

// The supervisor of a node cache says what is wrong with its capture; of other servers there is nothing.
func TestNodeConditions(t *testing.T) {
	for _, nodes := range []bool{true, false} {
		o := options(t, map[string]string{list: clusterPods, nodeList: clusterPods})
		o.Nodes = nodes
		found, err := Pods(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		conditions, err := found[0].NodeConditions(t.Context())
		var got []string
		for _, c := range conditions {
			got = append(got, string(c.Severity)+" "+c.Alert)
		}
		want := []string{"warning SeamarkNodeCapturePaused", "warning SeamarkNodeGateClosed", "note SeamarkNodeSetupErrors"}
		if !nodes {
			want = nil
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("node caches %v: got %q and error %v, want %q", nodes, got, err, want)
		}
		for _, s := range found {
			s.Close()
		}
	}
}

// A supervisor that does not answer is given up after the timeout.
func TestNodeConditionsOfHungSupervisorEnd(t *testing.T) {
	o := options(t, map[string]string{nodeList: strings.ReplaceAll(clusterPods, `"cache"`, `"hung"`)})
	o.Nodes = true
	found, err := Pods(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer found[0].Close()

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	found[0].timeout = 50 * time.Millisecond
	_, err = found[0].NodeConditions(ctx)
	if ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got error %v, and of the context %v, want the end of the timeout of the server", err, ctx.Err())
	}
}

// Each alert about node caches is a condition.
func TestNodeConditionsAreAlerts(t *testing.T) {
	text, err := os.ReadFile("../../deploy/helm/seamark/files/node-alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	alerts := regexp.MustCompile(`(?m)^- alert: (\w+)\n +expr: (?:increase\()?(\w+)`).FindAllStringSubmatch(string(text), -1)
	if len(alerts) < 4 {
		t.Fatalf("got the alerts %q, want 4 or more", alerts)
	}
	for _, a := range alerts {
		var found []string
		for _, value := range []float64{0, 1} {
			if c, ok := nodeCondition(a[2], value); ok {
				found = append(found, c.Alert)
			}
		}
		if !slices.Equal(found, []string{a[1]}) {
			t.Errorf("%s: got the conditions %q of its metric %s, want one", a[1], found, a[2])
		}
	}
}
