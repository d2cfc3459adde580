// Package certs makes certificates for servers and clients on loopback addresses.
package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"time"
)

// An Authority is a certificate authority and a serving certificate that it has
// signed for 127.0.0.1 and localhost, in PEM.
type Authority struct {
	CA        []byte
	Cert, Key []byte
	issuer    *x509.Certificate
	issuerKey *ecdsa.PrivateKey
}

// New makes an authority that is valid for a week. The keys are P-256: making RSA
// keys would take longer than the start of an API server.
func New() (*Authority, error) {
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	ca := &x509.Certificate{
		SerialNumber:          big.NewInt(now.UnixNano()),
		Subject:               pkix.Name{CommonName: "kubetest CA"},
		NotBefore:             now.Add(-time.Hour),
		NotAfter:              now.Add(7 * 24 * time.Hour),
		KeyUsage:              x509.KeyUsageCertSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, &caKey.PublicKey, caKey)
	if err != nil {
		return nil, err
	}
	c := &Authority{CA: pemBlock("CERTIFICATE", caDER), issuer: ca, issuerKey: caKey}
	c.Cert, c.Key, err = c.Sign("kubetest", x509.ExtKeyUsageServerAuth)
	return c, err
}

// Sign returns a certificate for name on 127.0.0.1 and localhost, and its key, in
// PEM.
func (c *Authority) Sign(name string, usages ...x509.ExtKeyUsage) (cert, key []byte, err error) {
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}

	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    c.issuer.NotBefore,
		NotAfter:     c.issuer.NotAfter,
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  usages,
		DNSNames:     []string{"localhost"},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
	}

	der, err := x509.CreateCertificate(rand.Reader, leaf, c.issuer, &own.PublicKey, c.issuerKey)
	if err != nil {
		return nil, nil, err
	}

	ownDER, err := x509.MarshalPKCS8PrivateKey(own)
	if err != nil {
		return nil, nil, err
	}
	return pemBlock("CERTIFICATE", der), pemBlock("PRIVATE KEY", ownDER), nil
}

// pemBlock wraps der into one PEM block.
func pemBlock(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// Pool returns the certificate authority as a pool to verify against.
func (c *Authority) Pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AppendCertsFromPEM(c.CA)
	return p
}
