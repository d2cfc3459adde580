package builtin

import (
	"encoding/base64"
	"os"
	"strings"
	"testing"
)

// kdig gets answers over each transport that it has.
//
// Over QUIC each query has a connection of its own: with +keepopen kdig 3.2 writes the second query
// to the first stream, and fails, unless the server has acknowledged the first one completely.
func TestKdigEncrypted(t *testing.T) {
	const verified = "+tls-ca=ca.pem +tls-hostname=dns.example " // and kdig uses TLS unless another option follows
	s := serveEncrypted(t, everyScheme+" {"+answersExample)
	for _, c := range []struct{ scheme, options, want string }{
		{"tls", verified, ""}, {"tls", "+tls +keepopen", ""}, {"tls", "+tls +padding=128 +alignment", ""},
		{"https", verified + "+https=/dns-query", ""}, {"https", "+https +https-get +padding=100", ""},
		{"quic", verified + "+quic", "QUIC"}, {"quic", "+quic +padding=128", "QUIC"},
	} {
		_, port, _ := strings.Cut(s.address(c.scheme), ":")
		args := append(strings.Fields(c.options), "@127.0.0.1", "-p", port, "a.example", "TXT", "missing.example", "TXT")
		out := s.run("kdig", args...)
		if !strings.Contains(out, `TXT	"127.0.0.1"`) || !strings.Contains(out, "NXDOMAIN") || !strings.Contains(out, c.want) {
			t.Errorf("kdig %s: got\n%s\nwant a record with 127.0.0.1, NXDOMAIN, and %q", c.options, out, c.want)
		}
	}
	for _, scheme := range []string{"tls", "quic"} {
		_, port, _ := strings.Cut(s.address(scheme), ":")
		if out := s.run("kdig", "+"+scheme, "+padding=100", "@127.0.0.1", "-p", port, "a.example", "TXT"); !strings.Contains(out, "468 B") {
			t.Errorf("kdig +%s +padding: got\n%s\nwant a reply of 468 bytes", scheme, out)
		}
	}
}

// curl gets answers with GET and POST over HTTP/1.1 and HTTP/2.
func TestCurl(t *testing.T) {
	s := serveEncrypted(t, "https://. {"+answersExample)
	url := "https://dns.example:" + s.port(0) + "/dns-query"
	if err := os.WriteFile("query", packed(t, "a.example."), 0o600); err != nil {
		t.Fatal(err)
	}
	get := []string{url + "?dns=" + base64.RawURLEncoding.EncodeToString(packed(t, "a.example."))}
	post := []string{"-H", "Content-Type: " + messageType, "--data-binary", "@query", url}
	common := []string{
		"-sS", "--cacert", "ca.pem", "--resolve", "dns.example:" + s.port(0) + ":127.0.0.1", "-o", "reply",
		"-w", "%{http_version} %{http_code} %{content_type} %header{cache-control}",
	}
	for _, version := range []string{"2", "1.1"} {
		for _, request := range [][]string{get, post} {
			args := append(append([]string{"--http" + version}, request...), common...)
			if got, want := s.run("curl", args...), version+" 200 "+messageType+" max-age=45"; got != want {
				t.Errorf("curl %s: got %q, want %q", strings.Join(args, " "), got, want)
			}
			m, err := unpacked(os.ReadFile("reply"))
			if remote(m, err) != "127.0.0.1" || len(m.Answer) != 2 {
				t.Errorf("curl %s: got reply %v, error %v; want two records, with 127.0.0.1", strings.Join(args, " "), m, err)
			}
		}
	}
}
