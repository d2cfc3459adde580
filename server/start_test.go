package server

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	core "github.com/seamark/seamark/dns"
)

// A slow handler waits until it is let go; then the answer is NOERROR.
type slow struct{ entered, release chan struct{} }

func newSlow() *slow { return &slow{make(chan struct{}, 100), make(chan struct{})} }

func (s *slow) Resolve(ctx context.Context, _ *core.Query) error {
	s.entered <- struct{}{}
	select {
	case <-s.release:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// start plans text, whose blocks listen on a free loopback port, and starts it.
func start(t *testing.T, text string, opts Options, old *Plan) *Plan {
	t.Helper()
	p, err := planOf(text, opts)
	if err == nil {
		err = p.Start(t.Context(), old)
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// ask gives the answer's code, or -1 if there is none.
func ask(network string, at netip.AddrPort, name string) int {
	m := new(dns.Msg).SetQuestion(name, dns.TypeA)
	c := dns.Client{Net: network, Timeout: 5 * time.Second}
	reply, _, err := c.Exchange(m, at.String())
	if err != nil {
		return -1
	}
	return reply.Rcode
}

func TestStartServesZonesByLongestSuffix(t *testing.T) {
	p := start(t, ". {\n bind 127.0.0.1\n code 5\n}\na.org b.org {\n bind 127.0.0.1\n code 0\n}\nx.a.org {\n bind 127.0.0.1\n code 3\n}\n", onPortZero(), nil)
	defer p.Stop(t.Context())
	if len(p.listeners) != 1 {
		t.Fatalf("%d listeners for one address", len(p.listeners))
	}
	at := p.listeners[0].Addr()
	for _, network := range []string{"udp", "tcp"} {
		for name, want := range map[string]int{"a.org.": 0, "B.org.": 0, "y.a.org.": 0, "x.a.org.": 3, "y.x.a.org.": 3, "org.": 5, ".": 5} {
			if got := ask(network, at, name); got != want {
				t.Errorf("%s %s: %d, want %d", network, name, got, want)
			}
		}
	}
}

func onPortZero() Options {
	opts := options()
	opts.Port = 0
	return opts
}

func TestStartOnWildcard(t *testing.T) {
	p := start(t, ". {\n code 3\n}\n", onPortZero(), nil)
	defer p.Stop(t.Context())
	port := p.listeners[0].Addr().Port()
	for _, ip := range []string{"127.0.0.1", "127.0.0.2", "::1"} {
		if got := ask("udp", netip.AddrPortFrom(netip.MustParseAddr(ip), port), "a."); got != 3 && (ip != "::1" || p.listeners[0].Addr().Addr().Is6()) {
			t.Errorf("%s: %d", ip, got)
		}
	}
}

// Questions go on being answered, each by the old plan or by the new one, while
// plans replace each other; what one of them kept is handed on.
func TestReloadLosesNothing(t *testing.T) {
	p := start(t, ". {\n bind 127.0.0.1\n code 0\n}\n", onPortZero(), nil)
	at := p.listeners[0].Addr()
	var asked, lost atomic.Int64
	var clients sync.WaitGroup
	done := make(chan struct{})
	for i := range 4 {
		clients.Go(func() {
			network := []string{"udp", "tcp"}[i%2]
			for {
				select {
				case <-done:
					return
				default:
				}
				asked.Add(1)
				if code := ask(network, at, "a."); code != 0 && code != 3 {
					lost.Add(1)
				}
			}
		})
	}
	for i := range 50 {
		text := ". {\n bind 127.0.0.1\n code 3\n}\n"
		if i%2 == 1 {
			text = strings.Replace(text, "code 3", "code 0", 1)
		}
		next := start(t, text, onPortZero(), p)
		if next.listeners[0] != p.listeners[0] {
			t.Fatal("the sockets are not kept")
		}
		p = next
		before := asked.Load()
		eventually(t, "more queries", func() bool { return asked.Load() > before+1 })
	}
	close(done)
	clients.Wait()
	if got := ask("udp", at, "a."); got != 0 {
		t.Errorf("the last plan does not answer: %d", got)
	}
	p.Stop(t.Context())
	if lost.Load() > 0 || asked.Load() < 50 {
		t.Errorf("%d of %d questions lost", lost.Load(), asked.Load())
	}
	if got := ask("tcp", at, "a."); got != -1 {
		t.Errorf("answers after Stop: %d", got)
	}
}

// A query that waits in the old plan is answered by it.
func TestReloadWaitsForParked(t *testing.T) {
	waits, swapped := newSlow(), make(chan struct{})
	opts := onPortZero()
	opts.Directives = append(opts.Directives, config.Directive{Name: "waits", Setup: func(b *config.Block, _ []corefile.Directive) error {
		b.Handle(waits)
		return nil
	}}, config.Directive{Name: "tell", Setup: func(b *config.Block, _ []corefile.Directive) error {
		b.OnSwap(func() { close(swapped) })
		return nil
	}})
	p := start(t, ". {\n bind 127.0.0.1\n waits\n}\n", opts, nil)
	at := p.listeners[0].Addr()
	code := make(chan int, 1)
	go func() { code <- ask("udp", at, "a.") }()
	<-waits.entered
	reloaded := make(chan *Plan, 1)
	go func() { reloaded <- start(t, ". {\n bind 127.0.0.1\n code 3\n tell\n}\n", opts, p) }()
	<-swapped
	if got := ask("udp", at, "b."); got != 3 {
		t.Errorf("the new plan answers %d", got)
	}
	select {
	case <-reloaded:
		t.Fatal("the old plan ended with a query waiting")
	default:
	}
	close(waits.release)
	if got := <-code; got != 0 {
		t.Errorf("the waiting query got %d", got)
	}
	(<-reloaded).Stop(t.Context())
}

func TestStopAnswersParked(t *testing.T) {
	opts := onPortZero()
	waits := newSlow()
	opts.Directives = append(opts.Directives, config.Directive{Name: "waits", Setup: func(b *config.Block, _ []corefile.Directive) error {
		b.Handle(waits)
		return nil
	}})
	p := start(t, ". {\n bind 127.0.0.1\n waits\n}\n", opts, nil)
	codes := make(chan int, 2)
	for _, network := range []string{"udp", "tcp"} {
		go func() { codes <- ask(network, p.listeners[0].Addr(), "a.") }()
		<-waits.entered
	}
	time.AfterFunc(50*time.Millisecond, func() { close(waits.release) })
	p.Stop(t.Context())
	for range 2 {
		if got := <-codes; got != 0 {
			t.Errorf("got %d", got)
		}
	}
}

// An error anywhere before the swap leaves the old plan as it is.
func TestFailedStartLeavesOld(t *testing.T) {
	opts := onPortZero()
	opts.Directives = append(opts.Directives, config.Directive{Name: "fails", Setup: func(b *config.Block, uses []corefile.Directive) error {
		b.OnStart(func(*config.Start) error { return errors.New("no such thing") })
		return nil
	}})
	p := start(t, ". {\n bind 127.0.0.1\n code 3\n}\n", opts, nil)
	defer p.Stop(t.Context())
	at := p.listeners[0].Addr()
	for text, want := range map[string]string{
		". {\n bind 127.0.0.1\n code 5\n fails\n}\n":                               "no such thing",
		". {\n bind 127.0.0.1\n code 5\n}\nb {\n bind 192.0.2.1\n}\n":              "192.0.2.1",
		".:" + portOf(at) + " {\n bind 127.0.0.1\n code 5\n}\nb {\n bind ::2\n}\n": "in use",
	} {
		next, err := planOf(text, opts)
		if err != nil {
			t.Fatal(err)
		}
		if err := next.Start(t.Context(), p); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
		if got := ask("udp", at, "a."); got != 3 {
			t.Errorf("after a failed start: %d", got)
		}
	}
}

func portOf(at netip.AddrPort) string { return strings.TrimPrefix(at.String(), "127.0.0.1:") }

// Wildcard to single address on one port needs a restart, and is said so.
func TestReloadFromWildcardToAddress(t *testing.T) {
	p := start(t, ". {\n code 3\n}\n", onPortZero(), nil)
	p.Stop(t.Context())
	opts := options()
	opts.Port = p.listeners[0].Addr().Port()
	p = start(t, ". {\n code 3\n}\n", opts, nil)
	defer p.Stop(t.Context())
	next, err := planOf(". {\n bind 127.0.0.1\n code 5\n}\n", opts)
	if err != nil {
		t.Fatal(err)
	}
	if err := next.Start(t.Context(), p); err == nil || !strings.Contains(err.Error(), "restart the server for this change") {
		t.Errorf("got %v", err)
	}
}

type panics struct{}

func (panics) ServeDNS(*core.Query) core.Verdict { panic("oops") }

func TestPanicIsCountedAndLogged(t *testing.T) {
	var text bytes.Buffer
	opts := onPortZero()
	opts.Log = NewLog(&text, slog.LevelInfo)
	opts.Directives = []config.Directive{directives()[0], {Name: "panics", Setup: func(b *config.Block, _ []corefile.Directive) error {
		b.Handle(panics{})
		return nil
	}}}
	p := start(t, ". {\n bind 127.0.0.1\n panics\n}\n", opts, nil)
	for range 10 {
		if got := ask("udp", p.listeners[0].Addr(), "a."); got != dns.RcodeServerFailure {
			t.Errorf("got %d", got)
		}
	}
	p.Stop(t.Context())
	if n := opts.Metrics.Counter("coredns_panics_total", "").Value(); n != 10 {
		t.Errorf("counted %d", n)
	}
	if n := strings.Count(text.String(), `[ERROR] Handler panicked, at most one panic a second is logged error="panic: oops" stack=`); n < 1 || n > 3 || !strings.Contains(text.String(), "start_test.go") {
		t.Errorf("logged\n%s", text.String())
	}
}

func TestLog(t *testing.T) {
	var b strings.Builder
	log := NewLog(&b, slog.LevelInfo)
	log.Debug("no")
	log.With("a", 1).WithGroup("g").Warn("relisting", "resource", "services", "why", "a b", slog.Group("x", "y", ""))
	log.Error("bad")
	log.Info("10.0.0.1:4242 - 7")
	want := "[WARNING] relisting a=1 g.resource=services g.why=\"a b\" g.x.y=\"\"\n[ERROR] bad\n[INFO] 10.0.0.1:4242 - 7\n"
	if b.String() != want {
		t.Errorf("got %s", b.String())
	}
}
