package web

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"sync"
	"time"
)

// TLS names the PEM files of a server's certificate. CA is optional;
// it has the certificates of the authorities that sign client certificates.
// Client is the policy for client certificates.
type TLS struct {
	Cert, Key, CA string
	Client        tls.ClientAuthType
}

// Check reports whether the files can be used.
func (t TLS) Check() error {
	_, err := t.Load()
	return err
}

// reloadInterval is the least time between two reads of the files.
const reloadInterval = time.Second

// tlsFiles provides the TLS configuration of one site. It reads the files again
// as clients connect, so that renewed certificates are used; if that fails it
// keeps the previous ones.
type tlsFiles struct {
	names  TLS
	config *tls.Config

	mu     sync.Mutex
	loaded *tls.Config
	read   time.Time
}

func newTLSFiles(names TLS) (*tlsFiles, error) {
	s := &tlsFiles{names: names}
	s.config = &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return s.current(), nil },
	}
	var err error
	s.loaded, err = names.Load()
	s.read = time.Now()
	return s, err
}

func (s *tlsFiles) current() *tls.Config {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.read) > reloadInterval {
		if loaded, err := s.names.Load(); err == nil {
			s.loaded = loaded
		}
		s.read = time.Now()
	}
	return s.loaded
}

// Load reads the files.
func (t TLS) Load() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ClientAuth: t.Client, NextProtos: []string{"http/1.1"}}
	pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
	if err != nil {
		return nil, fmt.Errorf("reading the certificate and its key: %w", err)
	}
	c.Certificates = []tls.Certificate{pair}
	if t.CA == "" {
		return c, nil
	}
	text, err := os.ReadFile(t.CA)
	if err != nil {
		return nil, fmt.Errorf("reading the CA certificates: %w", err)
	}
	c.ClientCAs = x509.NewCertPool()
	if !c.ClientCAs.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("reading the CA certificates: %s has no certificate in PEM format", t.CA)
	}
	return c, nil
}

// allows reports whether the site accepts requests on a connection with this
// state. The connection may have been opened before the site was shown.
func (s *tlsFiles) allows(state *tls.ConnectionState) bool {
	switch {
	case s == nil:
		return true
	case state == nil:
		return false
	case s.names.Client == tls.RequireAnyClientCert:
		return len(state.PeerCertificates) > 0
	case s.names.Client == tls.RequireAndVerifyClientCert:
		return len(state.VerifiedChains) > 0
	}
	return true
}
