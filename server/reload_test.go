package server

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"
	"github.com/seamark/seamark/builtin"
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/directive"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/test/chaintest"
)

// A journal is a log for concurrent use.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

func (j *journal) count(text string) int { return strings.Count(j.String(), text) }

// often is like the reload directive, with an interval that the test chooses.
func often(interval, jitter time.Duration) config.Directive {
	return config.Directive{Name: "often", Setup: func(b *config.Block, _ []corefile.Directive) error {
		b.Offer(checks{interval, jitter})
		return nil
	}}
}

type checks struct{ interval, jitter time.Duration }

func (c checks) CorefileChecks() (interval, jitter time.Duration) { return c.interval, c.jitter }

// A limit offers limits, as the directives timeouts and multisocket do.
type limit struct {
	idle    time.Duration
	queries int
}

func (l limit) ConnectionTimeouts() (read, write, idle time.Duration) { return 0, 0, l.idle }
func (l limit) MaxTCPQueries() int                                    { return l.queries }

type socketCount int

func (n socketCount) Sockets() int { return int(n) }

type debugLines struct{}

func (debugLines) Debug() {}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func shown(t *testing.T, r *metrics.Registry, prefix string) (lines []string) {
	t.Helper()
	var text strings.Builder
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(text.String()) {
		if strings.HasPrefix(line, prefix) {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

// A mount is a directory like a mounted ConfigMap: its files are links through
// ..data, and a change replaces that link.
type mount struct {
	t   *testing.T
	dir string
	n   int
}

func (m *mount) put(files map[string]string) {
	m.t.Helper()
	m.n++
	version := fmt.Sprintf("..%d", m.n)
	for name, text := range files {
		write(m.t, filepath.Join(m.dir, version, name), text)
		link := filepath.Join(m.dir, name)
		if _, err := os.Lstat(link); err != nil {
			if err := os.Symlink(filepath.Join("..data", name), link); err != nil {
				m.t.Fatal(err)
			}
		}
	}
	next, data := filepath.Join(m.dir, "..data_tmp"), filepath.Join(m.dir, "..data")
	if err := os.Symlink(version, next); err != nil {
		m.t.Fatal(err)
	}
	if err := os.Rename(next, data); err != nil {
		m.t.Fatal(err)
	}
}

// An interface gets and loses addresses: the server listens on its present addresses. While
// it has none, nothing changes.
func TestReloadInterfaceAddresses(t *testing.T) {
	var present atomic.Pointer[[]netip.Addr]
	set := func(addresses ...string) {
		var ips []netip.Addr
		for _, a := range addresses {
			ips = append(ips, netip.MustParseAddr(a))
		}
		present.Store(&ips)
	}
	set("127.88.0.1")
	directives := append(builtin.Directives(), often(5*time.Millisecond, 0))
	i := slices.IndexFunc(directives, func(d config.Directive) bool { return d.Name == "bind" })
	directives[i].Setup = directive.BindWith(func(name string) ([]netip.Addr, error) { return *present.Load(), nil })
	// No other process uses these addresses, so a free port of one is free in all.
	probe, err := net.ListenPacket("udp", "127.88.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := probe.LocalAddr().(*net.UDPAddr).AddrPort().Port()
	probe.Close()
	var log, out journal
	r := Run{
		Options: Options{Directives: directives, Log: NewLog(&log, slog.LevelInfo), Metrics: new(metrics.Registry)},
		Read: func() corefile.Reading {
			return corefile.ReadText("Corefile", fmt.Appendf(nil, ".:%d {\n bind eth0\n often\n whoami\n}\n", port))
		},
		Out: &out, Greeting: "greeting",
	}
	ctx, cancel := context.WithCancel(t.Context())
	var server sync.WaitGroup
	server.Go(func() {
		if err := r.Serve(ctx); err != nil {
			t.Error(err)
		}
	})
	defer server.Wait()
	defer cancel()
	chaintest.Eventually(t, "the server's greeting", func() bool { return out.count("greeting") > 0 })
	answers := func(address string) bool {
		conn, err := net.DialTimeout("tcp", netip.AddrPortFrom(netip.MustParseAddr(address), port).String(), time.Minute)
		if err == nil {
			conn.Close()
		}
		return err == nil
	}
	check := func(reloads int, addresses ...string) {
		t.Helper()
		chaintest.Eventually(t, "the reload", func() bool { return log.count("Reloading complete") == reloads })
		for _, a := range []string{"127.88.0.1", "127.88.0.2", "127.88.0.3"} {
			if got, want := answers(a), slices.Contains(addresses, a); got != want {
				t.Errorf("interface with the addresses %q: %s listens %v, want %v", addresses, a, got, want)
			}
		}
	}
	check(0, "127.88.0.1")
	set("127.88.0.1", "127.88.0.2")
	check(1, "127.88.0.1", "127.88.0.2")
	set("127.88.0.2", "127.88.0.3")
	check(2, "127.88.0.2", "127.88.0.3")
	set()
	time.Sleep(50 * time.Millisecond) // ten checks, none of which may reload
	check(2, "127.88.0.2", "127.88.0.3")
	set("127.88.0.1")
	check(3, "127.88.0.1")
}

// The server checks a mounted ConfigMap and reloads it repeatedly under load over
// UDP, TCP, and long-lived TCP connections. No query is lost, and no series
// disappears between two reloads.
func TestReloadUnderLoad(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	m := &mount{t: t, dir: t.TempDir()}
	text := func(n int) map[string]string {
		return map[string]string{
			"Corefile":   ".:0 {\n bind 127.0.0.1\n often\n prometheus 127.0.0.1:0\n errors\n import *.override\n whoami\n}\n",
			"a.override": fmt.Sprintf("template ANY ANY n%d. {\n rcode NOERROR\n}\n", n),
		}
	}
	m.put(text(0))
	var log, out journal
	r := Run{
		Options: Options{
			Directives: append(builtin.Directives(), often(100*time.Millisecond, 50*time.Millisecond)),
			Log:        NewLog(&log, slog.LevelInfo), Metrics: new(metrics.Registry),
		},
		Read: func() corefile.Reading { return corefile.Read(filepath.Join(m.dir, "Corefile")) },
		Out:  &out, Greeting: "greeting",
	}
	ctx, cancel := context.WithCancel(t.Context())
	var server, clients sync.WaitGroup
	server.Go(func() {
		if err := r.Serve(ctx); err != nil {
			t.Error(err)
		}
	})
	chaintest.Eventually(t, "the server's greeting", func() bool { return out.count("greeting") > 0 })
	var port uint16
	if _, err := fmt.Sscanf(out.String(), ".:%d on 127.0.0.1", &port); err != nil {
		t.Fatalf("output: got %q, want .:PORT on 127.0.0.1", out.String())
	}
	at := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port)

	var asked, lost, gaps atomic.Int64
	done := make(chan struct{})
	load := func(once func() bool) {
		clients.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				asked.Add(1)
				if !once() {
					lost.Add(1)
				}
			}
		})
	}
	load(func() bool { return ask("udp", at, "a.") == 0 })
	load(func() bool { return ask("tcp", at, "a.") == 0 })
	longLived, err := dns.Dial("tcp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	defer longLived.Close()
	load(func() bool {
		_ = longLived.SetDeadline(time.Now().Add(time.Minute))
		err := longLived.WriteMsg(new(dns.Msg).SetQuestion("a.", dns.TypeA))
		if err == nil {
			_, err = longLived.ReadMsg()
		}
		time.Sleep(time.Millisecond) // limits the load
		return err == nil
	})
	enabled := `coredns_plugin_enabled{server="dns://127.0.0.1:0",zone=".",view="",name="whoami"} 1`
	clients.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(time.Millisecond): // limits the load
				if len(shown(t, r.Metrics, enabled)) != 1 {
					gaps.Add(1)
				}
			}
		}
	})
	const reloads = 12
	for n := range reloads {
		m.put(text(n + 1))
		chaintest.Eventually(t, "a reload", func() bool { return log.count("[INFO] Reloading complete\n") == n+1 })
	}
	close(done)
	clients.Wait()
	cancel()
	server.Wait()
	if lost.Load() > 0 || asked.Load() < 100 {
		t.Errorf("%d of %d queries lost, want none of at least 100", lost.Load(), asked.Load())
	}
	if gaps.Load() > 0 {
		t.Errorf("coredns_plugin_enabled was missing %d times, want always present", gaps.Load())
	}
	order := regexp.MustCompile(`(?s)\A\[INFO\] plugin/reload: Running configuration SHA512 = [0-9a-f]{128}\n(\[INFO\] Reloading\n\[INFO\] plugin/reload: Running configuration SHA512 = [0-9a-f]{128}\n\[INFO\] Reloading complete\n)+\[INFO\] Shutting down\n\z`)
	if !order.MatchString(log.String()) {
		t.Errorf("log: got\n%s\nwant a match of\n%s", log.String(), order)
	}
}

// Each version of the Corefile is tried once, whether it is valid or not.
func TestReloadIfChanged(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "Corefile")
	var log journal
	opts := onPortZero()
	opts.Directives = append(opts.Directives, often(time.Hour, 0))
	opts.Log = NewLog(&log, slog.LevelInfo)
	readings := 0
	r := Run{Options: opts, Read: func() corefile.Reading { readings++; return corefile.Read(file) }}
	good := func(code int) string {
		return fmt.Sprintf(". {\n bind 127.0.0.1\n often\n code %d\n import extra/*.conf\n}\n", code)
	}
	write(t, file, good(3))
	plan, err := r.start(t.Context(), new(Signals))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { plan.Stop(t.Context()) }()
	at := plan.Addresses()[0]
	const failed, complete, back = "[ERROR] Reload failed, the old configuration continues to serve ", "[INFO] Reloading complete\n", "matches the running configuration again"
	for _, step := range []struct {
		name, file, text string // "" removes the file
		code             int
		logged           string // one more such message; "" is none
	}{
		{"unchanged", file, good(3), 3, ""},
		{"another answer", file, good(5), 5, complete},
		{"invalid", file, good(16), 5, failed},
		{"invalid in another way", file, ". {\n", 5, failed},
		{"valid again", file, good(5), 5, back},
		{"removed", file, "", 5, failed},
		{"created again", file, good(5), 5, back},
		{"imported file, invalid", filepath.Join(dir, "extra", "a.conf"), "nonsense\n", 5, failed},
		{"imported file", filepath.Join(dir, "extra", "a.conf"), "watch\n", 5, complete},
		{"file that the pattern does not match", filepath.Join(dir, "extra", "a.conf~"), "nonsense\n", 5, ""},
		{"imported file removed", filepath.Join(dir, "extra", "a.conf"), "", 5, complete},
	} {
		before := log.String()
		if step.text == "" {
			if err := os.Remove(step.file); err != nil {
				t.Fatal(err)
			}
		} else {
			write(t, step.file, step.text)
		}
		for range 3 {
			plan = r.reloadIfChanged(t.Context(), plan, slog.LevelInfo)
		}
		if before := readings; step.name != "removed" {
			if plan = r.reloadIfChanged(t.Context(), plan, slog.LevelInfo); readings != before {
				t.Errorf("%s: a check without a change has parsed the Corefile", step.name)
			}
		}
		added := strings.TrimPrefix(log.String(), before)
		if step.logged == "" && added != "" || strings.Count(added, step.logged) != 1 && step.logged != "" || strings.Count(added, "Reloading\n") > 1 {
			t.Errorf("%s: logged\n%s\nwant one message %q", step.name, added, step.logged)
		}
		if got := ask("udp", at, "a."); got != step.code {
			t.Errorf("%s: response code: got %d, want %d", step.name, got, step.code)
		}
	}
	if got := shown(t, r.Metrics, "coredns_reload_failed_total"); len(got) != 1 || got[0] != "coredns_reload_failed_total 4" {
		t.Errorf("got %v, want coredns_reload_failed_total 4", got)
	}
	want := `coredns_reload_version_info{hash="sha512",value="` + corefile.Read(file).Sum.String() + `"} 1`
	if got := shown(t, r.Metrics, "coredns_reload_version_info"); len(got) != 1 || got[0] != want {
		t.Errorf("got %v, want %s", got, want)
	}
	write(t, file, ". {\n bind 127.0.0.1\n code 1\n}\n")
	plan = r.reloadIfChanged(t.Context(), plan, slog.LevelInfo)
	if got := shown(t, r.Metrics, "coredns_reload_version_info"); len(got) != 0 || plan.nextCheck() != nil {
		t.Errorf("without the directive reload: got %v and a next check, want neither", got)
	}
}

// A Corefile that changes during a check is read again in the same check: without
// the directive reload there is no later one.
func TestReloadIfChangedDuringCheck(t *testing.T) {
	codes := []int{3, 4, 5}
	r := Run{Options: onPortZero(), Read: func() corefile.Reading {
		code := codes[0]
		if len(codes) > 1 {
			codes = codes[1:]
		}
		return corefile.ReadText("Corefile", fmt.Appendf(nil, ". {\n bind 127.0.0.1\n code %d\n}\n", code))
	}}
	plan, err := r.start(t.Context(), new(Signals))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { plan.Stop(t.Context()) }()
	at := plan.Addresses()[0]
	plan = r.reloadIfChanged(t.Context(), plan, slog.LevelInfo)
	if got := ask("udp", at, "a."); got != 5 {
		t.Errorf("response code: got %d, want 5", got)
	}
}

// The time between two checks is the interval plus a part of the jitter.
func TestNextCheckJitter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts := options()
		opts.Directives = append(opts.Directives, often(30*time.Second, 15*time.Second), config.Directive{Name: "seldom", Setup: often(time.Hour, 0).Setup})
		p, err := planOf("a {\n seldom\n}\nb {\n often\n}\nc {\n code 1\n}\n", opts)
		if err != nil {
			t.Fatal(err)
		}
		least, most := time.Hour, time.Duration(0)
		for range 200 {
			start := time.Now()
			<-p.nextCheck()
			took := time.Since(start)
			least, most = min(least, took), max(most, took)
		}
		if least < 30*time.Second || most >= 45*time.Second || most-least < 10*time.Second {
			t.Errorf("waits: got %v to %v, want 30s to 45s", least, most)
		}
	})
}

// A reload applies new limits to listeners that stay open.
func TestReloadAppliesLimits(t *testing.T) {
	var log journal
	opts := onPortZero()
	opts.Log = NewLog(&log, slog.LevelInfo)
	offers := func(name string, v any) config.Directive {
		return config.Directive{Name: name, Setup: func(b *config.Block, _ []corefile.Directive) error { b.Offer(v); return nil }}
	}
	opts.Directives = append(opts.Directives,
		offers("long", limit{time.Hour, 0}),
		offers("one", limit{queries: 1}),
		offers("brief", limit{20 * time.Millisecond, 5}),
		offers("two", socketCount(2)),
		offers("three", socketCount(3)),
	)
	p := start(t, ". {\n bind 127.0.0.1\n code 3\n two\n long\n}\n", opts, nil)
	l := p.listeners[0]
	c, err := dns.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute)) // less than the limit before the reload
	p = start(t, ". {\n bind 127.0.0.1\n code 3\n three\n one\n}\na {\n bind 127.0.0.1\n brief\n}\n", opts, p)
	defer func() { p.Stop(t.Context()) }()
	if _, err := c.Read(make([]byte, 1)); err == nil || strings.Contains(err.Error(), "timeout") {
		t.Errorf("idle connection: got %v, want it closed", err)
	}
	if p.listeners[0] != l || l.Readers() != 2 {
		t.Errorf("readers: got %d, want 2 of the same listener", l.Readers())
	}
	if log.count("[WARNING] Ignored multisocket ") != 1 || log.count("address=dns://127.0.0.1:0 sockets=2 wanted=3\n") != 1 {
		t.Errorf("log: got %s\nwant one warning: Ignored multisocket", log.String())
	}
}

// The first block with such an observer observes queries that no block serves.
func TestUnservedQueries(t *testing.T) {
	p, err := planOf("a {\n code 1\n}\n", options())
	if err != nil || p.sites[0].unserved() != nil {
		t.Errorf("NewPlan: %v; or an observer of unserved queries without prometheus", err)
	}
	opts := onPortZero()
	opts.Directives = builtin.Directives()
	p = start(t, "a {\n bind 127.0.0.1\n whoami\n}\nb {\n bind 127.0.0.1\n prometheus 127.0.0.1:0\n whoami\n}\nc {\n bind 127.0.0.1\n prometheus 127.0.0.1:0\n whoami\n}\n", opts, nil)
	defer p.Stop(t.Context())
	if got := ask("udp", p.listeners[0].Addr(), "example."); got != dns.RcodeRefused {
		t.Errorf("example. A: response code: got %d, want REFUSED", got)
	}
	want := `coredns_dns_responses_total{server="dns://127.0.0.1:0",zone="dropped",view="",rcode="REFUSED",plugin=""} 1`
	chaintest.Eventually(t, want, func() bool { return len(shown(t, opts.Metrics, want)) == 1 })
}

// Debug messages are logged while a plan with the directive debug serves.
func TestDebugLevel(t *testing.T) {
	opts := onPortZero()
	opts.Level = new(slog.LevelVar)
	opts.Directives = append(opts.Directives, config.Directive{Name: "debug", Setup: func(b *config.Block, _ []corefile.Directive) error { b.Offer(debugLines{}); return nil }})
	p := start(t, ". {\n bind 127.0.0.1\n debug\n}\n", opts, nil)
	if opts.Level.Level() != slog.LevelDebug {
		t.Errorf("level with debug: got %v, want DEBUG", opts.Level.Level())
	}
	p = start(t, ". {\n bind 127.0.0.1\n}\n", opts, p)
	defer p.Stop(t.Context())
	if opts.Level.Level() != slog.LevelInfo {
		t.Errorf("level without debug: got %v, want INFO", opts.Level.Level())
	}
}
