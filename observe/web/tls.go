package web

import (
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/sys/certpool"
	"github.com/seamark/seamark/sys/health"
	"github.com/seamark/seamark/sys/slots"
	"github.com/seamark/seamark/sys/watch"
	"github.com/seamark/seamark/transport"
)

// TLS names the PEM files of a server's certificate. CA is optional;
// it has the certificates of the authorities that sign client certificates.
// Client is the policy for client certificates.
type TLS struct {
	Cert, Key, CA string
	Client        tls.ClientAuthType
}

// clientAuth are the words of the option client_auth, in the order of tls.ClientAuthType.
var clientAuth = []string{"nocert", "request", "require", "verify_if_given", "require_and_verify"}

// Parse reads the arguments CERT KEY [CA] of a tls directive or option, and its options:
// client_auth, and more. withCA is the policy for client certificates if there is a CA and no
// client_auth.
func (t *TLS) Parse(
	b *config.Block, d corefile.Directive, withCA tls.ClientAuthType, more ...corefile.Option,
) error {
	args := d.Words()
	t.Cert, t.Key = b.Path(args[0]), b.Path(args[1])
	if len(args) == 3 {
		t.CA, t.Client = b.Path(args[2]), withCA
	}
	_, fileErr := t.Load()
	b.WarnExposed(d, t.Key)

	setClient := func(o corefile.Directive) error {
		word := ""
		if err := corefile.OneOf(&word, clientAuth...)(o); err != nil {
			return err
		}
		t.Client = tls.ClientAuthType(slices.Index(clientAuth, word))
		if t.CA == "" && t.Client >= tls.VerifyClientCertIfGiven {
			return o.Errorf("%s needs a CA; write tls CERT KEY CA", word)
		}
		return nil
	}
	return errors.Join(d.Each(fileErr), d.Options(append(more, corefile.Option{
		Usage:   "client_auth " + strings.Join(clientAuth, "|"),
		Default: clientAuth[t.Client],
		Set:     setClient,
	})...))
}

// reloadInterval is the least time between two reads of the files.
const reloadInterval = time.Second

// failedInterval is the time after which they are read again, also without clients, if that failed.
const failedInterval = 10 * time.Second

// tlsFiles provides the TLS configuration of one site. It reads the files again
// as clients connect, so that renewed certificates are used; if that fails it
// keeps the previous ones.
type tlsFiles struct {
	names  TLS
	config *tls.Config
	to     reports

	mu     sync.Mutex
	loaded *tls.Config
	read   time.Time
	failed string      // the last error; "" if the files were read
	told   string      // the last one that was logged
	again  *time.Timer // reads the files while there is an error
	ended  bool        // the plan has ended: nothing is told any more
}

func newTLSFiles(names TLS, pool *slots.Pool, to reports) (*tlsFiles, error) {
	s := &tlsFiles{names: names, to: to}
	s.config = &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: transport.LimitHandshakes(pool, s.current),
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
		s.load()
	}
	return s.loaded
}

// end ends what load tells.
func (s *tlsFiles) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	if s.again != nil {
		s.again.Stop()
	}
	s.to.health.Forget(s)
}

// load reads the files again. It tells of an error that it has found twice: the files may be being replaced.
func (s *tlsFiles) load() {
	if s.ended {
		return
	}
	loaded, err := s.names.Load()
	s.read = time.Now()
	if err == nil {
		s.loaded, s.failed, s.told = loaded, "", ""
		s.to.health.Clear(s, "certificate")
		return
	}

	if s.again != nil {
		s.again.Stop()
	}
	s.again = time.AfterFunc(failedInterval, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.load()
	})
	text := err.Error()
	if s.failed != text {
		s.failed = text
		return
	}
	if s.told != text {
		s.told = text
		s.to.log.Warn("Loading the certificate of pages failed, keeping the previous one", "file", s.names.Cert, "error", err)
	}
	s.to.health.Set(s, "certificate", health.Condition{
		Severity: health.Warning, Object: s.names.Cert, Text: fmt.Sprintf("the certificate of pages cannot be read: %v", err),
	})
}

// Load reads the files.
func (t TLS) Load() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ClientAuth: t.Client, NextProtos: []string{"http/1.1"}}
	pair, err := watch.KeyPair(t.Cert, t.Key)
	if err != nil {
		return nil, fmt.Errorf("reading the certificate and its key: %w", err)
	}
	c.Certificates = []tls.Certificate{pair}
	if t.CA == "" {
		return c, nil
	}
	if c.ClientCAs, err = certpool.Read(t.CA); err != nil {
		return nil, fmt.Errorf("reading the CA certificates: %w", err)
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
