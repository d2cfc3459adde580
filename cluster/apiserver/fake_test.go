package apiserver

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"hash/maphash"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/metrics"
)

// A fakeServer implements the part of an API server that a feed uses: each
// resource has the objects of one list, which do not change. Module kubetest has
// the real API server.
type fakeServer struct {
	*httptest.Server
	old     bool              // without streamed lists, as before Kubernetes 1.32
	objects map[string]string // by resource: the items of the list, in JSON
	refuse  func(r *http.Request) int

	mu       sync.Mutex
	requests []*http.Request
	version  int           // of all objects; watches from another version fail
	cut      int           // if not zero, the next streamed list ends after so many objects
	ended    chan struct{} // closed when the watches of this version have ended
}

func serve(t *testing.T, a *fakeServer) *fakeServer {
	t.Helper()
	a.ended = make(chan struct{})
	a.Server = httptest.NewServer(a)
	t.Cleanup(a.Close)
	return a
}

// serveTLS serves a over HTTP/2 and returns the file of its certificate.
func serveTLS(t *testing.T, a *fakeServer) (ca string) {
	t.Helper()
	a.Server = httptest.NewUnstartedServer(a)
	a.EnableHTTP2 = true
	a.StartTLS()
	t.Cleanup(a.Close)
	ca = filepath.Join(t.TempDir(), "ca.crt")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.Certificate().Raw})
	if err := os.WriteFile(ca, block, 0o600); err != nil {
		t.Fatal(err)
	}
	return ca
}

func (a *fakeServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	a.requests = append(a.requests, r)
	a.mu.Unlock()
	query := r.URL.Query()
	status := func(code int, reason string) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d}`, reason, code)
	}
	if a.refuse != nil {
		if code := a.refuse(r); code != 0 {
			status(code, http.StatusText(code))
			return
		}
	}
	streamed := query.Has("sendInitialEvents")
	if streamed && a.old {
		status(http.StatusUnprocessableEntity, "Invalid")
		return
	}
	version, resource := r.URL.Path[:strings.LastIndex(r.URL.Path, "/")], r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	version = strings.TrimPrefix(strings.TrimPrefix(version, "/apis/"), "/api/")
	version, namespace, _ := strings.Cut(version, "/namespaces/")
	kind := map[string]string{"namespaces": "Namespace", "services": "Service", "endpointslices": "EndpointSlice", "pods": "Pod", "serviceimports": "ServiceImport", "configmaps": "ConfigMap", "nodes": "Node", "dnsendpoints": "DNSEndpoint",
		"gateways": "Gateway", "grpcroutes": "GRPCRoute", "tlsroutes": "TLSRoute"}[resource]
	a.mu.Lock()
	objects, current, ended := a.objects[resource], strconv.Itoa(7+a.version), a.ended
	a.mu.Unlock()
	if from := query.Get("resourceVersion"); query.Has("watch") && !streamed && from != "" && from != current {
		status(http.StatusGone, "Expired")
		return
	}
	var items []json.RawMessage
	json.Unmarshal([]byte("["+objects+"]"), &items)
	items = slices.DeleteFunc(items, func(item json.RawMessage) bool { return !isWithin(item, namespace) })
	w.Header().Set("Content-Type", "application/json")
	if !query.Has("watch") {
		list, _ := json.Marshal(items)
		fmt.Fprintf(w, `{"kind":"%sList","apiVersion":%q,"metadata":{"resourceVersion":%q},"items":%s}`, kind, version, current, list)
		return
	}
	event := func(what, rest string) {
		fmt.Fprintf(w, `{"type":%q,"object":{"kind":%q,"apiVersion":%q,%s}`+"\n", what, kind, version, rest)
	}
	if streamed {
		for i, item := range items {
			if a.breaksOff(i) {
				return
			}
			event("ADDED", strings.TrimPrefix(string(item), "{"))
		}
		event("BOOKMARK", `"metadata":{"resourceVersion":"`+current+`","annotations":{"k8s.io/initial-events-end":"true"}}}`)
	}
	w.(http.Flusher).Flush()
	select {
	case <-r.Context().Done():
	case <-ended:
	}
}

// isWithin reports whether an object is in a namespace; "" has all.
func isWithin(object json.RawMessage, namespace string) bool {
	var o struct{ Metadata struct{ Namespace string } }
	return namespace == "" || json.Unmarshal(object, &o) == nil && o.Metadata.Namespace == namespace
}

// change replaces the objects of a resource and ends all watches, none of which
// can be resumed. If cut is not zero, the first list ends after so many objects.
func (a *fakeServer) change(resource, objects string, cut int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.objects[resource] = objects
	a.version++
	a.cut = cut
	close(a.ended)
	a.ended = make(chan struct{})
}

func (a *fakeServer) breaksOff(sent int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.cut == 0 || sent < a.cut {
		return false
	}
	a.cut = 0
	return true
}

// received returns the requests received.
func (a *fakeServer) received() []*http.Request {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]*http.Request(nil), a.requests...)
}

// A recorder is a Sink that records its calls and the log.
type recorder struct {
	mu     sync.Mutex
	sink   recordingSink
	logged bytes.Buffer
}

func (f *recorder) Put(k cluster.Kind, os ...cluster.Object) { f.do(func() { f.sink.Put(k, os...) }) }
func (f *recorder) Delete(k cluster.Kind, key cluster.Key)   { f.do(func() { f.sink.Delete(k, key) }) }
func (f *recorder) Listed(k cluster.Kind, has func(cluster.Key) bool) {
	f.do(func() { f.sink.Listed(k, has) })
}

func (f *recorder) do(what func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	what()
}

func (f *recorder) Write(line []byte) (n int, err error) {
	f.do(func() { n, err = f.logged.Write(line) })
	return n, err
}

// waitForCall waits until the sink has recorded this line.
func (f *recorder) waitForCall(t *testing.T, line string) {
	t.Helper()
	f.waitFor(t, line, func() bool { return strings.Contains(strings.Join(f.sink.lines, "\n")+"\n", line+"\n") })
}

// waitForLog waits until the log contains the words.
func (f *recorder) waitForLog(t *testing.T, words string) {
	t.Helper()
	f.waitFor(t, words, func() bool { return strings.Contains(f.logged.String(), words) })
}

func (f *recorder) waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		done := false
		f.do(func() { done = ok() })
		if done {
			return
		}
		if time.Now().After(deadline) {
			f.do(func() {
				t.Fatalf("want %s, got the calls\n%s\nand the log\n%s", what, strings.Join(f.sink.lines, "\n"), &f.logged)
			})
		}
	}
}

// newSource returns a source of all kinds that logs nothing.
func newSource(reg *metrics.Registry) *source {
	kinds := cluster.Options{Pods: true, Multicluster: true}.Kinds()
	return &source{Monitor: cluster.NewMonitor(kinds, slog.New(slog.DiscardHandler), reg), seed: maphash.MakeSeed()}
}

// runMonitored runs the feeds and logs to w.
func runMonitored(ctx context.Context, o cluster.Options, sink cluster.Sink, w io.Writer, reg *metrics.Registry, limits timeouts) {
	m := cluster.NewMonitor(o.Kinds(), slog.New(slog.NewTextHandler(w, nil)), reg)
	m.Run(ctx, func() { runFeeds(ctx, o, sink, m, nil, limits) })
}

// watchCluster runs the feeds until the test ends, or until stop.
func watchCluster(t *testing.T, o cluster.Options) (f *recorder, stop func()) {
	t.Helper()
	if err := o.Check(); err != nil {
		t.Fatal(err)
	}
	f = new(recorder)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		runMonitored(ctx, o, f, f, new(metrics.Registry), defaultTimeouts())
	}()
	stop = func() {
		cancel()
		select {
		case <-done:
		case <-time.After(time.Minute):
			t.Error("Run has not returned within a minute of the end of its context")
		}
	}
	t.Cleanup(stop)
	return f, stop
}

// A tcpRelay is a TCP relay whose connections can be frozen.
type tcpRelay struct {
	addr   string
	mu     sync.Mutex
	frozen map[net.Conn]bool
}

func newRelay(t *testing.T, to string) *tcpRelay {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &tcpRelay{addr: ln.Addr().String(), frozen: map[net.Conn]bool{}}
	var running sync.WaitGroup
	forward := func(in, out, client net.Conn) {
		defer in.Close()
		defer out.Close()
		buf := make([]byte, 32<<10)
		for {
			n, err := in.Read(buf)
			if err != nil {
				return
			}
			r.mu.Lock()
			frozen := r.frozen[client]
			r.mu.Unlock()
			if !frozen { // otherwise the bytes are lost
				out.Write(buf[:n])
			}
		}
	}
	running.Go(func() {
		for {
			client, err := ln.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", to)
			if err != nil {
				client.Close()
				continue
			}
			r.mu.Lock()
			r.frozen[client] = false
			r.mu.Unlock()
			running.Go(func() { forward(client, server, client) })
			running.Go(func() { forward(server, client, client) })
		}
	})
	t.Cleanup(func() {
		ln.Close()
		r.mu.Lock()
		for c := range r.frozen {
			c.Close()
		}
		r.mu.Unlock()
		running.Wait()
	})
	return r
}

// freeze drops all data of the open connections in both directions.
func (r *tcpRelay) freeze() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.frozen {
		r.frozen[c] = true
	}
}
