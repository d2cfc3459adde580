package transport

import (
	"net"
	"net/netip"
	"testing"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/sys/memory"
	"github.com/seamark/seamark/test/chaintest"
)

// Connections have their part of the server's memory: at its end a new one replaces the one that
// has been idle longest, and another listener gets a few in any case.
func TestConnectionMemory(t *testing.T) { connectionMemory(t, memory.TCP, tcpSize, 120) }

func TestTLSConnectionMemory(t *testing.T) { connectionMemory(t, memory.TLS, tlsSize, 30) }

func connectionMemory(t *testing.T, kind memory.Consumer, size int64, open int) {
	b := memory.New(8<<20, memory.FromGroup)
	o := Options{Memory: b, MaxConnsPerClient: 1000}
	s, other := serve(t, "127.0.0.1", o), serve(t, "127.0.0.1", o)
	for range open {
		dialTCP(t, s, "127.0.0.1")
	}
	for _, at := range []*server{s, other} {
		c := dialTCP(t, at, "127.0.0.1")
		c.ask(1, "a.in.", mdns.TypeA)
		wantA(t, c.next(), 1)
	}

	most := int(b.Max(kind)/size) + fewest
	n := len(s.conns.list()) + len(other.conns.list())
	if n > most || n < most/2 {
		t.Errorf("%d of %d connections are open, want %d at most", n, open, most)
	}
	if n := s.count(`seamark_transport_connections_closed_total{why="idlest"}`); n == 0 {
		t.Error("no connection was closed for another one")
	}
	if used := b.Part(kind).Used; used != size*int64(n) {
		t.Errorf("%d bytes reserved for %d connections", used, n)
	}
	s.Stop()
	other.Stop()
	if used := b.Part(kind).Used; used != 0 {
		t.Errorf("%d bytes reserved after Stop, want 0", used)
	}
}

// A client that does not read its replies is disconnected if there is no memory for them; nothing
// stays reserved.
func TestUnreadReplyMemory(t *testing.T) {
	b := memory.New(8<<20, memory.FromGroup)
	s := serve(t, "127.0.0.1", Options{Memory: b})
	for b.Reserve(memory.Replies, 4<<10) == nil { // other clients
	}
	used := b.Part(memory.Replies).Used
	slow := dialTCP(t, s, "127.0.0.1")
	_ = slow.tcp.SetReadBuffer(64 << 10)
	go func() {
		for i := range uint16(2000) {
			m := newQuery("300.in.", mdns.TypeTXT)
			m.Id = i
			_, _ = slow.Write(framed(pack(t, m)))
		}
	}()
	chaintest.Eventually(t, "the client is disconnected", func() bool {
		return s.count(`seamark_transport_connections_closed_total{why="slow_reader"}`) == 1
	})
	chaintest.Eventually(t, "its memory is released", func() bool { return b.Part(memory.Replies).Used == used })

	c := dialTCP(t, s, "127.0.0.1")
	c.ask(1, "a.in.", mdns.TypeA)
	wantA(t, c.next(), 1)
}

// One address whose connections do not read their replies leaves memory for those of a client that
// reads them.
func TestUnreadRepliesShared(t *testing.T) {
	const (
		replies = 100 // many times what the kernel keeps for a connection
		window  = 4   // less than a second client's share, on a busy machine, too
	)
	b := memory.New(35<<20, memory.FromGroup)
	s := serve(t, "127.0.0.1", Options{Memory: b, MaxConnsPerClient: 1000})
	ask := func(c net.Conn, n int) {
		for i := range n {
			m := newQuery("300.in.", mdns.TypeTXT)
			m.Id = uint16(i)
			_, _ = c.Write(framed(pack(t, m))) // fails once it is disconnected
		}
	}

	from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	for range 60 {
		c, err := from.DialContext(t.Context(), "tcp", s.at("127.0.0.1"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		_ = c.(*net.TCPConn).SetReadBuffer(64 << 10)
		go ask(c, 2000)
	}
	chaintest.Eventually(t, "the first client is over its share", func() bool {
		return s.count(`seamark_transport_connections_closed_total{why="slow_reader"}`) > 0
	})

	c := dialTCP(t, s, "127.0.0.1")
	_ = c.tcp.SetReadBuffer(64 << 10)
	for range replies / window {
		ask(c, window)
		for range window {
			c.next()
		}
	}
	if used, most := b.Part(memory.Replies).Used, b.Max(memory.Replies); used == 0 || used > most*2/3 {
		t.Errorf("the first client uses %d bytes of %d, want some and about half at most", used, most)
	}
}

// Connections over HTTPS and gRPC have their part of the memory, too: at its end the client that
// has most loses one for another client, also one with requests.
func TestConnTableMemory(t *testing.T) {
	b := memory.New(8<<20, memory.FromGroup)
	table := NewConnTable(ConnLimits{Memory: b})
	defer table.Stop()
	var open []*limitedConn
	add := func(client string) bool {
		here, there := net.Pipe()
		t.Cleanup(func() { here.Close(); there.Close() })
		c := &limitedConn{Conn: here, l: &LimitedListener{table: table}, client: netip.MustParseAddr(client)}
		c.busy.Store(true)
		open = append(open, c)
		return table.add(c)
	}

	n := 0
	for add("192.0.2.1") {
		n++
	}
	if most := int(b.Max(memory.HTTPS) / httpsSize); n != most {
		t.Errorf("one client: got %d connections, want %d", n, most)
	}
	if !add("192.0.2.2") || table.Count() != float64(n) {
		t.Errorf("another client is refused, or got %v connections in all, want %d", table.Count(), n)
	}
	for _, c := range open {
		_ = c.Close()
	}
	if used := b.Part(memory.HTTPS).Used; used != 0 {
		t.Errorf("%d bytes reserved after all are closed, want 0", used)
	}
}
