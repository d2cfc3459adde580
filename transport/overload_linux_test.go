package transport

import (
	"bytes"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/test/bound"
	"github.com/seamark/seamark/test/chaintest"

	mdns "github.com/miekg/dns"
	"golang.org/x/sys/unix"
)

// A udpClient counts the replies to its queries.
type udpClient struct {
	conn *net.UDPConn
	sent int64
	got  atomic.Int64
}

func newUDPClient(t *testing.T, from, to string, running *sync.WaitGroup) *udpClient {
	t.Helper()
	at := net.UDPAddrFromAddrPort(netip.MustParseAddrPort(to))
	conn, err := net.DialUDP("udp", &net.UDPAddr{IP: net.ParseIP(from)}, at)
	if err != nil {
		t.Fatal(err)
	}
	c := &udpClient{conn: conn}
	running.Go(func() {
		for buf := make([]byte, 512); ; {
			if _, err := c.conn.Read(buf); err != nil {
				return
			}
			c.got.Add(1)
		}
	})
	return c
}

// One client sends ten times as many queries as the server can answer, and twenty others
// half of what it can answer. The others get their answers, and the greedy one some.
// See TOB-CDNS-13 in docs/reference/advisories.md.
func TestUDPFairShares(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	const polite = 20
	var log lockedBuffer
	s, h := serveSlow(t, 50*time.Microsecond, Options{Readers: 1, Log: slog.New(slog.NewTextHandler(&log, nil))})
	var receivers sync.WaitGroup
	defer receivers.Wait()
	var clients []*udpClient // the greedy one is the last
	for i := range polite + 1 {
		c := newUDPClient(t, netip.AddrFrom4([4]byte{127, 0, 5, byte(i + 1)}).String(), s.at("127.0.0.1"), &receivers)
		defer c.conn.Close()
		clients = append(clients, c)
	}
	greedy := clients[polite]
	packet := pack(t, newQuery("a.slow.", mdns.TypeA))
	send := func(c *udpClient, n int) {
		for range n {
			c.sent++
			_, _ = c.conn.Write(packet)
		}
	}
	// load sends queries at a rate that depends on how many are answered, until n are.
	next := 0
	load := func(n int64) {
		end := h.served.Load() + n
		for h.served.Load() < end {
			for range polite / 2 {
				send(clients[next], 1)
				next = (next + 1) % polite
			}
			send(greedy, 10*polite)
			before, round := h.served.Load(), time.Now()
			for h.served.Load() < before+polite && time.Since(round) < 100*time.Millisecond {
				time.Sleep(time.Millisecond)
			}
		}
	}
	settled := func() bool { return s.count(`seamark_transport_shed_queries_total{reason="client"}`) > 0 }
	for deadline := time.Now().Add(patience); !settled(); load(100) {
		if time.Now().After(deadline) {
			t.Fatal("timed out waiting until a client is limited")
		}
	}
	load(20_000) // until queries that were received before the limit are answered
	sent, got := make([]int64, len(clients)), make([]int64, len(clients))
	for i, c := range clients {
		sent[i], got[i] = c.sent, c.got.Load()
	}
	load(20_000)
	quiet := h.served.Load()
	chaintest.Eventually(t, "the socket is empty", func() bool {
		time.Sleep(50 * time.Millisecond)
		last := quiet
		quiet = h.served.Load()
		return quiet == last
	})
	var polites [2]int64 // their queries and replies
	for i, c := range clients[:polite] {
		// Some replies are to queries that were sent before.
		sent, got := c.sent-sent[i], c.got.Load()-got[i]
		bound.Holds(t, got >= sent*9/10, "client %d sent %d queries and got %d replies, want 9 of 10", i, sent, got)
		polites[0], polites[1] = polites[0]+sent, polites[1]+got
	}
	sentGreedy, gotGreedy := greedy.sent-sent[polite], greedy.got.Load()-got[polite]
	bound.Holds(t, gotGreedy >= 1000 && gotGreedy <= sentGreedy/3, "the greedy client sent %d queries and got %d replies, want at least 1000 and at most a third", sentGreedy, gotGreedy)

	// On every machine the greedy client gets a smaller part of its queries answered.
	if polites[1]*sentGreedy <= gotGreedy*polites[0] {
		t.Errorf("polite clients got %d replies to %d queries, the greedy one %d to %d: want a larger part", polites[1], polites[0], gotGreedy, sentGreedy)
	}
	if !strings.Contains(log.String(), `msg="Dropping UDP queries, more arrive than can be answered"`) || !strings.Contains(log.String(), `clients=127.0.5.21`) && !strings.Contains(log.String(), `clients="127.0.5.21`) {
		t.Errorf("got the log %s, want the overload and the greedy client 127.0.5.21", &log)
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Clone(b.b.String())
}

// Clients are limited again after a reload that removes proxyproto, and not any more after one
// that adds it: the kernel sees proxies only.
func TestUDPSharesAndProxies(t *testing.T) {
	s, _ := serveSlow(t, 50*time.Microsecond, Options{Readers: 1})
	s.SetProxies(&ProxyOptions{Others: ProxyUse})
	s.SetProxies(nil)
	var receiving sync.WaitGroup
	defer receiving.Wait()
	c := newUDPClient(t, "127.0.5.1", s.at("127.0.0.1"), &receiving)
	defer c.conn.Close()
	packet := pack(t, newQuery("a.slow.", mdns.TypeA))
	running := func() bool {
		s.overload.mu.Lock()
		defer s.overload.mu.Unlock()
		return s.overload.running
	}
	flood := func(what string, until func() bool) {
		t.Helper()
		for deadline := time.Now().Add(patience); !until(); {
			if time.Now().After(deadline) {
				t.Fatalf("timed out waiting until %s", what)
			}
			for range 1000 {
				_, _ = c.conn.Write(packet)
			}
		}
	}
	flood("a client is limited", func() bool { return s.count(`seamark_transport_shed_queries_total{reason="client"}`) > 0 })
	s.SetProxies(&ProxyOptions{Others: ProxyUse})
	flood("no client is limited", func() bool { return !running() })
	if s.overload.sockets[0].counting.Load() {
		t.Error("queries are counted after proxies were set")
	}
}

// Readers that share a socket, as those that have inherited one, count its dropped queries once.
func TestUDPDropsOfSharedSocket(t *testing.T) {
	for _, sockets := range []int{1, 2} {
		l, err := Listen(t.Context(), netip.MustParseAddrPort("127.0.0.1:0"), Options{Readers: sockets, Metrics: new(metrics.Registry)})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Stop()
		var loads []*socketLoad
		for i := range 4 {
			conn := l.udp[i%len(l.udp)]
			raw, err := conn.SyscallConn()
			if err != nil {
				t.Fatal(err)
			}
			loads = append(loads, l.overload.observe(l, conn, raw))
		}

		dropped := fillBuffers(t, l)
		var report overloadReport
		for _, s := range l.overload.sockets {
			s.received.add(netip.MustParseAddr("127.0.0.1"))
			s.adjust(&report)
		}
		if dropped == 0 || report.dropped != dropped {
			t.Errorf("%d readers of %d sockets: got %d dropped queries, want %d", len(loads), sockets, report.dropped, dropped)
		}
	}
}

// fillBuffers sends packets that nobody reads until each socket has dropped some, and returns the number of those.
func fillBuffers(t *testing.T, l *Listener) (dropped int) {
	t.Helper()
	for _, c := range l.udp {
		if err := c.SetReadBuffer(1); err != nil {
			t.Fatal(err)
		}
	}
	chaintest.Eventually(t, "each socket has dropped packets", func() bool {
		if _, err := dial(t, "udp", l.addr.String()).Write(make([]byte, 12)); err != nil {
			t.Fatal(err)
		}
		dropped = 0
		for _, c := range l.udp {
			raw, err := c.SyscallConn()
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			_ = raw.Control(func(fd uintptr) { n = int(readMemory(fd)[unix.SK_MEMINFO_DROPS]) })
			if n == 0 {
				return false
			}
			dropped += n
		}
		return true
	})
	return dropped
}
