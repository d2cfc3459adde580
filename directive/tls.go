package directive

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/observe/web"
	"github.com/seamark/seamark/sys/watch"
)

// TLS sets the certificate of encrypted listeners: the tls directive. Its reference page is
// docs/reference/directives/tls.md.
type TLS struct {
	files  tlsFiles
	loaded *certificates // set when the plan starts
}

// tlsFiles identify the certificates.
type tlsFiles struct {
	web.TLS
	keyLog string
}

// TLSFiles returns a value that is equal for directives with the same files and policy.
func (t *TLS) TLSFiles() any { return t.files }

// ServerTLS returns the present configuration.
func (t *TLS) ServerTLS() *tls.Config { return t.loaded.config.Load() }

// SetupTLS sets up the tls directive.
func SetupTLS(b *config.Block, uses []corefile.Directive) error {
	t, d := new(TLS), uses[0]
	b.Offer(t)
	if slices.ContainsFunc(d.Body, func(o corefile.Directive) bool { return o.Text == "acme" }) {
		return d.Errorf("acme is not supported: give CERT and KEY, which are read again when another program renews them")
	}
	if err := errors.Join(config.Once(uses), d.Arity(2, 3)); err != nil {
		return err
	}
	err := parseTLS(b, d, &t.files.TLS, tls.NoClientCert, corefile.Option{Usage: "keylog FILE", Set: func(o corefile.Directive) error {
		t.files.keyLog = b.Path(o.Args[0].Text)
		return nil
	}})
	if !slices.ContainsFunc(b.Schemes, func(s config.Scheme) bool { return s != config.DNS }) {
		b.Warn(d.Errorf("no effect: no key of this server block has a scheme with encryption, such as tls://"))
	}
	b.OnStart(func(s *config.Start) (err error) {
		t.loaded, err = config.Keep(s, t.files, func() (*certificates, error) { return newCertificates(t.files, b) })
		if err != nil {
			return d.Errorf("%w", err)
		}
		return nil
	})
	return err
}

// parseTLS reads the arguments and options of a tls directive or option. withCA is the
// policy for client certificates if there is a CA and no client_auth.
func parseTLS(b *config.Block, d corefile.Directive, files *web.TLS, withCA tls.ClientAuthType, more ...corefile.Option) error {
	args := d.Words()
	files.Cert, files.Key = b.Path(args[0]), b.Path(args[1])
	if len(args) == 3 {
		files.CA, files.Client = b.Path(args[2]), withCA
	}
	var fileErr error
	if err := files.Check(); err != nil {
		fileErr = d.Errorf("%w", err)
	}
	modes := []string{"nocert", "request", "require", "verify_if_given", "require_and_verify"} // in the order of tls.ClientAuthType
	return errors.Join(fileErr, d.Options(append(more, corefile.Option{Usage: "client_auth nocert|request|require|verify_if_given|require_and_verify", Set: func(o corefile.Directive) error {
		word := ""
		if err := corefile.OneOf(&word, modes...)(o); err != nil {
			return err
		}
		files.Client = tls.ClientAuthType(slices.Index(modes, word))
		if files.CA == "" && files.Client >= tls.VerifyClientCertIfGiven {
			return o.Errorf("%s needs a CA; write tls CERT KEY CA", word)
		}
		return nil
	}})...))
}

// certificates has the TLS configuration of files, and reads them again when they have
// changed. It survives reloads.
type certificates struct {
	files  tlsFiles
	config atomic.Pointer[tls.Config]
	log    *slog.Logger
	keyLog *os.File // may be nil
	drop   func()   // removes the gauge
	cancel context.CancelFunc
	done   chan struct{}
}

func newCertificates(files tlsFiles, b *config.Block) (*certificates, error) {
	c := &certificates{files: files, log: b.Log, done: make(chan struct{})}
	paths := []string{files.Cert, files.Key}
	if files.CA != "" {
		paths = append(paths, files.CA)
	}
	w := watch.New(paths, watch.Options{Poll: 5 * time.Second, Log: b.Log})
	var err error
	if files.keyLog != "" {
		if c.keyLog, err = os.OpenFile(files.keyLog, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600); err != nil {
			w.Close()
			return nil, fmt.Errorf("opening the key log: %w", err)
		}
	}
	if err := c.load(); err != nil {
		w.Close()
		c.keyLog.Close()
		return nil, err
	}
	c.drop = b.Metrics.TemporaryGauge("seamark_tls_certificate_expiry_seconds", "Time at which the certificate in use expires, in seconds since 1970.",
		func() float64 { return float64(c.config.Load().Certificates[0].Leaf.NotAfter.Unix()) }, "file", files.Cert)
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	go c.follow(ctx, w)
	return c, nil
}

// Stop ends the watch.
func (c *certificates) Stop() {
	c.cancel()
	<-c.done
	c.drop()
	_ = c.keyLog.Close()
}

func (c *certificates) follow(ctx context.Context, w *watch.Watcher) {
	defer close(c.done)
	defer w.Close()
	for w.Wait(ctx) {
		before := c.config.Load()
		switch err := c.load(); {
		case err != nil:
			c.log.Error("tls: Rejected new certificate files, keeping the old ones", "file", c.files.Cert, "error", err)
		case !c.config.Load().Certificates[0].Leaf.Equal(before.Certificates[0].Leaf):
			c.log.Info("tls: Loaded a new certificate", "file", c.files.Cert)
		}
	}
}

func (c *certificates) load() error {
	config, err := c.files.Load()
	if err != nil {
		return err
	}
	if c.keyLog != nil {
		config.KeyLogWriter = c.keyLog
	}
	c.config.Store(config)
	return nil
}
