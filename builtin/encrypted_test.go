package builtin

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/server"
	"github.com/seamark/seamark/test/debian"
)

// encrypted is a running server with the files of folder.
type encrypted struct {
	t       *testing.T
	plan    *server.Plan
	metrics metrics.Registry
	log     logBuffer
}

type logBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) contains(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.b.String(), text)
}

func serveEncrypted(t *testing.T, text string) *encrypted {
	t.Helper()
	t.Chdir(folder(t))
	s := &encrypted{t: t}
	s.load(text)
	t.Cleanup(func() {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		s.plan.Stop(ended)
	})
	return s
}

// load makes the server serve another Corefile.
func (s *encrypted) load(text string) {
	s.t.Helper()
	blocks, err := corefile.Parse("Corefile", []byte(text))
	var next *server.Plan
	if err == nil {
		next, err = server.NewPlan(blocks, server.Options{
			Directives: Directives(), Listen: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0")},
			Log: slog.New(slog.NewTextHandler(&s.log, nil)), Metrics: &s.metrics,
		})
	}
	if err == nil {
		err = next.Start(s.t.Context(), s.plan)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.plan = next
}

// port returns the port of the nth address.
func (s *encrypted) port(n int) string { return fmt.Sprint(s.plan.Addresses()[n].Port()) }

// run runs a client and returns its output.
func (s *encrypted) run(name string, args ...string) string {
	s.t.Helper()
	debian.Program(s.t, name)
	ctx, cancel := context.WithTimeout(s.t.Context(), 30*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		s.t.Errorf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

func (s *encrypted) eventually(what string, ok func() bool) {
	s.t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("timed out waiting until %s; log:\n%s", what, s.log.b.String())
		}
	}
}

const answersPort = `
    tls cert.pem key.pem
    template IN TXT . {
        answer "{{ .Name }} 60 IN TXT {{ .Remote }}"
    }
}
`

func TestKdigTLS(t *testing.T) {
	s := serveEncrypted(t, "tls://. {"+answersPort)
	for _, options := range []string{"+tls-ca=ca.pem +tls-hostname=dns.example", "+tls +keepopen", "+tls +padding=128 +alignment"} {
		args := append(strings.Fields(options), "@127.0.0.1", "-p", s.port(0), "a.example", "TXT", "b.example", "TXT")
		if out := s.run("kdig", args...); strings.Count(out, `TXT	"127.0.0.1"`) != 2 {
			t.Errorf("kdig %s: got\n%s\nwant two records with 127.0.0.1", strings.Join(args, " "), out)
		}
	}
	if out := s.run("kdig", "+tls", "+padding=100", "@127.0.0.1", "-p", s.port(0), "a.example", "TXT"); !strings.Contains(out, "468 B") {
		t.Errorf("kdig +padding: got\n%s\nwant a reply of 468 bytes", out)
	}
}

// dialTLS returns a connection to the server, and checks that it answers.
func (s *encrypted) dialTLS(config *tls.Config) *mdns.Conn {
	s.t.Helper()
	client := &mdns.Client{Net: "tcp-tls", TLSConfig: config, Timeout: 10 * time.Second}
	c, err := client.Dial("127.0.0.1:" + s.port(0))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })
	s.ask(c)
	return c
}

func (s *encrypted) ask(c *mdns.Conn) {
	s.t.Helper()
	client := &mdns.Client{Timeout: 10 * time.Second}
	r, _, err := client.ExchangeWithConn(new(mdns.Msg).SetQuestion("a.example.", mdns.TypeTXT), c)
	if err != nil || len(r.Answer) != 1 {
		s.t.Fatalf("got reply %v, error %v; want one record", r, err)
	}
}

// serial returns the serial number of the certificate that the server presents.
func (s *encrypted) expiry() int64 {
	s.t.Helper()
	c := s.dialTLS(&tls.Config{InsecureSkipVerify: true})
	return c.Conn.(*tls.Conn).ConnectionState().PeerCertificates[0].NotAfter.Unix()
}

// writePair replaces the files of the certificate by a pair that expires later.
func writePair(t *testing.T, valid time.Duration) {
	t.Helper()
	cert, key := certificateFor(t, valid)
	for name, text := range map[string]string{"cert.pem": cert, "key.pem": key} {
		if err := os.WriteFile(name+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(name+".new", name); err != nil {
			t.Fatal(err)
		}
	}
}

// A renewed certificate is used for new connections, an invalid one is not, and open
// connections continue, also over a reload.
func TestCertificateRenewal(t *testing.T) {
	s := serveEncrypted(t, "tls://. {"+answersPort)
	open := s.dialTLS(&tls.Config{InsecureSkipVerify: true})
	first := s.expiry()

	_, other := certificateFor(t, time.Hour)
	old, err := os.ReadFile("key.pem")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("key.pem", []byte(other), 0o600); err != nil {
		t.Fatal(err)
	}
	s.eventually("the invalid pair is rejected", func() bool {
		return s.log.contains("Rejected new certificate files") && s.log.contains("private key does not match public key")
	})
	if got := s.expiry(); got != first {
		t.Errorf("after an invalid pair: got a certificate that expires at %d, want the first one, %d", got, first)
	}
	if err := os.WriteFile("key.pem", old, 0o600); err != nil {
		t.Fatal(err)
	}

	writePair(t, 100*time.Hour)
	s.eventually("the new pair is used", func() bool { return s.expiry() > first })
	s.ask(open)
	var text strings.Builder
	if err := s.metrics.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	var expires float64
	for line := range strings.Lines(text.String()) {
		if strings.HasPrefix(line, "seamark_tls_certificate_expiry_seconds{") {
			_, _ = fmt.Sscan(line[strings.LastIndexByte(line, ' ')+1:], &expires)
		}
	}
	if want := s.expiry(); int64(expires) != want {
		t.Errorf("seamark_tls_certificate_expiry_seconds: got %v, want %d", expires, want)
	}

	if err := os.Link("cert.pem", "other-cert.pem"); err != nil {
		t.Fatal(err)
	}
	s.load(strings.Replace("tls://. {"+answersPort, "cert.pem", "other-cert.pem", 1))
	s.ask(open)
	s.expiry()
}

// Clients need a certificate of the CA with require_and_verify.
func TestClientAuth(t *testing.T) {
	s := serveEncrypted(t, "tls://. {"+strings.Replace(answersPort, "key.pem", "key.pem ca.pem {\n client_auth require_and_verify\n}", 1))
	pair, err := tls.LoadX509KeyPair("cert.pem", "key.pem")
	if err != nil {
		t.Fatal(err)
	}
	s.dialTLS(&tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}})
	client := &mdns.Client{Net: "tcp-tls", TLSConfig: &tls.Config{InsecureSkipVerify: true}, Timeout: 10 * time.Second}
	if r, _, err := client.Exchange(new(mdns.Msg).SetQuestion("a.example.", mdns.TypeTXT), "127.0.0.1:"+s.port(0)); err == nil {
		t.Errorf("client without a certificate: got %v, want an error", r)
	}
}

// remote returns the text of the TXT record in a reply, its response code, or the error.
func remote(reply *mdns.Msg, err error) string {
	if err != nil {
		return "error " + err.Error()
	}
	for _, rr := range reply.Answer {
		if txt, ok := rr.(*mdns.TXT); ok {
			return txt.Txt[0]
		}
	}
	return mdns.RcodeToString[reply.Rcode]
}
