package builtin

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/quic-go/quic-go/http3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/status"
)

// Each request that is no query gets its status, and the connection continues.
// See CVE-2026-32936 in docs/reference/advisories.md.
func TestHTTPSBadRequests(t *testing.T) {
	s := serveEncrypted(t, "https://. https3://. {"+answersExample)
	query := packed(t, "a.example.")
	encoded := base64.RawURLEncoding.EncodeToString(query)
	for protocol, client := range map[string]*http.Client{"HTTP/1.1": httpClient(t, false), "HTTP/2": httpClient(t, true), "HTTP/3": http3Client(t)} {
		base := "https://127.0.0.1:" + s.port(0)
		if protocol == "HTTP/3" {
			base = "https://127.0.0.1:" + s.port(1)
		}
		for _, c := range []struct {
			name, method, path, contentType string
			body                            []byte
			status                          int
			maxAge                          string
		}{
			{"GET", "GET", "/dns-query?dns=" + encoded, "", nil, 200, "max-age=45"},
			{"NXDOMAIN", "POST", "/dns-query", messageType, packed(t, "missing.example."), 200, "max-age=30"},
			{"failure", "POST", "/dns-query", messageType, packed(t, "a.test."), 200, "max-age=0"},
			{"another path", "GET", "/resolve?dns=" + encoded, "", nil, 404, ""},
			{"no parameter", "GET", "/dns-query", "", nil, 400, ""},
			{"two parameters", "GET", "/dns-query?dns=" + encoded + "&dns=" + encoded, "", nil, 400, ""},
			{"empty parameter", "GET", "/dns-query?dns=", "", nil, 400, ""},
			{"invalid base64", "GET", "/dns-query?dns=***", "", nil, 400, ""},
			{"padded base64", "GET", "/dns-query?dns=" + encoded + "==", "", nil, 400, ""},
			{"large parameter", "GET", "/dns-query?dns=" + strings.Repeat("A", 88000), "", nil, 414, ""},
			{"another type", "POST", "/dns-query", "application/json", query, 415, ""},
			{"upper-case type", "POST", "/dns-query", "Application/DNS-Message", query, 200, "max-age=45"},
			{"type with parameter", "POST", "/dns-query", messageType + "; charset=utf-8", query, 200, "max-age=45"},
			{"no type", "POST", "/dns-query", "", query, 415, ""},
			{"another method", "PUT", "/dns-query", messageType, query, 405, ""},
			{"HEAD", "HEAD", "/dns-query?dns=" + encoded, "", nil, 405, ""},
		} {
			r, err := http.NewRequest(c.method, base+c.path, bytes.NewReader(c.body))
			if err != nil {
				t.Fatal(err)
			}
			if c.contentType != "" {
				r.Header.Set("Content-Type", c.contentType)
			}
			response, err := client.Do(r)
			if err != nil {
				t.Errorf("%s, %s: got error %v, want status %d", c.name, protocol, err, c.status)
				continue
			}
			_, _ = io.Copy(io.Discard, response.Body)
			response.Body.Close()
			if response.StatusCode != c.status || response.Header.Get("Cache-Control") != c.maxAge {
				t.Errorf("%s, %s: got status %d, Cache-Control %q; want %d, %q", c.name, protocol, response.StatusCode, response.Header.Get("Cache-Control"), c.status, c.maxAge)
			}
		}
	}
	text := s.metricsText()
	for _, want := range []string{
		`coredns_dns_https_responses_total{server="https://127.0.0.1:0",status="404"} 2`,
		`coredns_dns_https3_responses_total{server="https3://127.0.0.1:0",status="404"} 1`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the metrics lack %s", want)
		}
	}
}

// A request that is refused for its header is refused at once, also if its body does not arrive.
func TestHTTPSSlowRefused(t *testing.T) {
	block := " {\n timeouts {\n  read 60s\n }" + answersExample
	s := serveEncrypted(t, "https://."+block+"https3://."+block)
	requests := []struct {
		method, path, contentType string
		size                      int64
		status                    int
	}{
		{"POST", "/dns-query", messageType, 65536, 413},
		{"POST", "/dns-query", messageType, 1 << 20, 413},
		{"POST", "/dns-query", "text/plain", 100, 415},
		{"POST", "/resolve", messageType, 100, 404},
		{"PUT", "/dns-query", messageType, 100, 405},
	}
	for _, r := range requests {
		c, err := tls.Dial("tcp", "127.0.0.1:"+s.port(0), &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		_, _ = fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: dns.example\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n", r.method, r.path, r.contentType, r.size)
		response, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || response.StatusCode != r.status {
			t.Errorf("HTTP/1.1, %+v: got %v, error %v", r, response, err)
		}
		c.Close()
	}
	for protocol, client := range map[string]*http.Client{"HTTP/2": httpClient(t, true), "HTTP/3": http3Client(t)} {
		client.Timeout = patience
		port := s.port(0)
		if protocol == "HTTP/3" {
			port = s.port(1)
		}
		for _, r := range requests {
			body, end := io.Pipe()
			request, err := http.NewRequest(r.method, "https://127.0.0.1:"+port+r.path, body)
			if err != nil {
				t.Fatal(err)
			}
			request.ContentLength = r.size
			request.Header.Set("Content-Type", r.contentType)
			response, err := client.Do(request)
			if err != nil || response.StatusCode != r.status {
				t.Errorf("%s, %+v: got %v, error %v", protocol, r, response, err)
			}
			if err == nil {
				response.Body.Close()
			}
			end.Close()
		}
	}
}

// A request over HTTP/1.1 that arrives while its listener stops is answered: on a connection
// without a request before, and after a part of the request.
func TestHTTPSStop(t *testing.T) {
	s := serveEncrypted(t, "https://. {\n"+answersExample)
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

// Each request that is no query gets its status, and the connection continues.
func TestGRPCBadRequests(t *testing.T) {
	s := serveEncrypted(t, "grpc://. {"+answersExample)
	conn := s.grpcClient(t, skipVerify())
	query := packed(t, "a.example.")
	for _, c := range []struct {
		name, method string
		packet       []byte
		code         codes.Code
		options      []grpc.CallOption
	}{
		{"query", grpcQuery, query, codes.OK, nil},
		{"another method", "/coredns.dns.DnsService/Watch", query, codes.Unimplemented, nil},
		{"another service", "/grpc.health.v1.Health/Check", query, codes.Unimplemented, nil},
		{"compressed", grpcQuery, query, codes.Unimplemented, []grpc.CallOption{grpc.UseCompressor(gzip.Name)}},
		{"query after errors", grpcQuery, query, codes.OK, nil},
	} {
		if _, err := askGRPC(t.Context(), conn, c.method, c.packet, c.options...); status.Code(err) != c.code {
			t.Errorf("%s: got %v, want %v", c.name, err, c.code)
		}
	}
	base, client := "https://127.0.0.1:"+s.port(0), httpClient(t, true)
	for _, c := range []struct {
		name, method, contentType, body string
		status                          int
		code                            string
	}{
		{"GET", "GET", "application/grpc", "", http.StatusMethodNotAllowed, ""},
		{"another type", "POST", "application/dns-message", string(query), http.StatusUnsupportedMediaType, ""},
		{"gRPC-Web", "POST", "application/grpc-web+proto", "", http.StatusUnsupportedMediaType, ""},
		{"JSON", "POST", "application/grpc+json", "", http.StatusUnsupportedMediaType, ""},
		{"no frame", "POST", "application/grpc+proto", "", http.StatusOK, "3"},
		{"frame longer than the body", "POST", "application/grpc", "\x00\x00\x00\x00\x09abc", http.StatusOK, "3"},
	} {
		r, err := http.NewRequestWithContext(t.Context(), c.method, base+grpcQuery, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", c.contentType)
		response, err := client.Do(r)
		if err != nil {
			t.Errorf("%s: got error %v, want status %d", c.name, err, c.status)
			continue
		}
		response.Body.Close()
		if got := response.Header.Get("Grpc-Status"); response.StatusCode != c.status || got != c.code {
			t.Errorf("%s: got status %d, code %q; want %d, %q", c.name, response.StatusCode, got, c.status, c.code)
		}
	}
	if response, err := httpClient(t, false).Post(base+grpcQuery, "application/grpc", strings.NewReader("")); err == nil {
		response.Body.Close()
		t.Errorf("HTTP/1.1: got status %s, want an error of the handshake", response.Status)
	}
}

// Messages that violate RFC 9250 close the connection.
func TestQUICProtocolErrors(t *testing.T) {
	s := serveEncrypted(t, "quic://. {"+answersExample)
	query := packed(t, "a.example.")
	withID := bytes.Clone(query)
	withID[1] = 1
	keepalive := new(mdns.Msg).SetQuestion("a.example.", mdns.TypeTXT)
	keepalive.Id = 0
	keepalive.SetEdns0(1232, false)
	keepalive.IsEdns0().Option = append(keepalive.IsEdns0().Option, &mdns.EDNS0_TCP_KEEPALIVE{Code: mdns.EDNS0TCPKEEPALIVE})
	withKeepalive, err := keepalive.Pack()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		data []byte
	}{
		{"ID", withLength(withID)},
		{"keepalive", withLength(withKeepalive)},
		{"empty stream", nil},
		{"half of the length", []byte{0}},
		{"incomplete message", withLength(query)[:20]},
		{"more than a message", append(withLength(query), 0)},
		{"two messages", append(withLength(query), withLength(query)...)},
		{"no length", query},
		{"incomplete large message", append([]byte{0xff, 0xff}, query...)},
		{"more than the largest message", append([]byte{0xff, 0xff}, make([]byte, 1<<16)...)},
	} {
		t.Run(c.name, func(t *testing.T) {
			client := s.dialQUIC(nil)
			client.mustAnswer("b.example.")
			_ = client.stream(c.data).Close()
			if got := client.fate().await(t); got != "end 0x2" {
				t.Errorf("got %s, want DOQ_PROTOCOL_ERROR", got)
			}
		})
	}
	s.dialQUIC(nil).mustAnswer("a.example.")
}

// A client that violates HTTP/3 is disconnected, and others are not.
func TestHTTPS3ProtocolErrors(t *testing.T) {
	s := serveEncrypted(t, "https3://. {"+answersExample)
	h3 := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{http3.NextProtoH3}}
	good := linkHTTP3(&caller{t, s.address("https3"), &tls.Config{InsecureSkipVerify: true}})
	for name, data := range map[string][]byte{
		"DATA before HEADERS":     {0, 1, 0},
		"a frame of HTTP/2":       {2, 0},
		"SETTINGS on the request": {4, 0},
	} {
		c := s.dialQUIC(h3)
		_ = c.stream(data).Close()
		if got := c.fate().await(t); !strings.HasPrefix(got, "end 0x") || got == "end 0x100" {
			t.Errorf("%s: got %s, want that the server closes the connection with an error", name, got)
		}
	}
	c := s.dialQUIC(h3)
	for _, data := range [][]byte{nil, {1}, {1, 5, 0}, bytes.Repeat([]byte{0x21, 0}, 500)} {
		stream := c.stream(data)
		_ = stream.Close()
		_, _ = io.ReadAll(stream)
	}
	if got := outcome(good.ask(t.Context(), packed(t, "a.example."))); got != "NOERROR" {
		t.Errorf("another connection: got %s, want an answer", got)
	}
}
