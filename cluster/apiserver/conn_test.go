package apiserver

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seamark/seamark/cluster"
)

// clientCertificate returns the files of a certificate and of its key.
func clientCertificate(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	bytes, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}

	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	for file, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: bytes}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// The connection of a request is found, so that it is closed when it has stalled, below TLS with and
// without a certificate of the client; and each probe takes a new one.
func TestConnections(t *testing.T) {
	a := &fakeServer{objects: map[string]string{"services": webAndEmpty}, ended: make(chan struct{})}
	ca := serveTLS(t, a)
	cert, key := clientCertificate(t)
	for name, o := range map[string]cluster.Options{
		"CA": {Endpoint: a.URL, CA: ca}, "certificate of the client": {Endpoint: a.URL, CA: ca, Cert: cert, Key: key},
	} {
		t.Run(name, func(t *testing.T) {
			var dialed atomic.Int32
			c := newClient(o, nil, func(ctx context.Context, network, address string) (net.Conn, error) {
				dialed.Add(1)
				return new(net.Dialer).DialContext(ctx, network, address)
			})
			if err := c.load(); err != nil {
				t.Fatal(err)
			}
			defer c.closeIdle()

			found := false
			ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
				GotConn: func(info httptrace.GotConnInfo) { found = underlying(info.Conn) != nil },
			})
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, a.URL+"/api/v1/services", nil)
			if err != nil {
				t.Fatal(err)
			}
			response, err := c.http.Transport.RoundTrip(request)
			if err != nil {
				t.Fatal(err)
			}
			response.Body.Close()
			if !found {
				t.Error("the connection of the request is not found")
			}

			before := dialed.Load()
			for range 3 {
				if !c.sendProbe(request.WithContext(t.Context()), time.Minute) {
					t.Error("a probe is not answered")
				}
			}
			if n := dialed.Load() - before; n != 3 {
				t.Errorf("3 probes: got %d connections, want 3", n)
			}
		})
	}
}
