package builtin

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"strings"
	"testing"

	mdns "github.com/miekg/dns"
)

const messageType = "application/dns-message"

// packed returns a query in wire form.
func packed(t *testing.T, name string) []byte {
	t.Helper()
	m := new(mdns.Msg).SetQuestion(name, mdns.TypeTXT)
	m.Id = 0
	packet, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return packet
}

// answersOverHTTPS is the rest of a server block that answers the names below
// example, and fails for others.
const answersOverHTTPS = `
    tls cert.pem key.pem
    acl {
        drop type MX
    }
    template IN TXT example {
        match ^missing
        fallthrough
        rcode NXDOMAIN
        authority "example. 300 IN SOA ns.example. mail.example. 1 2 3 4 30"
    }
    template IN TXT example {
        answer "{{ .Name }} 60 IN TXT {{ .Remote }}"
        answer "{{ .Name }} 45 IN TXT second"
    }
}
`

func TestHTTPSClients(t *testing.T) {
	s := serveEncrypted(t, "https://. {"+answersOverHTTPS)
	url := "https://dns.example:" + s.port(0) + "/dns-query"
	if err := os.WriteFile("query", packed(t, "a.example."), 0o600); err != nil {
		t.Fatal(err)
	}
	get := url + "?dns=" + base64.RawURLEncoding.EncodeToString(packed(t, "a.example."))
	common := []string{"-sS", "--cacert", "ca.pem", "--resolve", "dns.example:" + s.port(0) + ":127.0.0.1", "-o", "reply", "-w", "%{http_version} %{http_code} %{content_type} %header{cache-control}"}
	for _, c := range []struct {
		version string
		args    []string
	}{
		{"2", []string{"--http2", get}},
		{"1.1", []string{"--http1.1", get}},
		{"2", []string{"--http2", "-H", "Content-Type: " + messageType, "--data-binary", "@query", url}},
		{"1.1", []string{"--http1.1", "-H", "Content-Type: " + messageType, "--data-binary", "@query", url}},
	} {
		out := s.run("curl", append(c.args, common...)...)
		if want := c.version + " 200 " + messageType + " max-age=45"; out != want {
			t.Errorf("curl %s: got %q, want %q", strings.Join(c.args, " "), out, want)
		}
		text, err := os.ReadFile("reply")
		m := new(mdns.Msg)
		if err == nil {
			err = m.Unpack(text)
		}
		if err != nil || len(m.Answer) != 2 || !strings.Contains(m.Answer[0].String(), "127.0.0.1") {
			t.Errorf("curl %s: got reply %v, error %v; want two records, with 127.0.0.1", strings.Join(c.args, " "), m, err)
		}
	}
	for _, options := range []string{"+https=/dns-query +tls-ca=ca.pem +tls-hostname=dns.example", "+https +https-get +padding=100"} {
		args := append(strings.Fields(options), "@127.0.0.1", "-p", s.port(0), "a.example", "TXT", "missing.example", "TXT")
		out := s.run("kdig", args...)
		if !strings.Contains(out, `TXT	"127.0.0.1"`) || !strings.Contains(out, "NXDOMAIN") {
			t.Errorf("kdig %s: got\n%s\nwant a record with 127.0.0.1, and NXDOMAIN", options, out)
		}
	}
}

// client returns an HTTP client with HTTP/2 or HTTP/1.1.
func httpClient(t *testing.T, http2 bool) *http.Client {
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, Protocols: new(http.Protocols)}
	transport.Protocols.SetHTTP1(!http2)
	transport.Protocols.SetHTTP2(http2)
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// Each request that is no query gets its status, and the connection continues.
func TestHTTPSBadRequests(t *testing.T) {
	s := serveEncrypted(t, "https://. https3://. {"+answersOverHTTPS)
	query := packed(t, "a.example.")
	encoded := base64.RawURLEncoding.EncodeToString(query)
	mx := bytes.Clone(query)
	mx[len(mx)-3] = byte(mdns.TypeMX)
	reply := bytes.Clone(query)
	reply[2] |= 0x80
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
			{"large body", "POST", "/dns-query", messageType, make([]byte, 65536), 413, ""},
			{"empty body", "POST", "/dns-query", messageType, nil, 400, ""},
			{"a reply", "POST", "/dns-query", messageType, reply, 400, ""},
			{"another type", "POST", "/dns-query", "application/json", query, 415, ""},
			{"upper-case type", "POST", "/dns-query", "Application/DNS-Message", query, 200, "max-age=45"},
			{"type with parameter", "POST", "/dns-query", messageType + "; charset=utf-8", query, 200, "max-age=45"},
			{"no type", "POST", "/dns-query", "", query, 415, ""},
			{"another method", "PUT", "/dns-query", messageType, query, 405, ""},
			{"HEAD", "HEAD", "/dns-query?dns=" + encoded, "", nil, 405, ""},
			{"dropped", "POST", "/dns-query", messageType, mx, 500, ""},
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
	var text strings.Builder
	if err := s.metrics.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`coredns_dns_https_responses_total{server="https://127.0.0.1:0",status="404"} 2`, `coredns_dns_https3_responses_total{server="https3://127.0.0.1:0",status="404"} 1`} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the metrics lack %s", want)
		}
	}
}

// Connections over the limit are closed, requests that clients cancel do no harm, and a
// reload changes the limit.
func TestHTTPSLimits(t *testing.T) {
	block := "https://. {\n https {\n  max_connections 2\n }" + answersOverHTTPS
	s := serveEncrypted(t, block)
	at := "127.0.0.1:" + s.port(0)
	var open []net.Conn
	for range 2 {
		c, err := net.Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		open = append(open, c)
	}
	over, err := net.Dial("tcp", at)
	if err == nil {
		defer over.Close()
		if n, err := over.Read(make([]byte, 1)); err == nil {
			t.Errorf("the third connection: got %d bytes, want the end", n)
		}
	}
	s.load(strings.Replace(block, "max_connections 2", "max_connections 3", 1))
	client, url := httpClient(t, true), "https://"+at+"/dns-query?dns="+base64.RawURLEncoding.EncodeToString(packed(t, "a.example."))
	reused := 0
	for i := range 200 {
		ctx, cancel := context.WithCancel(httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
			GotConn: func(info httptrace.GotConnInfo) {
				if info.Reused {
					reused++
				}
			},
		}))
		r, err := http.NewRequestWithContext(ctx, "GET", url, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Do(r)
		if err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
		cancel() // resets the stream
		response.Body.Close()
	}
	if reused < 190 {
		t.Errorf("%d of 200 requests used the open connection, want at least 190", reused)
	}
	for _, c := range open {
		c.Close()
	}
}

// Without tls the server uses HTTP, for a proxy.
func TestHTTPSWithoutTLS(t *testing.T) {
	s := serveEncrypted(t, strings.Replace("https://. {"+answersOverHTTPS, "tls cert.pem key.pem", "", 1))
	response, err := http.Post("http://127.0.0.1:"+s.port(0)+"/dns-query", messageType, bytes.NewReader(packed(t, "a.example.")))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	m := new(mdns.Msg)
	if err == nil {
		err = m.Unpack(body)
	}
	if err != nil || len(m.Answer) != 2 || fmt.Sprint(response.StatusCode) != "200" {
		t.Errorf("got status %d, reply %v, error %v; want 200 and two records", response.StatusCode, m, err)
	}
}
