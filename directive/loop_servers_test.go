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
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/server"
	"github.com/seamark/seamark/test/dnstest"
)

// freeAddresses returns two addresses with the same port. They are not on 127.0.0.1, where
// other processes have sockets, and the port is not one that the system assigns.
func freeAddresses(t *testing.T) (first, second netip.AddrPort) {
	t.Helper()
	free := func(at netip.AddrPort) bool {
		tcp, err := net.Listen("tcp", at.String())
		if err != nil {
			return false
		}
		defer tcp.Close()
		udp, err := net.ListenPacket("udp", at.String())
		if err != nil {
			return false
		}
		udp.Close()
		return true
	}
	for port := uint16(1053); port < 1153; port++ {
		first = netip.AddrPortFrom(netip.MustParseAddr("127.77.2.1"), port)
		second = netip.AddrPortFrom(netip.MustParseAddr("127.77.2.2"), port)
		if free(first) && free(second) {
			return first, second
		}
	}
	t.Fatal("no port from 1053 to 1152 is free")
	return first, second
}

type syncBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// serve starts a server at the address with loop and a forward to the upstreams.
func serve(t *testing.T, at netip.AddrPort, to ...string) (log *syncBuffer) {
	t.Helper()
	log = &syncBuffer{}
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

func exchange(t *testing.T, at netip.AddrPort, name string) *mdns.Msg {
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

func waitForLog(t *testing.T, log *syncBuffer, want string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !strings.Contains(log.String(), want); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("log after a minute:\n%s\nwant %q", log.String(), want)
		}
	}
}

// A server whose own address is one of its upstreams uses only the other upstreams.
func TestLoopOwnAddress(t *testing.T) {
	at, _ := freeAddresses(t)
	other := dnstest.Upstream(t, "www.example.org. 60 IN A 192.0.2.80\n")
	log := serve(t, at, at.String(), other)
	waitForLog(t, log, "[ERROR] loop: Upstream sends queries back to this server, no longer forwarding to it upstream="+at.String()+" zone=. server=dns://")
	for range 20 {
		if m := exchange(t, at, "www.example.org."); len(m.Answer) != 1 {
			t.Fatalf("www.example.org. A: got\n%v\nwant one record", m)
		}
	}
	if strings.Contains(log.String(), "upstream="+other) {
		t.Errorf("log: got %s, want nothing about %s", log.String(), other)
	}
}

// Two servers that only forward to each other log the loop and continue to run:
// queries fail at once with an extended error.
func TestLoopTwoServers(t *testing.T) {
	a, b := freeAddresses(t)
	logA := serve(t, a, b.String())
	logB := serve(t, b, a.String())
	// One server detects the loop first. It then answers the probe of the other.
	for end := time.Now().Add(time.Minute); !strings.Contains(logA.String()+logB.String(), "[ERROR] loop: "); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no loop detected after a minute, logs:\n%s\n%s", logA.String(), logB.String())
		}
	}
	for _, at := range []netip.AddrPort{a, b} {
		m := exchange(t, at, "www.example.org.")
		if m.Rcode != mdns.RcodeServerFailure {
			t.Fatalf("www.example.org. A at %s: got\n%v\nwant SERVFAIL", at, m)
		}
	}
	looped := a
	if strings.Contains(logB.String(), "[ERROR]") {
		looped = b
	}
	if o := exchange(t, looped, "www.example.org.").IsEdns0().Option; len(o) != 1 || o[0].Option() != mdns.EDNS0EDE {
		t.Errorf("got EDNS options %v, want one extended error", o)
	}
}
