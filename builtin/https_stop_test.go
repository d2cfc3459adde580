package builtin

import (
	"bufio"
	"crypto/tls"
	"encoding/base64"
	"io"
	"net/http"
	"testing"
	"time"
)

// A request over HTTP/1.1 that arrives while its listener stops is answered: on a connection
// without a request before, and after a part of the request.
func TestHTTPSStop(t *testing.T) {
	s := serveEncrypted(t, "https://. {\n"+answersOverHTTPS)
	at := "127.0.0.1:" + s.port(0)
	request := "GET /dns-query?dns=" + base64.RawURLEncoding.EncodeToString(packed(t, "a.example.")) + " HTTP/1.1\r\nHost: localhost\r\n\r\n"
	open := func(sent string) *tls.Conn {
		t.Helper()
		c, err := tls.Dial("tcp", at, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		if _, err := io.WriteString(c, sent); err != nil {
			t.Fatal(err)
		}
		return c
	}
	status := func(c io.Reader) (int, error) {
		response, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			return 0, err
		}
		_, err = io.Copy(io.Discard, response.Body)
		return response.StatusCode, err
	}
	fresh, begun, idle := open(""), open(request[:20]), open(request)
	if got, err := status(idle); got != http.StatusOK {
		t.Fatalf("before the stop: got status %d, error %v, want 200", got, err)
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		s.load(".:0 {\n whoami\n}\n")
	}()
	if _, err := idle.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("idle connection: got error %v, want its end", err)
	}
	for what, c := range map[string]*tls.Conn{request: fresh, request[20:]: begun} {
		if _, err := io.WriteString(c, what); err != nil {
			t.Errorf("sending %q: %v", what, err)
		}
		if got, err := status(c); got != http.StatusOK {
			t.Errorf("after %q: got status %d, error %v, want 200", what, got, err)
		}
	}
	<-stopped
}
