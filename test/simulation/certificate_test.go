package simulation

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// upstreamName is the name in the certificate of the upstreams.
const upstreamName = "dns.example"

// A certificate is the certificate of the upstreams and of the server, which signs itself. file has
// it for Corefiles, and keyFile its key.
type certificate struct {
	own, other    tls.Certificate
	file, keyFile string
}

// config returns the configuration of an upstream, or of one that has another certificate
// for the same name.
func (c *certificate) config(forged bool) *tls.Config {
	if forged {
		return &tls.Config{Certificates: []tls.Certificate{c.other}}
	}
	return &tls.Config{Certificates: []tls.Certificate{c.own}}
}

func newCertificate(t *testing.T) *certificate {
	dir := t.TempDir()
	c := &certificate{selfSigned(), selfSigned(), filepath.Join(dir, "ca.pem"), filepath.Join(dir, "key.pem")}
	for file, block := range map[string]*pem.Block{
		c.file:    {Type: "CERTIFICATE", Bytes: c.own.Certificate[0]},
		c.keyFile: {Type: "PRIVATE KEY", Bytes: must(x509.MarshalPKCS8PrivateKey(c.own.PrivateKey))},
	} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// selfSigned makes a certificate that is valid when the virtual clock starts, in 2000.
func selfSigned() tls.Certificate {
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{upstreamName}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC), NotAfter: time.Date(2010, 1, 1, 0, 0, 0, 0, time.UTC),
	}
	der := must(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key))
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: must(x509.ParseCertificate(der))}
}
