package kubetest

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/seamark/seamark/test/chaintest"
)

// TestProxy applies each fault once, and removes it.
func TestProxy(t *testing.T) {
	t.Parallel()
	srv := start(t)
	p, err := NewProxy(srv)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	k := client(t, p.Config())
	put(t, k, "a", "first")
	for name, test := range map[string]func(*testing.T, *Proxy, kubernetes.Interface){
		"refusals": testRefusals,
		"garbage":  testGarbage,
		"cuts":     testCuts,
		"delay":    testDelay,
		"stall": func(t *testing.T, p *Proxy, k kubernetes.Interface) {
			testStall(t, p, k, client(t, srv.Config()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			defer p.Set(Faults{})
			test(t, p, k)
			p.Set(Faults{})
			if err := list(t.Context(), k); err != nil {
				t.Errorf("after healing: %v", err)
			}
		})
	}
	t.Run("kubeconfig", func(t *testing.T) {
		path, err := p.Kubeconfig()
		if err != nil {
			t.Fatal(err)
		}
		c, err := clientcmd.BuildConfigFromFlags("", path)
		if err != nil {
			t.Fatal(err)
		}
		if err := list(t.Context(), client(t, c)); err != nil {
			t.Error(err)
		}
	})
	t.Run("API away", func(t *testing.T) {
		srv.StopAPI()
		resp := get(t, p, "/api/v1/configmaps")
		if resp.Body.Close(); resp.StatusCode != http.StatusBadGateway {
			t.Errorf("answer %s; want 502", resp.Status)
		}
		if err := srv.StartAPI(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := list(t.Context(), k); err != nil {
			t.Errorf("after the return: %v", err)
		}
	})
}

// list lists the ConfigMaps of namespace a.
func list(ctx context.Context, k kubernetes.Interface) error {
	_, err := k.CoreV1().ConfigMaps("a").List(ctx, metav1.ListOptions{})
	return err
}

// get sends a request on its own connection and returns after the response's
// header.
func get(t *testing.T, p *Proxy, path string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "GET", p.URL()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

func testRefusals(t *testing.T, p *Proxy, k kubernetes.Interface) {
	p.Set(Faults{Forbidden: []string{"endpointslices"}})
	if _, err := k.DiscoveryV1().EndpointSlices("").Watch(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a forbidden resource: %v; want forbidden", err)
	}
	if err := list(t.Context(), k); err != nil {
		t.Errorf("another resource: %v", err)
	}
	p.Set(Faults{Unauthorized: true})
	if err := list(t.Context(), k); !apierrors.IsUnauthorized(err) {
		t.Errorf("list: %v; want unauthorized", err)
	}
	p.Set(Faults{Unauthorized: true, Only: []string{"pods"}})
	if err := list(t.Context(), k); err != nil {
		t.Errorf("a resource without faults: %v", err)
	}
}

func testGarbage(t *testing.T, p *Proxy, k kubernetes.Interface) {
	p.Set(Faults{Garbage: true})
	protobuf := p.Config()
	protobuf.ContentType = runtime.ContentTypeProtobuf
	for _, k := range []kubernetes.Interface{k, client(t, protobuf)} {
		err := list(t.Context(), k)
		if status := apierrors.APIStatus(nil); err == nil || errors.As(err, &status) {
			t.Errorf("list: %v; want a decoding error", err)
		}
	}
}

func testCuts(t *testing.T, p *Proxy, k kubernetes.Interface) {
	const limit = 20
	p.Set(Faults{CutAfter: limit})
	for _, path := range []string{"/api/v1/configmaps", "/api/v1/configmaps?watch=1"} {
		resp := get(t, p, path)
		data, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if len(data) != limit || !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s: %d bytes, %v; want %d and an unexpected end", path, len(data), err, limit)
		}
	}
	if err := list(t.Context(), k); err == nil {
		t.Error("the whole list was received, want it cut")
	}

	p.Set(Faults{})
	resp := get(t, p, "/api/v1/namespaces/a/configmaps?watch=1")
	defer resp.Body.Close()
	if _, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	p.Cut()
	if _, err := io.Copy(io.Discard, resp.Body); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("an open watch ended with %v; want an unexpected end", err)
	}

	// A reflector recovers from it.
	store := reflect(t, k, "cut")
	put(t, k, "cut", "before")
	chaintest.Eventually(t, "the first object", has(store, "cut/before"))
	p.Cut()
	put(t, k, "cut", "after")
	chaintest.Eventually(t, "the object after the cut", has(store, "cut/after"))
}

func testStall(t *testing.T, p *Proxy, k, direct kubernetes.Interface) {
	resp := get(t, p, "/api/v1/namespaces/stall/configmaps?watch=1")
	defer resp.Body.Close()
	lines := make(chan string)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(resp.Body); s.Scan(); {
			lines <- s.Text()
		}
	}()
	put(t, k, "stall", "before")
	if line := <-lines; !strings.Contains(line, `"before"`) {
		t.Fatalf("first line of the watch: got %s, want the object before", line)
	}

	// Only the passing of time shows that nothing is received. It is short, since
	// a wrong byte would be received at once.
	const moment = 100 * time.Millisecond
	p.Set(Faults{Stall: true, Only: []string{"configmaps"}})
	if _, err := k.CoreV1().Services("").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("a resource without faults: %v", err)
	}
	p.Set(Faults{Stall: true})
	ctx, cancel := context.WithTimeout(t.Context(), moment)
	defer cancel()
	if err := list(ctx, k); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a stalled list: %v; want no answer", err)
	}
	put(t, direct, "stall", "during")
	select {
	case line, ok := <-lines:
		t.Errorf("line of the stalled watch: got %q, %v, want none", line, ok)
	case <-time.After(moment):
	}
	p.Set(Faults{})
	if line := <-lines; !strings.Contains(line, `"during"`) {
		t.Errorf("line after the stall: got %s, want the object during", line)
	}
	p.Cut() // ends the goroutine above
	for range lines {
	}
}

func testDelay(t *testing.T, p *Proxy, k kubernetes.Interface) {
	const delay = 50 * time.Millisecond
	p.Set(Faults{Delay: delay})
	began := time.Now()
	if err := list(t.Context(), k); err != nil || time.Since(began) < delay {
		t.Errorf("list with a delay of %v: got it after %v with error %v, want it after the delay", delay, time.Since(began), err)
	}
	w, err := k.CoreV1().ConfigMaps("a").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if next(t, w); time.Since(began) < 3*delay {
		t.Errorf("time until the first event: got %v, want at least %v", time.Since(began), 3*delay)
	}
	p.Set(Faults{Delay: time.Hour})
	answer := make(chan error, 1)
	go func() { answer <- list(t.Context(), k) }()
	select {
	case err := <-answer:
		t.Errorf("no delay: %v", err)
	case <-time.After(delay):
	}
	p.Set(Faults{})
	if err := <-answer; err != nil {
		t.Errorf("a delay that was called off: %v", err)
	}
}

// TestProxyCloses closes a proxy with a stalled request and an open watch.
func TestProxyCloses(t *testing.T) {
	t.Parallel()
	srv := start(t)
	p, err := NewProxy(srv)
	if err != nil {
		t.Fatal(err)
	}
	resp := get(t, p, "/api/v1/pods?watch=1")
	defer resp.Body.Close()
	p.Set(Faults{Stall: true})
	answer := make(chan error, 1)
	go func() { // not with a client of Kubernetes, which retries
		resp, err := http.Get(p.URL() + "/api/v1/pods")
		if err == nil {
			resp.Body.Close()
		}
		answer <- err
	}()
	chaintest.Eventually(t, "the stalled request", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.open) == 2
	})
	p.Close()
	p.Close() // A second call does nothing.
	if err := <-answer; err == nil {
		t.Error("a stalled request got a response after Close, want an error")
	}
	if _, err := io.ReadAll(resp.Body); err == nil {
		t.Error("the body of an open watch ended without an error after Close, want an error")
	}
}
