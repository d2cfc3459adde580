package web

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"sync"
	"time"
)

// TLS is the files by which a site is served with HTTPS, all in PEM. CA, which
// may be empty, holds the certificates of those who sign clients' certificates;
// Client says what is asked of clients.
type TLS struct {
	Cert, Key, CA string
	Client        tls.ClientAuthType
}

// fresh is how long files are taken to be what they were.
const fresh = time.Second

// A secure is the TLS of one site. Certificates are short-lived and are renewed
// under us: the files are read again as clients connect. What cannot be read
// then leaves what there was.
type secure struct {
	files  TLS
	config *tls.Config

	mu   sync.Mutex
	now  *tls.Config
	read time.Time
}

func newSecure(files TLS) (*secure, error) {
	s := &secure{files: files}
	s.config = &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return s.current(), nil },
	}
	var err error
	s.now, err = files.load()
	s.read = time.Now()
	return s, err
}

func (s *secure) current() *tls.Config {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.read) > fresh {
		if loaded, err := s.files.load(); err == nil {
			s.now = loaded
		}
		s.read = time.Now()
	}
	return s.now
}

func (t TLS) load() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ClientAuth: t.Client, NextProtos: []string{"http/1.1"}}
	pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
	if err != nil {
		return nil, fmt.Errorf("the certificate and its key cannot be used: %w", err)
	}
	c.Certificates = []tls.Certificate{pair}
	if t.CA == "" {
		return c, nil
	}
	text, err := os.ReadFile(t.CA)
	if err != nil {
		return nil, fmt.Errorf("the certificates of authorities cannot be read: %w", err)
	}
	c.ClientCAs = x509.NewCertPool()
	if !c.ClientCAs.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s has no certificate in PEM", t.CA)
	}
	return c, nil
}

// allows says whether a connection, which may be older than the site, is one
// that the site would take now.
func (s *secure) allows(state *tls.ConnectionState) bool {
	switch {
	case s == nil:
		return true
	case state == nil:
		return false
	case s.files.Client == tls.RequireAnyClientCert:
		return len(state.PeerCertificates) > 0
	case s.files.Client == tls.RequireAndVerifyClientCert:
		return len(state.VerifiedChains) > 0
	}
	return true
}
