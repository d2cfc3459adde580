package builtin

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"
)

// A request that is refused for its header is refused at once, also if its body does not arrive.
func TestHTTPSSlowRefused(t *testing.T) {
	block := " {\n timeouts {\n  read 60s\n }" + answersOverHTTPS
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
		client.Timeout = 20 * time.Second
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
