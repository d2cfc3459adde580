package apiserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"github.com/seamark/seamark/cluster"
)

// kubelet forwards connections as a kubelet does behind an API server: to the listener, or,
// if it has none, with the error of a port where nothing listens.
type kubelet struct {
	t      *testing.T
	target string // address
	conns  sync.WaitGroup
}

func (k *kubelet) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost || r.URL.Path != "/api/v1/namespaces/kube-system/pods/dns/portforward" {
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"pods \"dns\" is forbidden: cannot create resource pods/portforward","reason":"Forbidden","code":403}`)
		return
	}
	if _, err := httpstream.Handshake(r, w, []string{portForwardProtocol}); err != nil {
		k.t.Error(err)
		return
	}
	streams := make(chan httpstream.Stream, 10)
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, replied <-chan struct{}) error {
		streams <- s
		return nil
	})
	if conn == nil {
		return
	}
	defer conn.Close()
	failures := map[string]httpstream.Stream{}
	for {
		select {
		case s := <-streams:
			id := s.Headers().Get("requestID")
			if s.Headers().Get("streamType") == "error" {
				failures[id] = s
				continue
			}
			if failures[id] == nil || s.Headers().Get("port") != "53" {
				k.t.Errorf("data stream with the headers %v: want an error stream before it and port 53", s.Headers())
				return
			}
			k.conns.Add(1)
			go k.forward(s, failures[id])
		case <-conn.CloseChan():
			return
		}
	}
}

func (k *kubelet) forward(data, failure httpstream.Stream) {
	defer k.conns.Done()
	conn, err := net.Dial("tcp", k.target)
	if err != nil {
		fmt.Fprint(failure, "failed to connect to localhost:53 inside namespace")
		failure.Close()
		data.Close()
		return
	}
	defer conn.Close()
	failure.Close()
	go func() {
		_, _ = io.Copy(conn, data)
		conn.Close()
	}()
	_, _ = io.Copy(data, conn)
	data.Close()
}

// echo returns the address of a server that returns all data that it receives, and a
// function that stops it.
func echo(t *testing.T) (address string, stop func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
	return l.Addr().String(), func() { l.Close() }
}

func TestPortForward(t *testing.T) {
	address, stop := echo(t)
	defer stop()
	k := &kubelet{t: t, target: address}
	server := httptest.NewServer(k)
	defer server.Close()
	pod := cluster.Key{Namespace: "kube-system", Name: "dns"}
	f := PortForward(cluster.Options{Endpoint: server.URL}, pod, 53)
	defer f.Close()
	var conns []net.Conn
	for range 3 {
		c, err := f.Dial(t.Context(), "tcp", "ignored")
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	for i, c := range conns {
		text := strings.Repeat(fmt.Sprint(i), 70_000) // more than a frame
		go func() { _, _ = io.WriteString(c, text) }()
		got := make([]byte, len(text))
		if _, err := io.ReadFull(c, got); err != nil || string(got) != text {
			t.Errorf("connection %d: got %d bytes, error %v, want what was sent", i, len(got), err)
		}
		if err := c.Close(); err != nil {
			t.Errorf("connection %d: Close: %v", i, err)
		}
	}
	f.Close()
	c, err := f.Dial(t.Context(), "tcp", "") // opens the connection again
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}

// A pod that does not listen is an error of Read, with the kubelet's text.
func TestPortForwardRefused(t *testing.T) {
	address, stop := echo(t)
	stop()
	server := httptest.NewServer(&kubelet{t: t, target: address})
	defer server.Close()
	f := PortForward(cluster.Options{Endpoint: server.URL}, cluster.Key{Namespace: "kube-system", Name: "dns"}, 53)
	defer f.Close()
	c, err := f.Dial(t.Context(), "tcp", "")
	if err != nil {
		t.Fatal(err)
	}
	if n, err := c.Read(make([]byte, 10)); n != 0 || err == nil || err.Error() != "failed to connect to localhost:53 inside namespace" {
		t.Errorf("Read: got %d bytes, error %v, want the kubelet's error", n, err)
	}
}

func TestPortForwardForbidden(t *testing.T) {
	server := httptest.NewServer(&kubelet{t: t})
	defer server.Close()
	f := PortForward(cluster.Options{Endpoint: server.URL}, cluster.Key{Namespace: "shop", Name: "web"}, 53)
	defer f.Close()
	_, err := f.Dial(t.Context(), "tcp", "")
	if err == nil || !strings.HasPrefix(err.Error(), "forwarding port 53 of the pod shop/web: ") || !strings.Contains(err.Error(), "cannot create resource pods/portforward") {
		t.Errorf("Dial: got error %v, want that of the API server", err)
	}
}

// A path to the API server that is lost without a reset costs a call of Dial its context, and no other call
// anything: the next one opens a new connection.
func TestPortForwardPathLost(t *testing.T) {
	address, stop := echo(t)
	defer stop()
	server := httptest.NewUnstartedServer(&kubelet{t: t, target: address})
	path := &losing{Listener: server.Listener}
	server.Listener = path
	server.Start()
	defer server.Close()
	f := PortForward(cluster.Options{Endpoint: server.URL}, cluster.Key{Namespace: "kube-system", Name: "dns"}, 53)
	defer f.Close()

	first, err := f.Dial(t.Context(), "tcp", "ignored")
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	path.lost.Store(true)

	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := f.Dial(ctx, "tcp", "ignored"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Dial on the lost path: got error %v, want the context's", err)
	}

	second, err := f.Dial(t.Context(), "tcp", "ignored")
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	buf := make([]byte, 1)
	if _, err := second.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(second, buf); err != nil || buf[0] != 'x' {
		t.Errorf("on a new path: got %q, error %v, want x", buf, err)
	}
}

// losing is a listener whose first connection delivers nothing more once it is lost.
type losing struct {
	net.Listener
	lost     atomic.Bool
	accepted atomic.Int32
}

func (l *losing) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil || l.accepted.Add(1) > 1 {
		return conn, err
	}
	return lostConn{conn, l}, nil
}

type lostConn struct {
	net.Conn
	path *losing
}

func (c lostConn) Read(p []byte) (int, error) {
	for {
		n, err := c.Conn.Read(p)
		if !c.path.lost.Load() || err != nil {
			return n, err
		}
	}
}
