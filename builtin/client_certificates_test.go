package builtin

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"strings"
	"testing"
	"time"

	mdns "github.com/miekg/dns"
)

// An authority issues certificates for clients.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t}
	a.cert, a.key = a.issue(&x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, NotAfter: time.Now().Add(time.Hour)})
	return a
}

// issue signs a certificate, with its own key if the authority has none yet.
func (a *authority) issue(c *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	// The names are equal, so that a verifier has to look at the keys.
	c.SerialNumber, c.Subject, c.NotBefore = big.NewInt(time.Now().UnixNano()), pkix.Name{CommonName: "client"}, time.Now().Add(-2*time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, key.Public(), signer)
	if err == nil {
		c, err = x509.ParseCertificate(der)
	}
	if err != nil {
		a.t.Fatal(err)
	}
	return c, key
}

// client returns a certificate for a client that ends at some time from now.
func (a *authority) client(end time.Duration, usage x509.ExtKeyUsage) *tls.Certificate {
	a.t.Helper()
	c, key := a.issue(&x509.Certificate{NotAfter: time.Now().Add(end), ExtKeyUsage: []x509.ExtKeyUsage{usage}, KeyUsage: x509.KeyUsageDigitalSignature})
	return &tls.Certificate{Certificate: [][]byte{c.Raw}, PrivateKey: key}
}

// write replaces the file of the authority.
func (a *authority) write() {
	a.t.Helper()
	err := os.WriteFile("ca.pem.new", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw}), 0o600)
	if err == nil {
		err = os.Rename("ca.pem.new", "ca.pem")
	}
	if err != nil {
		a.t.Fatal(err)
	}
}

// withCertificate returns a client's configuration that sends c to every server.
func withCertificate(c *tls.Certificate) *tls.Config {
	return &tls.Config{InsecureSkipVerify: true, GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		if c == nil {
			return new(tls.Certificate), nil
		}
		return c, nil
	}}
}

// askTLS reports whether a client with a configuration is answered, and whether it has resumed
// a session.
func (s *encrypted) askTLS(port string, config *tls.Config) (resumed bool, err error) {
	client := &mdns.Client{Net: "tcp-tls", TLSConfig: config, Timeout: patience}
	c, err := client.Dial("127.0.0.1:" + port)
	if err != nil {
		return false, err
	}
	defer c.Close()
	r, _, err := client.ExchangeWithConn(new(mdns.Msg).SetQuestion("a.example.", mdns.TypeTXT), c)
	if err == nil && len(r.Answer) == 0 {
		err = fmt.Errorf("got %v", r)
	}
	return c.Conn.(*tls.Conn).ConnectionState().DidResume, err
}

// Each policy accepts the certificates that it describes, over each transport.
func TestClientCertificates(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	ca, other := newAuthority(t), newAuthority(t)
	certificates := map[string]*tls.Certificate{
		"none": nil, "valid": ca.client(time.Hour, x509.ExtKeyUsageClientAuth), "expired": ca.client(-time.Hour, x509.ExtKeyUsageClientAuth),
		"of another authority": other.client(time.Hour, x509.ExtKeyUsageClientAuth), "of a server": ca.client(time.Hour, x509.ExtKeyUsageServerAuth),
	}
	all := "none valid expired of another authority of a server"
	for mode, accepted := range map[string]string{
		"nocert": all, "request": all, "require": all[len("none "):], "verify_if_given": "none valid", "require_and_verify": "valid", "": all,
	} {
		t.Run(mode, func(t *testing.T) {
			s := serveEncrypted(t, "dns://. {\n whoami\n}")
			ca.write()
			options := " {\n  client_auth " + mode + "\n }"
			if mode == "" { // with a CA alone
				options = ""
			}
			s.load(everyScheme + " {\n tls cert.pem key.pem ca.pem" + options + "\n template IN TXT . {\n  answer \"{{ .Name }} 60 IN TXT answered\"\n }\n}")
			for name, c := range certificates {
				want := strings.Contains(accepted, name)
				for _, tr := range encryptedProtocols {
					if _, err := s.dialWith(tr, withCertificate(c)).ask(t.Context(), packed(t, "a.example.")); (err == nil) != want {
						t.Errorf("certificate %s over %s: got error %v, want accepted %v", name, tr.name, err, want)
					}
				}
			}
		})
	}
}

// When the file of the authority changes, the certificates of the old one are refused, also for
// sessions that they began before. Open connections continue.
func TestClientAuthorityReplaced(t *testing.T) {
	ca, next := newAuthority(t), newAuthority(t)
	s := serveEncrypted(t, "dns://. {\n whoami\n}")
	ca.write()
	s.load("tls://. {" + strings.Replace(answersExample, "key.pem", "key.pem ca.pem {\n client_auth require_and_verify\n}", 1))
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		ca.write()
		old := withCertificate(ca.client(time.Hour, x509.ExtKeyUsageClientAuth))
		old.MaxVersion, old.ClientSessionCache = version, tls.NewLRUClientSessionCache(4)
		s.eventually("the first authority is used", func() bool { _, err := s.askTLS(s.port(0), old); return err == nil })
		if resumed, err := s.askTLS(s.port(0), old); err != nil || !resumed {
			t.Errorf("version %x: got resumed %v, error %v; want a resumed session", version, resumed, err)
		}
		open := linkTLS(&caller{t, s.address("tls"), old})
		if got := outcome(open.ask(t.Context(), packed(t, "a.example."))); got != "NOERROR" {
			t.Fatalf("version %x: got %s, want an answer", version, got)
		}
		next.write()
		renewed := withCertificate(next.client(time.Hour, x509.ExtKeyUsageClientAuth))
		s.eventually("the next authority is used", func() bool { _, err := s.askTLS(s.port(0), renewed); return err == nil })
		if resumed, err := s.askTLS(s.port(0), old); err == nil {
			t.Errorf("version %x: a certificate of the old authority was accepted, resumed %v", version, resumed)
		}
		if got := outcome(open.ask(t.Context(), packed(t, "a.example."))); got != "NOERROR" {
			t.Errorf("version %x: open connection: got %s, want an answer", version, got)
		}
	}
}
