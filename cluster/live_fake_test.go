package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seamark/seamark/metrics"
)

// An api is as much of an API server as a client needs that asks for the right
// things: each resource has the objects of one list, and nothing ever changes.
// The real one is in the module kubetest.
type api struct {
	*httptest.Server
	old     bool              // without streamed lists, as before Kubernetes 1.32
	objects map[string]string // by resource: the items of the list, in JSON
	refuse  func(r *http.Request) int

	mu       sync.Mutex
	requests []*http.Request
}

func serve(t *testing.T, a *api) *api {
	t.Helper()
	a.Server = httptest.NewServer(a)
	t.Cleanup(a.Close)
	return a
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
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
	version, _, _ = strings.Cut(version, "/namespaces/")
	kind := map[string]string{"namespaces": "Namespace", "services": "Service", "endpointslices": "EndpointSlice", "pods": "Pod", "serviceimports": "ServiceImport", "configmaps": "ConfigMap"}[resource]
	var items []json.RawMessage
	json.Unmarshal([]byte("["+a.objects[resource]+"]"), &items)
	w.Header().Set("Content-Type", "application/json")
	if !query.Has("watch") {
		list, _ := json.Marshal(items)
		fmt.Fprintf(w, `{"kind":"%sList","apiVersion":%q,"metadata":{"resourceVersion":"7"},"items":%s}`, kind, version, list)
		return
	}
	event := func(what, rest string) {
		fmt.Fprintf(w, `{"type":%q,"object":{"kind":%q,"apiVersion":%q,%s}`+"\n", what, kind, version, rest)
	}
	if streamed {
		for _, item := range items {
			event("ADDED", strings.TrimPrefix(string(item), "{"))
		}
		event("BOOKMARK", `"metadata":{"resourceVersion":"7","annotations":{"k8s.io/initial-events-end":"true"}}}`)
	}
	w.(http.Flusher).Flush()
	<-r.Context().Done()
}

// asked returns the requests so far.
func (a *api) asked() []*http.Request {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]*http.Request(nil), a.requests...)
}

// A follower is a Sink that keeps what it gets, and the log.
type follower struct {
	mu     sync.Mutex
	script script
	logged bytes.Buffer
}

func (f *follower) Put(k Kind, o Object)        { f.do(func() { f.script.Put(k, o) }) }
func (f *follower) Delete(k Kind, key Key)      { f.do(func() { f.script.Delete(k, key) }) }
func (f *follower) Replace(k Kind, os []Object) { f.do(func() { f.script.Replace(k, os) }) }

func (f *follower) do(what func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	what()
}

func (f *follower) Write(line []byte) (n int, err error) {
	f.do(func() { n, err = f.logged.Write(line) })
	return n, err
}

// got waits until the sink has got this line.
func (f *follower) got(t *testing.T, line string) {
	t.Helper()
	f.until(t, line, func() bool { return strings.Contains(strings.Join(f.script.lines, "\n")+"\n", line+"\n") })
}

// logs waits until the log holds the words.
func (f *follower) logs(t *testing.T, words string) {
	t.Helper()
	f.until(t, words, func() bool { return strings.Contains(f.logged.String(), words) })
}

func (f *follower) until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		done := false
		f.do(func() { done = ok() })
		if done {
			return
		}
		if time.Now().After(deadline) {
			f.do(func() { t.Fatalf("no %s\nsink:\n%s\nlog:\n%s", what, strings.Join(f.script.lines, "\n"), &f.logged) })
		}
	}
}

// watchCluster runs a Source until the test ends, or until stop.
func watchCluster(t *testing.T, o Options) (f *follower, stop func()) {
	t.Helper()
	if err := o.Check(); err != nil {
		t.Fatal(err)
	}
	f = new(follower)
	source := Open(o, slog.New(slog.NewTextHandler(f, nil)), new(metrics.Registry))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		source.Run(ctx, f)
	}()
	stop = func() {
		cancel()
		select {
		case <-done:
		case <-time.After(10 * time.Second):
			t.Error("Run has not returned")
		}
	}
	t.Cleanup(stop)
	return f, stop
}

// A relayed is a TCP relay whose connections can be frozen.
type relayed struct {
	addr   string
	mu     sync.Mutex
	frozen map[net.Conn]bool
}

func relay(t *testing.T, to string) *relayed {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relayed{addr: ln.Addr().String(), frozen: map[net.Conn]bool{}}
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
			if !frozen { // else the bytes are lost
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

// freeze loses what is sent over the connections there are, both ways.
func (r *relayed) freeze() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.frozen {
		r.frozen[c] = true
	}
}
