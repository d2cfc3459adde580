package web

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"
)

// A Requester uses one connection, and another one once the server has closed it.
func TestRequesterConnections(t *testing.T) {
	var opened, requests atomic.Int32
	page := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1); r.URL.Path != "/health" {
			t.Errorf("got a request for %s, want /health", r.URL.Path)
		}
		_, _ = io.WriteString(w, "OK")
	}))
	page.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			opened.Add(1)
		}
	}
	page.Start()
	defer page.Close()

	p := NewRequester(nil, page.Listener.Addr().String(), "/health", "OK", time.Minute)
	defer p.Close()
	for n := int32(1); n <= 4; n++ {
		if n == 3 {
			page.CloseClientConnections()
		}
		if err := p.Get(t.Context()); err != nil || requests.Load() != n || opened.Load() != (n+1)/2 {
			t.Fatalf("got error %v, %d requests over %d connections, want no error, %d over %d", err, requests.Load(),
				opened.Load(), n, (n+1)/2)
		}
	}
}

// The Requester is the page that it requests: package net/http has the first request of its connection, and all those
// of other clients.
func TestRequesterServes(t *testing.T) {
	var requests atomic.Int32
	page := httptest.NewUnstartedServer(nil)
	p := NewRequester(nil, page.Listener.Addr().String(), "/health", "OK", time.Minute)
	defer p.Close()
	page.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		p.ServeHTTP(w, r)
	})
	page.Start()
	defer page.Close()

	for n := int32(1); n <= 2; n++ {
		for range 3 {
			if err := p.Get(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		resp, err := page.Client().Get(page.URL + "/health")
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || string(body) != "OK" || requests.Load() != 2*n {
			t.Fatalf("another client got %q and error %v after %d requests, want \"OK\" after %d", body, err,
				requests.Load(), 2*n)
		}
		p.Close()
	}
}

// Only a whole reply with the status 200 is a success, in whatever parts it arrives.
func TestRequesterRead(t *testing.T) {
	const head = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"
	for reply, want := range map[string]string{
		head + "OK":                     "<nil>",
		head + "O":                      "EOF",
		head:                            "EOF",
		"":                              "EOF",
		"HTTP/1.1 200 OK":               "EOF",
		"HTTP/1.1 503 Busy\r\n":         `got the status "HTTP/1.1 503 Busy"`,
		"SSH-2.0\r\n":                   `got the status "SSH-2.0"`,
		head + strings.Repeat("x", 512): "the reply is that of another server",
	} {
		for name, r := range map[string]io.Reader{"whole": strings.NewReader(reply), "in bytes": iotest.OneByteReader(strings.NewReader(reply))} {
			if err := NewRequester(nil, "", "", "OK", 0).read(r); fmt.Sprint(err) != want {
				t.Errorf("%q, %s: got %v, want %s", reply, name, err, want)
			}
		}
	}
}
