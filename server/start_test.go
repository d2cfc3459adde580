package server

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	core "github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/test/chaintest"
)

// A slow handler waits until it is released. Then it answers NOERROR.
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

// ask returns the response code of the answer, or -1 if there is none.
func ask(network string, at netip.AddrPort, name string) int {
	m := new(dns.Msg).SetQuestion(name, dns.TypeA)
	c := dns.Client{Net: network, Timeout: 20 * time.Second}
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
		t.Fatalf("listeners: got %d, want 1", len(p.listeners))
	}
	at := p.listeners[0].Addr()
	for _, network := range []string{"udp", "tcp"} {
		for name, want := range map[string]int{"a.org.": 0, "B.org.": 0, "y.a.org.": 0, "x.a.org.": 3, "y.x.a.org.": 3, "org.": 5, ".": 5} {
			if got := ask(network, at, name); got != want {
				t.Errorf("%s over %s: response code: got %d, want %d", name, network, got, want)
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
			t.Errorf("query to %s: response code: got %d, want 3", ip, got)
		}
	}
}

// While plans replace each other, each query is answered by the old or the new
// plan, and listeners are kept.
func TestReloadKeepsListeners(t *testing.T) {
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
			t.Fatal("got another listener after the reload, want the same")
		}
		p = next
		before := asked.Load()
		chaintest.Eventually(t, "more queries", func() bool { return asked.Load() > before+1 })
	}
	close(done)
	clients.Wait()
	if got := ask("udp", at, "a."); got != 0 {
		t.Errorf("last plan: response code: got %d, want 0", got)
	}
	p.Stop(t.Context())
	if lost.Load() > 0 || asked.Load() < 50 {
		t.Errorf("%d of %d queries lost, want none of at least 50", lost.Load(), asked.Load())
	}
	if got := ask("tcp", at, "a."); got != -1 {
		t.Errorf("after Stop: response code: got %d, want no answer", got)
	}
}

// A query that is parked in the old plan is answered by it.
func TestReloadWaitsForParked(t *testing.T) {
	waits, swapped := newSlow(), make(chan struct{})
	opts := onPortZero()
	opts.Directives = append(opts.Directives, config.Directive{Name: "waits", Setup: func(b *config.Block, _ []corefile.Directive) error {
		b.Handle(waits)
		return nil
	}}, config.Directive{Name: "swapped", Setup: func(b *config.Block, _ []corefile.Directive) error {
		b.OnSwap(func() { close(swapped) })
		return nil
	}})
	p := start(t, ". {\n bind 127.0.0.1\n waits\n}\n", opts, nil)
	at := p.listeners[0].Addr()
	code := make(chan int, 1)
	go func() { code <- ask("udp", at, "a.") }()
	<-waits.entered
	reloaded := make(chan *Plan, 1)
	go func() { reloaded <- start(t, ". {\n bind 127.0.0.1\n code 3\n swapped\n}\n", opts, p) }()
	<-swapped
	if got := ask("udp", at, "b."); got != 3 {
		t.Errorf("new plan: response code: got %d, want 3", got)
	}
	select {
	case <-reloaded:
		t.Fatal("the reload has ended, want it to wait for the parked query")
	default:
	}
	close(waits.release)
	if got := <-code; got != 0 {
		t.Errorf("parked query: response code: got %d, want 0", got)
	}
	(<-reloaded).Stop(t.Context())
}

// A binder is a handler that is bound to chains of several addresses.
type binder struct {
	answer
	bind func()
}

func (b *binder) BindChain(*core.Chain) any { b.bind(); return b }

// While a handler is bound to its addresses none of them has it: the old plan answers at each.
func TestReloadBindsBeforeServing(t *testing.T) {
	p := start(t, ". {\n bind 127.0.0.1 127.0.0.2\n code 5\n}\n", onPortZero(), nil)
	old := p

	var codes []int
	bind := func() {
		for _, l := range old.listeners {
			codes = append(codes, ask("udp", l.Addr(), "a."), ask("tcp", l.Addr(), "a."))
		}
	}
	opts := onPortZero()
	opts.Directives = append(opts.Directives, config.Directive{Name: "binder", Setup: func(b *config.Block, _ []corefile.Directive) error {
		b.Handle(&binder{answer(0), bind})
		return nil
	}})
	p = start(t, ". {\n bind 127.0.0.1 127.0.0.2\n binder\n}\n", opts, old)
	defer func() { p.Stop(t.Context()) }()

	if want := slices.Repeat([]int{5}, 8); !slices.Equal(codes, want) {
		t.Errorf("response codes while the handler is bound: got %v, want %v", codes, want)
	}
	for _, l := range p.listeners {
		if got := ask("udp", l.Addr(), "a."); got != 0 {
			t.Errorf("new plan at %s: response code: got %d, want 0", l.Addr(), got)
		}
	}
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
	stopped := make(chan struct{})
	go func() { defer close(stopped); p.Stop(t.Context()) }()
	chaintest.Eventually(t, "new connections are refused", func() bool {
		c, err := net.Dial("tcp", p.listeners[0].Addr().String())
		if err == nil {
			c.Close()
		}
		return err != nil
	})
	close(waits.release)
	<-stopped
	for range 2 {
		if got := <-codes; got != 0 {
			t.Errorf("parked query: response code: got %d, want 0", got)
		}
	}
}

// After an error before the swap the old plan continues to serve.
func TestFailedStartLeavesOld(t *testing.T) {
	opts := onPortZero()
	opts.Directives = append(opts.Directives, config.Directive{Name: "fails", Setup: func(b *config.Block, uses []corefile.Directive) error {
		b.OnStart(func(*config.Start) error { return errors.New("start fails") })
		return nil
	}})
	p := start(t, ". {\n bind 127.0.0.1\n code 3\n}\n", opts, nil)
	defer p.Stop(t.Context())
	at := p.listeners[0].Addr()
	for text, want := range map[string]string{
		". {\n bind 127.0.0.1\n code 5\n fails\n}\n":                               "start fails",
		". {\n bind 127.0.0.1\n code 5\n}\nb {\n bind 192.0.2.1\n}\n":              "192.0.2.1",
		".:" + portOf(at) + " {\n bind 127.0.0.1\n code 5\n}\nb {\n bind ::2\n}\n": "in use",
	} {
		next, err := planOf(text, opts)
		if err != nil {
			t.Fatal(err)
		}
		if err := next.Start(t.Context(), p); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\ngot error %v, want one with %q", text, err, want)
		}
		if got := ask("udp", at, "a."); got != 3 {
			t.Errorf("after a failed start: response code: got %d, want 3", got)
		}
	}
}

func portOf(at netip.AddrPort) string { return strings.TrimPrefix(at.String(), "127.0.0.1:") }

// A change from the wildcard address to a single one on the same port requires a
// restart, as the error explains.
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
		t.Errorf("got error %v, want one with: restart the server for this change", err)
	}
}

type panics struct{}

func (panics) ServeDNS(*core.Query) core.Verdict { panic("oops") }

func TestHandlerPanic(t *testing.T) {
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
			t.Errorf("response code: got %d, want SERVFAIL", got)
		}
	}
	p.Stop(t.Context())
	if n := opts.Metrics.Counter("coredns_panics_total", "").Value(); n != 10 {
		t.Errorf("coredns_panics_total: got %d, want 10", n)
	}
	if n := strings.Count(text.String(), `[ERROR] Handler panicked, at most one panic a second is logged error="panic: oops" stack=`); n < 1 || n > 3 || !strings.Contains(text.String(), "start_test.go") {
		t.Errorf("log: got\n%s\nwant one to three panics with a stack", text.String())
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
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}
