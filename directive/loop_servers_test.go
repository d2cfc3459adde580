package directive_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/directive"
	"github.com/seamark/seamark/directive/forward"
	"github.com/seamark/seamark/internal/dnstest"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/server"
)

// free gives an address at which nobody listens.
func free(t *testing.T) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return netip.MustParseAddrPort(l.Addr().String())
}

type synced struct {
	mu sync.Mutex
	b  strings.Builder
}

func (s *synced) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *synced) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// serve serves `loop` and a forward to these upstreams at addr.
func serve(t *testing.T, at netip.AddrPort, to ...string) (log *synced) {
	t.Helper()
	log = &synced{}
	blocks, err := corefile.Parse("Corefile", []byte(fmt.Sprintf(".:%d {\n loop\n forward . %s\n}\n", at.Port(), strings.Join(to, " "))))
	if err != nil {
		t.Fatal(err)
	}
	plan, err := server.NewPlan(blocks, server.Options{
		Directives: []config.Directive{{Name: "loop", Setup: directive.SetupLoop}, {Name: "forward", Setup: forward.Setup}},
		Listen:     []netip.AddrPort{at},
		Log:        server.NewLog(log, slog.LevelInfo),
		Metrics:    new(metrics.Registry),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := plan.Start(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		plan.Stop(ended)
	})
	return log
}

func ask(t *testing.T, at netip.AddrPort, name string) *mdns.Msg {
	t.Helper()
	c := mdns.Client{Timeout: 10 * time.Second}
	q := new(mdns.Msg).SetQuestion(name, mdns.TypeA)
	q.SetEdns0(1232, false)
	m, _, err := c.Exchange(q, at.String())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func within(t *testing.T, log *synced, what string) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !strings.Contains(log.String(), what); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the log does not say %q:\n%s", what, log.String())
		}
	}
}

// A server whose own address is among its upstreams goes on with the others.
func TestLoopToItself(t *testing.T) {
	at := free(t)
	other := dnstest.Upstream(t, "www.example.org. 60 IN A 192.0.2.80\n")
	log := serve(t, at, at.String(), other)
	within(t, log, "[ERROR] plugin/loop: upstream sends queries back to this server, no longer forwarding to it upstream="+at.String()+" zone=. server=dns://")
	for range 20 {
		if m := ask(t, at, "www.example.org."); len(m.Answer) != 1 {
			t.Fatal(m)
		}
	}
	if strings.Contains(log.String(), "upstream="+other) {
		t.Errorf("log: got %s, want nothing about %s", log.String(), other)
	}
}

// Two servers that have no others but each other say so, and go on: questions
// end at once with an extended error.
func TestLoopOfTwo(t *testing.T) {
	a, b := free(t), free(t)
	logA := serve(t, a, b.String())
	logB := serve(t, b, a.String())
	// Either finds it first; the other's question ends there then.
	for end := time.Now().Add(10 * time.Second); !strings.Contains(logA.String()+logB.String(), "[ERROR] plugin/loop"); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("nobody has found the loop")
		}
	}
	for _, at := range []netip.AddrPort{a, b} {
		m := ask(t, at, "www.example.org.")
		if m.Rcode != mdns.RcodeServerFailure {
			t.Fatal(m)
		}
	}
	looped := a
	if strings.Contains(logB.String(), "[ERROR]") {
		looped = b
	}
	if o := ask(t, looped, "www.example.org.").IsEdns0().Option; len(o) != 1 || o[0].Option() != mdns.EDNS0EDE {
		t.Errorf("options: %v", o)
	}
}
