package directive

import (
	"crypto/tls"
	"errors"
	"slices"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
)

// TLS sets the certificate of encrypted listeners: the tls directive. Its reference page is
// docs/reference/directives/tls.md.
type TLS struct {
	files  tlsFiles
	loaded *certificates // set when the plan starts
}

// TLSFiles returns a value that is equal for directives with the same files and policy.
func (t *TLS) TLSFiles() any { return t.files }

// ServerTLS returns the present configuration.
func (t *TLS) ServerTLS() *tls.Config { return t.loaded.config.Load() }

// SetupTLS sets up the tls directive.
func SetupTLS(b *config.Block, uses []corefile.Directive) error {
	t, d := new(TLS), uses[0]
	b.Offer(t)
	if corefile.IndexOf(d.Body, "acme") >= 0 {
		return d.Errorf("acme is not supported: give CERT and KEY, " +
			"which are read again when another program renews them")
	}
	if err := errors.Join(config.Once(uses), d.Arity(2, 3)); err != nil {
		return err
	}

	keyLog := func(o corefile.Directive) error {
		t.files.keyLog = b.Path(o.Args[0].Text)
		return nil
	}
	err := t.files.Parse(b, d, tls.NoClientCert, corefile.Option{Usage: "keylog FILE", Set: keyLog})
	if !slices.ContainsFunc(b.Schemes, func(s config.Scheme) bool { return s != config.DNS }) {
		b.Warn(d.Errorf("no effect: no key of this server block has a scheme with encryption, such as tls://"))
	}

	b.OnStart(func(s *config.Start) (err error) {
		t.loaded, err = keepCertificates(s, b, t.files)
		return d.Each(err)
	})
	return err
}
