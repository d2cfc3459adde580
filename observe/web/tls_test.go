package web

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/sys/health"
	"github.com/seamark/seamark/test/chaintest"
)

// writeCert writes a self-signed certificate and its key to dir, and returns both.
func writeCert(t *testing.T, dir, name string) (files TLS, pair tls.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{{127, 0, 0, 1}},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	files = TLS{Cert: filepath.Join(dir, name+".crt"), Key: filepath.Join(dir, name+".key")}
	for file, block := range map[string]*pem.Block{files.Cert: {Type: "CERTIFICATE", Bytes: der}, files.Key: {Type: "PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if pair, err = tls.LoadX509KeyPair(files.Cert, files.Key); err != nil {
		t.Fatal(err)
	}
	return files, pair
}

// A renewed certificate that cannot be read twice is told until it can, and the one before serves.
func TestCertificateThatCannotBeReadIsTold(t *testing.T) {
	files, _ := writeCert(t, t.TempDir(), "a")
	good, err := os.ReadFile(files.Cert)
	if err != nil {
		t.Fatal(err)
	}
	var log chaintest.Log
	board := new(health.Board)
	s, err := newTLSFiles(files, nil, reports{log: log.Logger(), health: board})
	if err != nil {
		t.Fatal(err)
	}
	first := s.loaded
	defer s.end()

	for _, c := range []struct {
		text       string
		conditions int
	}{{"", 0}, {"", 1}, {"", 1}, {string(good), 0}, {"", 0}, {"", 1}} {
		if err := os.WriteFile(files.Cert, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		s.read = time.Time{}
		got := s.current()
		if n := len(board.Conditions()); n != c.conditions || c.text == "" && len(got.Certificates) != len(first.Certificates) {
			t.Errorf("with %d bytes: got %d conditions, want %d", len(c.text), n, c.conditions)
		}
	}
	if n := log.Count("Loading the certificate of pages failed"); n != 2 {
		t.Errorf("got %d lines of the log, want one for each failure after a success: 2", n)
	}
}

// tlsClient returns a client that trusts one certificate and presents others.
func tlsClient(t *testing.T, trusted tls.Certificate, presented ...tls.Certificate) *http.Client {
	pool := x509.NewCertPool()
	leaf, err := x509.ParseCertificate(trusted.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	pool.AddCert(leaf)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: presented}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 10 * time.Second}
}

// fetch returns the body of the page, or the text of the error.
func fetch(c *http.Client, url string) string {
	reply, err := c.Get(url)
	if err != nil {
		return err.Error()
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func TestTLS(t *testing.T) {
	dir, start := t.TempDir(), config.NewStart(context.Background(), nil)
	defer start.Stop()
	files, cert := writeCert(t, dir, "server")
	site, err := Open(start, "127.0.0.1:0", files)
	if err != nil {
		t.Fatal(err)
	}
	site.Handle("/a", page("one"))
	site.Show()
	url := "https://" + site.Addr() + "/a"
	if got := fetch(tlsClient(t, cert), url); got != "one" {
		t.Errorf("%s: got %q, want one", url, got)
	}
	if got := fetch(&http.Client{}, strings.Replace(url, "https", "http", 1)); strings.Contains(got, "one") {
		t.Errorf("without TLS: got %q, want an error", got)
	}

	// A new certificate with a broken key is not used.
	writeCert(t, dir, "server")
	if err := os.WriteFile(files.Key, []byte("no key"), 0o600); err != nil {
		t.Fatal(err)
	}
	site.tls.read = time.Time{}
	if got := fetch(tlsClient(t, cert), url); got != "one" {
		t.Errorf("new certificate with a broken key: got %q, want one with the old certificate", got)
	}
	_, other := writeCert(t, dir, "server")
	site.tls.mu.Lock()
	site.tls.read = time.Time{}
	site.tls.mu.Unlock()
	if got := fetch(tlsClient(t, other), url); got != "one" {
		t.Errorf("new certificate: got %q, want one", got)
	}
}

func TestTLSClientCertificates(t *testing.T) {
	dir := t.TempDir()
	files, server := writeCert(t, dir, "server")
	ca, trusted := writeCert(t, dir, "trusted")
	_, unknown := writeCert(t, dir, "unknown")
	files.CA = ca.Cert
	for _, c := range []struct {
		mode                   tls.ClientAuthType
		none, unknown, trusted bool
	}{
		{tls.NoClientCert, true, true, true},
		{tls.RequestClientCert, true, true, true},
		{tls.RequireAnyClientCert, false, true, true},
		{tls.VerifyClientCertIfGiven, true, false, true},
		{tls.RequireAndVerifyClientCert, false, false, true},
	} {
		start := config.NewStart(context.Background(), nil)
		files.Client = c.mode
		site, err := Open(start, "127.0.0.1:0", files)
		if err != nil {
			t.Fatal(err)
		}
		site.Handle("/a", page("one"))
		site.Show()
		url := "https://" + site.Addr() + "/a"
		for name, client := range map[string]*http.Client{
			"none": tlsClient(t, server), "unknown": tlsClient(t, server, unknown), "trusted": tlsClient(t, server, trusted),
		} {
			want := map[string]bool{"none": c.none, "unknown": c.unknown, "trusted": c.trusted}[name]
			if got := fetch(client, url); (got == "one") != want {
				t.Errorf("%v, client certificate %s: got %q, want success %v", c.mode, name, got, want)
			}
		}
		start.Stop()
	}
}

// A reload can change from HTTP to HTTPS. Older connections get no more pages.
func TestTLSReload(t *testing.T) {
	const addr = "127.0.0.1:0"
	dir := t.TempDir()
	files, cert := writeCert(t, dir, "server")
	first := config.NewStart(context.Background(), nil)
	old, err := Open(first, addr, TLS{})
	if err != nil {
		t.Fatal(err)
	}
	old.Handle("/a", page("one"))
	old.Show()
	plain := &http.Client{Transport: new(http.Transport)}
	url := "http://" + old.Addr() + "/a"
	if got := fetch(plain, url); got != "one" {
		t.Errorf("before the reload: got %q, want one", got)
	}
	second := config.NewStart(context.Background(), first)
	defer second.Stop()
	site, err := Open(second, addr, files)
	if err != nil {
		t.Fatal(err)
	}
	site.Handle("/a", page("two"))
	site.Show()
	second.Commit()
	if got := fetch(plain, url); !strings.HasPrefix(got, "connect again") {
		t.Errorf("old connection: got %q, want connect again", got)
	}
	if got := fetch(tlsClient(t, cert), strings.Replace(url, "http", "https", 1)); got != "two" {
		t.Errorf("after the reload: got %q, want two", got)
	}
}

// All directives that share an address must have the same TLS settings.
func TestTLSMixed(t *testing.T) {
	dir := t.TempDir()
	files, _ := writeCert(t, dir, "server")
	others, _ := writeCert(t, dir, "other")
	for _, c := range []struct {
		first, second TLS
		want          string
	}{
		{TLS{}, files, "another directive of this Corefile serves 127.0.0.1:0 without TLS: set another address for one of them"},
		{files, TLS{}, "another directive of this Corefile serves 127.0.0.1:0 with TLS of its own: set another address for one of them"},
		{files, others, "another directive of this Corefile serves 127.0.0.1:0 with TLS of its own: set another address for one of them"},
		{files, files, ""},
	} {
		start := config.NewStart(context.Background(), nil)
		_, err := Open(start, "127.0.0.1:0", c.first)
		if err != nil {
			t.Fatal(err)
		}
		_, err = Open(start, "127.0.0.1:0", c.second)
		if got := ""; err != nil || c.want != "" {
			if err != nil {
				got = err.Error()
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		}
		start.Stop()
	}
}

func TestTLSErrors(t *testing.T) {
	dir := t.TempDir()
	files, _ := writeCert(t, dir, "server")
	empty := filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, bad := range map[string]TLS{
		"reading the certificate and its key: open ":                                  {Cert: dir + "/none", Key: files.Key},
		"reading the certificate and its key: tls: ":                                  {Cert: empty, Key: files.Key},
		"reading the CA certificates: open ":                                          {Cert: files.Cert, Key: files.Key, CA: dir + "/none"},
		"reading the CA certificates: " + empty + " has no certificate in PEM format": {Cert: files.Cert, Key: files.Key, CA: empty},
	} {
		start := config.NewStart(context.Background(), nil)
		if _, err := Open(start, "127.0.0.1:0", bad); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("Open with %+v: got %v, want %s", bad, err, want)
		}
		start.Abort()
	}
}

// A handler for a path that ends in a slash serves all paths below it.
func TestHandlePathPrefix(t *testing.T) {
	start := config.NewStart(context.Background(), nil)
	defer start.Stop()
	site, err := Open(start, "127.0.0.1:0", TLS{})
	if err != nil {
		t.Fatal(err)
	}
	site.Handle("/a/", page("a"))
	site.Handle("/a/b/c", page("c"))
	site.Handle("/d", page("d"))
	site.Show()
	for path, want := range map[string]string{"/a/": "a", "/a/b": "a", "/a/b/": "a", "/a/b/c": "c", "/a/b/c/d": "a", "/d": "d", "/a": "", "/d/": "", "/": ""} {
		code, body := get(t, site.Addr(), path)
		if (code == 200) != (want != "") || code == 200 && body != want {
			t.Errorf("%s: got %d %q, want %q", path, code, body, want)
		}
	}
}
