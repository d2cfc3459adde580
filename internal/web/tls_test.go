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
)

// certify writes a self-signed certificate and its key, and gives it.
func certify(t *testing.T, dir, name string) (files TLS, pair tls.Certificate) {
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
	bare, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	files = TLS{Cert: filepath.Join(dir, name+".crt"), Key: filepath.Join(dir, name+".key")}
	for file, block := range map[string]*pem.Block{files.Cert: {Type: "CERTIFICATE", Bytes: der}, files.Key: {Type: "PRIVATE KEY", Bytes: bare}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if pair, err = tls.LoadX509KeyPair(files.Cert, files.Key); err != nil {
		t.Fatal(err)
	}
	return files, pair
}

// secured makes a client that trusts one certificate and shows others.
func secured(t *testing.T, trusts tls.Certificate, shows ...tls.Certificate) *http.Client {
	pool := x509.NewCertPool()
	leaf, err := x509.ParseCertificate(trusts.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	pool.AddCert(leaf)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: shows}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 10 * time.Second}
}

// fetch gives a page, or what was wrong.
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
	files, cert := certify(t, dir, "server")
	site, err := Open(start, "127.0.0.1:0", files)
	if err != nil {
		t.Fatal(err)
	}
	site.Handle("/a", page("one"))
	site.Show()
	url := "https://" + site.Addr().String() + "/a"
	if got := fetch(secured(t, cert), url); got != "one" {
		t.Errorf("got %q", got)
	}
	if got := fetch(&http.Client{}, strings.Replace(url, "https", "http", 1)); strings.Contains(got, "one") {
		t.Errorf("without TLS: got %q", got)
	}

	// The certificate is renewed; half of it is not.
	certify(t, dir, "server")
	if err := os.WriteFile(files.Key, []byte("no key"), 0o600); err != nil {
		t.Fatal(err)
	}
	site.tls.read = time.Time{}
	if got := fetch(secured(t, cert), url); got != "one" {
		t.Errorf("beside a broken file: got %q", got)
	}
	_, other := certify(t, dir, "server")
	site.tls.mu.Lock()
	site.tls.read = time.Time{}
	site.tls.mu.Unlock()
	if got := fetch(secured(t, other), url); got != "one" {
		t.Errorf("renewed: got %q", got)
	}
}

func TestTLSOfClients(t *testing.T) {
	dir := t.TempDir()
	files, server := certify(t, dir, "server")
	ca, friend := certify(t, dir, "friend")
	_, stranger := certify(t, dir, "stranger")
	files.CA = ca.Cert
	for _, c := range []struct {
		mode                     tls.ClientAuthType
		nobody, stranger, friend bool
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
		url := "https://" + site.Addr().String() + "/a"
		for name, client := range map[string]*http.Client{
			"nobody": secured(t, server), "stranger": secured(t, server, stranger), "friend": secured(t, server, friend),
		} {
			want := map[string]bool{"nobody": c.nobody, "stranger": c.stranger, "friend": c.friend}[name]
			if got := fetch(client, url); (got == "one") != want {
				t.Errorf("%v, %s: got %q", c.mode, name, got)
			}
		}
		start.Stop()
	}
}

// A reload may change from HTTP to HTTPS. A connection that is older than that
// gets nothing more.
func TestTLSReload(t *testing.T) {
	const addr = "127.0.0.1:0"
	dir := t.TempDir()
	files, cert := certify(t, dir, "server")
	first := config.NewStart(context.Background(), nil)
	old, err := Open(first, addr, TLS{})
	if err != nil {
		t.Fatal(err)
	}
	old.Handle("/a", page("one"))
	old.Show()
	plain := &http.Client{Transport: new(http.Transport)}
	url := "http://" + old.Addr().String() + "/a"
	if got := fetch(plain, url); got != "one" {
		t.Errorf("got %q", got)
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
		t.Errorf("an old connection: got %q", got)
	}
	if got := fetch(secured(t, cert), strings.Replace(url, "http", "https", 1)); got != "two" {
		t.Errorf("got %q", got)
	}
}

// An address is served in one way, whatever the order of its directives.
func TestTLSMixed(t *testing.T) {
	dir := t.TempDir()
	files, _ := certify(t, dir, "server")
	others, _ := certify(t, dir, "other")
	for _, c := range []struct {
		first, then TLS
		want        string
	}{
		{TLS{}, files, "another directive of this Corefile serves 127.0.0.1:0 without TLS: give one of them another address"},
		{files, TLS{}, "another directive of this Corefile serves 127.0.0.1:0 with TLS of its own: give one of them another address"},
		{files, others, "another directive of this Corefile serves 127.0.0.1:0 with TLS of its own: give one of them another address"},
		{files, files, ""},
	} {
		start := config.NewStart(context.Background(), nil)
		_, err := Open(start, "127.0.0.1:0", c.first)
		if err != nil {
			t.Fatal(err)
		}
		_, err = Open(start, "127.0.0.1:0", c.then)
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

func TestTLSWrong(t *testing.T) {
	dir := t.TempDir()
	files, _ := certify(t, dir, "server")
	empty := filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, wrong := range map[string]TLS{
		"reading the certificate and its key: open ":                                  {Cert: dir + "/none", Key: files.Key},
		"reading the certificate and its key: tls: ":                                  {Cert: empty, Key: files.Key},
		"reading the CA certificates: open ":                                          {Cert: files.Cert, Key: files.Key, CA: dir + "/none"},
		"reading the CA certificates: " + empty + " has no certificate in PEM format": {Cert: files.Cert, Key: files.Key, CA: empty},
	} {
		start := config.NewStart(context.Background(), nil)
		if _, err := Open(start, "127.0.0.1:0", wrong); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
		start.Abort()
	}
}

// A path that ends in a slash has what is below it.
func TestBelow(t *testing.T) {
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
			t.Errorf("%s: %d %q", path, code, body)
		}
	}
}
