package transport

import (
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/sys/descriptors"
	"github.com/seamark/seamark/test/chaintest"
)

// At the limit a flood from two addresses replaces its own connections, the idlest first, and
// those of no client that has fewer; also where the flood's are younger.
func TestReplacedConnectionIsOfLargestClient(t *testing.T) {
	flood := []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")}
	other := netip.MustParseAddr("192.0.2.3")

	t.Run("TCP and TLS", func(t *testing.T) {
		o := Options{MaxConns: 6}.OrDefaults()
		l := &Listener{o: o, start: time.Now(), counts: newCounters(new(metrics.Registry))}
		l.limits.Store(&o.Limits)
		l.conns.init()
		l.conns.checking = true
		age := time.Duration(0)
		open := func(client netip.Addr) (c, evicted *conn) {
			c = newConn(l, pipeSocket{}, netip.AddrPortFrom(client, 1), netip.AddrPort{})
			age++
			c.lastActive.Store(int64(age))
			refused, evicted := l.conns.add(c)
			if refused != nil {
				t.Fatalf("a connection of %s is refused", client)
			}
			return c, evicted
		}
		kept, _ := open(other)
		var order []*conn
		for i := range 20 {
			c, evicted := open(flood[i%2])
			order = append(order, c)
			if want := i - 5; want < 0 && evicted != nil || want >= 0 && evicted != order[want] {
				t.Errorf("connection %d of the flood: another one is replaced than its oldest", i)
			}
		}
		if l.conns.get(kept.id) == nil {
			t.Error("the other client's connection is replaced")
		}
		for _, c := range order[len(order)-5:] {
			c.refs.Add(1) // a parked query
		}
		newest := order[len(order)-1]
		newest.refs.Add(-1)
		newest.serving.Store(true) // the handlers have its query
		if _, evicted := open(netip.MustParseAddr("192.0.2.4")); evicted == nil || evicted == kept || evicted == newest {
			t.Error("where all of the flood have queries, none of them is replaced, or the newest")
		}
		if refused, _ := l.conns.add(newConn(l, pipeSocket{}, netip.AddrPortFrom(flood[0], 1), netip.AddrPort{})); refused == nil {
			t.Error("a connection of the flood replaces one of a client that has fewer")
		}
	})

	t.Run("QUIC", func(t *testing.T) {
		m := NewMessages(Options{MaxConns: 6}.OrDefaults())
		s := NewSessions(m)
		var mu sync.Mutex
		closed := map[netip.Addr]int{}
		age := int64(0)
		open := func(client netip.Addr) {
			peer := net.UDPAddrFromAddrPort(netip.AddrPortFrom(client, 1))
			ctx, err := s.Begin(t.Context(), peer, time.Hour)
			if err != nil {
				t.Fatalf("a connection of %s: %v", client, err)
			}
			c := s.Add(ctx, peer, func() { mu.Lock(); closed[client]++; mu.Unlock() })
			age++
			c.active.Store(age)
		}
		open(other)
		for i := range 20 {
			open(flood[i%2])
		}
		if closed[other] != 0 || closed[flood[0]]+closed[flood[1]] != 15 {
			t.Errorf("got closed connections %v, want 15 of the flood", closed)
		}
	})
}

// A client over its own limit is refused before a connection of another listener is closed.
func TestClientOverLimitClosesNoOther(t *testing.T) {
	budget := descriptors.New()
	var closed atomic.Int64
	other := budget.Join(func() bool { closed.Add(1); return false })
	defer other.Leave()
	for other.Acquire() && closed.Load() == 0 {
	}
	before := closed.Load()
	s := serve(t, "127.0.0.1", Options{Descriptors: budget, MaxConnsPerClient: 1})
	dialTCP(t, s, "127.0.0.1")
	chaintest.Eventually(t, "the first connection is open", func() bool { return len(s.conns.list()) == 1 })
	first := closed.Load()
	if c, err := net.Dial("tcp", s.at("127.0.0.1")); err == nil { // else it is reset before
		defer c.Close()
	}
	chaintest.Eventually(t, "the second connection is refused", func() bool {
		return s.count(`seamark_transport_connections_refused_total{cap="client"}`) == 1
	})
	if first == before || closed.Load() != first {
		t.Errorf("got %d requests to close one for the first, and %d for the second; want some and none", first-before, closed.Load()-first)
	}
}
