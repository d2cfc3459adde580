package builtin

import (
	"context"
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

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/server"
	"github.com/seamark/seamark/test/debian"
)

// patience is how long a test waits for what must happen; it takes that long only if it fails.
const patience = 2 * time.Minute

// encrypted is a running server with the files of folder.
type encrypted struct {
	t       *testing.T
	plan    *server.Plan
	grace   time.Duration // for queries when an address is closed; zero is the default
	more    []config.Directive
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
	return serveWithGrace(t, text, 0)
}

// serveWithGrace is the same with a grace period for queries when an address is closed, and more directives.
func serveWithGrace(t *testing.T, text string, grace time.Duration, more ...config.Directive) *encrypted {
	t.Helper()
	t.Chdir(folder(t))
	s := &encrypted{t: t, grace: grace, more: more}
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
			Directives: append(s.more, Directives()...), Listen: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0")},
			Log: slog.New(slog.NewTextHandler(&s.log, nil)), Metrics: &s.metrics, Grace: s.grace,
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

// address returns the first address with a scheme.
func (s *encrypted) address(scheme string) string {
	s.t.Helper()
	for _, p := range s.plan.Ports() {
		if strings.HasPrefix(p.Name, scheme+"://") {
			return p.Address.String()
		}
	}
	s.t.Fatalf("no address has the scheme %s", scheme)
	return ""
}

// metricsText returns the page of the metrics.
func (s *encrypted) metricsText() string {
	s.t.Helper()
	var text strings.Builder
	if err := s.metrics.WriteText(&text); err != nil {
		s.t.Fatal(err)
	}
	return text.String()
}

// run runs a client and returns its output.
func (s *encrypted) run(name string, args ...string) string {
	s.t.Helper()
	debian.Program(s.t, name)
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		s.t.Errorf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

func (s *encrypted) eventually(what string, ok func() bool) {
	s.t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("timed out waiting until %s; log:\n%s", what, s.log.b.String())
		}
	}
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
