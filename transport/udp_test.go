package transport

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/sys/follow"
	"github.com/seamark/seamark/test/chaintest"
)

// TestUDP sends inline and parked queries to addresses of each kind. The reply
// must come from the address that the query was sent to, which only a client with
// an unconnected socket sees.
func TestUDP(t *testing.T) {
	for _, tc := range []struct{ bind, ask string }{
		{"127.0.0.1", "127.0.0.1"}, {"::1", "::1"},
		{"0.0.0.0", "127.0.0.1"}, {"0.0.0.0", "127.0.0.2"},
		{"::", "127.0.0.2"}, {"::", "::1"},
	} {
		t.Run(tc.bind+" "+tc.ask, func(t *testing.T) {
			withEachReader(t, func(t *testing.T, o Options) {
				requireAddress(t, tc.ask)
				s := serve(t, tc.bind, o)
				close(s.wait.gate)
				askAt(t, s, "udp", tc.ask)
			})
		})
	}
}

// askAt sends queries to ip from an unconnected socket.
func askAt(t *testing.T, s *server, network, ip string) {
	t.Helper()
	to := netip.MustParseAddrPort(s.at(ip))
	c, err := net.ListenUDP(network, &net.UDPAddr{IP: net.IPv6unspecified})
	if to.Addr().Is4() {
		c, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4zero})
	}
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	for name, last := range map[string]byte{"a.in.": 1, "a.wait.": 2} {
		if _, err := c.WriteToUDPAddrPort(pack(t, newQuery(name, mdns.TypeA)), to); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 4096)
		n, from, err := c.ReadFromUDPAddrPort(buf)
		if err != nil {
			t.Fatalf("%s at %s: got error %v, want a reply", name, to, err)
		}
		if netip.AddrPortFrom(from.Addr().Unmap(), from.Port()) != to {
			t.Errorf("%s: got the reply from %s, want it from %s", name, from, to)
		}
		r := new(mdns.Msg)
		if err := r.Unpack(buf[:n]); err != nil {
			t.Fatal(err)
		}
		wantA(t, r, last)
	}
}

// TestUDPLinkLocal: the reply to a link-local client goes through its interface.
// The client is this machine.
func TestUDPLinkLocal(t *testing.T) {
	addr := linkLocal(t)
	for _, bind := range []string{"::", addr} {
		withEachReader(t, func(t *testing.T, o Options) {
			s := serve(t, bind, o)
			close(s.wait.gate)
			askAt(t, s, "udp", addr)
		})
	}
}

// linkLocal returns a link-local address of this machine.
func linkLocal(t *testing.T) string {
	interfaces, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range interfaces {
		addrs, _ := i.Addrs()
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil && i.Flags&net.FlagUp != 0 && p.Addr().Is6() && p.Addr().IsLinkLocalUnicast() {
				return p.Addr().WithZone(i.Name).String()
			}
		}
	}
	t.Skip("no interface has a link-local address")
	return ""
}

func TestUDPSizes(t *testing.T) {
	withEachReader(t, func(t *testing.T, o Options) {
		s := serve(t, "127.0.0.1", o)
		at := s.at("127.0.0.1")
		for _, tc := range []struct {
			name      string
			size      uint16 // the EDNS size; 0 is a query without EDNS
			answers   int
			truncated bool
		}{
			{"1.in.", 0, 1, false}, {"10.in.", 0, 4, true}, {"10.in.", 4096, 10, false},
			{"35.in.", 4096, 35, false}, {"36.in.", 4096, 35, true}, {"2000.in.", 4096, 35, true}, {"10.in.", 65535, 10, false},
		} {
			m := newQuery(tc.name, mdns.TypeTXT)
			if tc.size > 0 {
				m.SetEdns0(tc.size, false)
			}
			r := ask(t, "udp", at, m)
			if len(r.Answer) != tc.answers || r.Truncated != tc.truncated {
				t.Errorf("%s size %d: got %d records, TC %v; want %d, %v", tc.name, tc.size, len(r.Answer), r.Truncated, tc.answers, tc.truncated)
			}
		}
	})
}

// TestUDPTooLarge: a datagram that is larger than the buffer is malformed, even
// if it begins with a valid query.
func TestUDPTooLarge(t *testing.T) {
	withEachReader(t, func(t *testing.T, o Options) {
		s := serve(t, "127.0.0.1", o)
		padded := newQuery("a.in.", mdns.TypeA)
		padded.SetEdns0(1232, false)
		padded.IsEdns0().Option = []mdns.EDNS0{&mdns.EDNS0_PADDING{Padding: make([]byte, 1600)}}
		for _, packet := range [][]byte{
			append(pack(t, newQuery("a.in.", mdns.TypeA)), make([]byte, 2000)...),
			pack(t, padded),
		} {
			c := dial(t, "udp", s.at("127.0.0.1"))
			buf := make([]byte, 4096)
			_, _ = c.Write(packet)
			n, err := c.Read(buf)
			if err != nil {
				t.Fatal(err)
			}
			r := new(mdns.Msg)
			if err := r.Unpack(buf[:n]); err != nil || r.Rcode != mdns.RcodeFormatError {
				t.Errorf("packet of %d bytes: got %v, %v; want FORMERR", len(packet), r, err)
			}
			_, _ = c.Write(bytes.Repeat([]byte{0x80}, 3000)) // QR is set, so the server ignores the packet.
			_, _ = c.Write(pack(t, newQuery("a.in.", mdns.TypeA)))
			if n, err = c.Read(buf); err != nil || binary.BigEndian.Uint16(buf) == 0x8080 {
				t.Errorf("got %x, %v; want the reply to the query after the ignored packet", buf[:n], err)
			}
		}
	})
}

// TestUDPPanicsAndDrops sends bursts with queries whose handlers panic or drop:
// the others are answered, and all are observed.
func TestUDPPanicsAndDrops(t *testing.T) {
	withEachReader(t, func(t *testing.T, o Options) {
		s := serve(t, "127.0.0.1", o)
		c := dial(t, "udp", s.at("127.0.0.1"))
		names := []string{"a.in.", "a.panic.", "a.drop.", "o.in.", "a.in."}
		const rounds = 20
		want := map[uint16]int{} // the response code for each query
		for i := range rounds {
			for j, name := range names {
				m := newQuery(name, mdns.TypeA)
				m.Id = uint16(i*len(names) + j)
				if _, err := c.Write(pack(t, m)); err != nil {
					t.Fatal(err)
				}
				if name == "a.panic." {
					want[m.Id] = mdns.RcodeServerFailure
				} else if name != "a.drop." {
					want[m.Id] = mdns.RcodeSuccess
				}
			}
		}
		buf := make([]byte, 4096)
		for range rounds * (len(names) - 1) {
			n, err := c.Read(buf)
			if err != nil {
				t.Fatal(err)
			}
			r := new(mdns.Msg)
			if err := r.Unpack(buf[:n]); err != nil {
				t.Fatal(err)
			}
			if rcode, ok := want[r.Id]; !ok || rcode != r.Rcode {
				t.Errorf("got %v, want response code %d", r, rcode)
			}
			delete(want, r.Id)
		}
		chaintest.Eventually(t, "all queries are observed", func() bool { return s.seen.n.Load() == int64(rounds*len(names)) })
		if s.seen.dropped.Load() != rounds || s.panics.Load() != rounds {
			t.Errorf("%d queries were dropped and %d panicked, want %d each", s.seen.dropped.Load(), s.panics.Load(), rounds)
		}
		if n := s.count("seamark_transport_observer_panics_total"); n != rounds {
			t.Errorf("%d panics of observers are counted, want %d", n, rounds)
		}
	})
}

// sendMalformed sends random bytes, and valid packets with a few bytes changed or the
// end removed.
func sendMalformed(t *testing.T, n int, send func([]byte)) {
	rnd := rand.New(rand.NewPCG(1, uint64(n)))
	good := newQuery("a.b.c.in.", mdns.TypeA)
	good.SetEdns0(1232, true)
	valid := pack(t, good)
	for i := range n {
		var p []byte
		if i%2 == 0 {
			p = make([]byte, rnd.IntN(100))
			if i%100 == 0 {
				p = make([]byte, rnd.IntN(3000))
			}
			for j := range p {
				p[j] = byte(rnd.Uint32())
			}
		} else {
			p = bytes.Clone(valid[:rnd.IntN(len(valid)+1)])
			for range rnd.IntN(4) {
				if len(p) > 0 {
					p[rnd.IntN(len(p))] = byte(rnd.Uint32())
				}
			}
		}
		send(p)
	}
}

func TestUDPHostile(t *testing.T) {
	withEachReader(t, func(t *testing.T, o Options) {
		s := serve(t, "127.0.0.1", o)
		c := dial(t, "udp", s.at("127.0.0.1"))
		i := 0
		sendMalformed(t, 20_000, func(p []byte) {
			_, _ = c.Write(p)
			if i++; i%100 == 0 { // This prevents the loss of packets in the socket's buffer.
				wantA(t, ask(t, "udp", s.at("127.0.0.1"), newQuery("a.in.", mdns.TypeA)), 1)
			}
		})
		if n := s.count(`seamark_transport_unreadable_total{proto="udp"}`); n < 5000 {
			t.Errorf("%d unreadable packets are counted, want at least 5000", n)
		}
		if n := s.panics.Load(); n > 0 {
			t.Errorf("%d handlers panicked, want 0", n)
		}
	})
}

// TestUDPStop: each query that was read when the listener stops is answered, also
// the parked one.
func TestUDPStop(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	withEachReader(t, func(t *testing.T, o Options) {
		o.Grace = patience
		s := serve(t, "127.0.0.1", o)
		var got atomic.Int64
		var clients sync.WaitGroup
		stopped := follow.NewEvent()
		for range 4 {
			c := dial(t, "udp", s.at("127.0.0.1"))
			packet := pack(t, newQuery("a.in.", mdns.TypeA))
			clients.Go(func() {
				buf := make([]byte, 512)
				for {
					_, _ = c.Write(packet)
					// When the socket is closed the query is refused, or lost in the socket. Replies that
					// were sent before the end of Stop have arrived by then.
					err := os.ErrDeadlineExceeded
					for last := false; errors.Is(err, os.ErrDeadlineExceeded) && !last; {
						last = stopped.Happened()
						_ = c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
						_, err = c.Read(buf)
					}
					if err != nil {
						return
					}
					got.Add(1)
				}
			})
		}
		parked := dial(t, "udp", s.at("127.0.0.1"))
		_, _ = parked.Write(pack(t, newQuery("a.wait.", mdns.TypeA)))
		chaintest.Eventually(t, "the query is parked", func() bool { return s.wait.arrived.Load() == 1 && got.Load() > 100 })
		go func() {
			<-s.stopping
			close(s.wait.gate)
		}()
		s.Stop()
		close(stopped)
		clients.Wait()
		if _, err := parked.Read(make([]byte, 512)); err != nil {
			t.Errorf("the parked query: got %v, want its reply", err)
		}
		chaintest.Eventually(t, "all queries are observed", func() bool { return s.seen.n.Load() == got.Load()+1 })
	})
}

// TestUDPGrace: Stop waits no longer than the grace period.
func TestUDPGrace(t *testing.T) {
	withEachReader(t, func(t *testing.T, o Options) {
		o.Grace = 20 * time.Millisecond
		s := serve(t, "127.0.0.1", o)
		c := dial(t, "udp", s.at("127.0.0.1"))
		_, _ = c.Write(pack(t, newQuery("a.wait.", mdns.TypeA)))
		chaintest.Eventually(t, "the query is parked", func() bool { return s.wait.arrived.Load() == 1 })
		s.Stop()
		close(s.wait.gate)
		chaintest.Eventually(t, "the reply is discarded", func() bool { return s.count(`seamark_transport_send_errors_total{proto="udp"}`) == 1 })
	})
}

// TestUDPParkedPeer: a parked query keeps its own packet and client while the
// reader serves others.
func TestUDPParkedPeer(t *testing.T) {
	withEachReader(t, func(t *testing.T, o Options) {
		s := serve(t, "127.0.0.1", o)
		const n = 200
		conns := make([]net.Conn, n)
		for i := range conns {
			conns[i] = dial(t, "udp", s.at("127.0.0.1"))
			m := newQuery(strings.Repeat("x", 1+i%60)+".wait.", mdns.TypeA)
			m.Id = uint16(i)
			_, _ = conns[i].Write(pack(t, m))
		}
		chaintest.Eventually(t, "all are parked", func() bool { return s.wait.arrived.Load() == n })
		for range 100 {
			wantA(t, ask(t, "udp", s.at("127.0.0.1"), newQuery("a.in.", mdns.TypeA)), 1)
		}
		close(s.wait.gate)
		for i, c := range conns {
			buf := make([]byte, 512)
			k, err := c.Read(buf)
			if err != nil {
				t.Fatal(err)
			}
			r := new(mdns.Msg)
			if err := r.Unpack(buf[:k]); err != nil {
				t.Fatal(err)
			}
			if int(r.Id) != i || len(r.Question[0].Name) != 1+i%60+len(".wait.") {
				t.Errorf("client %d got %v, want the reply to its query", i, r)
			}
		}
	})
}

// TestUDPStopAnswers: while Stop waits for a parked query, the other queries are
// answered.
func TestUDPStopAnswers(t *testing.T) {
	withEachReader(t, func(t *testing.T, o Options) {
		o.Grace = patience
		s := serve(t, "127.0.0.1", o)
		at := s.at("127.0.0.1")
		parked := dial(t, "udp", at)
		_, _ = parked.Write(pack(t, newQuery("a.wait.", mdns.TypeA)))
		chaintest.Eventually(t, "the query is parked", func() bool { return s.wait.arrived.Load() == 1 })
		stopped := make(chan struct{})
		go func() { defer close(stopped); s.Stop() }()
		chaintest.Eventually(t, "Stop has started", s.isStopping)
		for range 10 {
			if r := ask(t, "udp", at, newQuery("a.in.", mdns.TypeA)); r.Rcode != mdns.RcodeSuccess {
				t.Errorf("a.in.: got %v, want NOERROR", r)
			}
			if r := ask(t, "udp", at, newQuery("b.wait.", mdns.TypeA)); r.Rcode != mdns.RcodeServerFailure {
				t.Errorf("b.wait.: got %v, want SERVFAIL", r)
			}
		}
		close(s.wait.gate)
		<-stopped
		if _, err := parked.Read(make([]byte, 512)); err != nil {
			t.Errorf("the parked query: got %v, want its reply", err)
		}
	})
}

// An empty datagram, and one that has a header alone, is no query, and neither is a rejected
// header of a proxy.
func TestUDPProxyDatagrams(t *testing.T) {
	withEachReader(t, func(t *testing.T, o Options) {
		s := serve(t, "127.0.0.1", o)
		header, query := proxyV2From("192.0.2.7:4711"), pack(t, newQuery("a.in.", mdns.TypeA))
		broken := bytes.Clone(header)
		broken[12] = 0x22
		for _, c := range []struct {
			proxies              *ProxyOptions
			datagram             []byte
			unreadable, rejected int
		}{
			{nil, nil, 1, 0},
			{&ProxyOptions{Others: ProxyUse, SessionTime: time.Hour, Sessions: 1}, nil, 1, 0},
			{&ProxyOptions{Others: ProxyUse, SessionTime: time.Hour, Sessions: 1}, header, 0, 0},
			{&ProxyOptions{Others: ProxyUse, SessionTime: time.Hour, Sessions: 1}, header[:10], 0, 1},
			{&ProxyOptions{Others: ProxyUse}, broken, 0, 1},
			{&ProxyOptions{Others: ProxyUse}, append(bytes.Clone(header), 0), 1, 0},
			{&ProxyOptions{Others: ProxyReject}, nil, 1, 0},
			{&ProxyOptions{Others: ProxyReject}, header, 0, 1},
			{&ProxyOptions{Others: ProxyIgnore}, header, 0, 0},
			{nil, header, 0, 0}, // a message with the opcode 1
			{nil, header[:10], 1, 0},
		} {
			s.SetProxies(c.proxies)
			unreadable := func() int { return s.count(`seamark_transport_unreadable_total{proto="udp"}`) }
			rejected := func() int { return s.count(`seamark_transport_proxy_headers_rejected_total{proto="udp"}`) }
			u, r := unreadable(), rejected()
			conn := dial(t, "udp", s.at("127.0.0.1"))
			for _, d := range [][]byte{c.datagram, query} {
				if _, err := conn.Write(d); err != nil {
					t.Fatal(err)
				}
			}
			reply := make([]byte, 512)
			n, err := conn.Read(reply)
			if c.proxies == nil && len(c.datagram) == len(header) && err == nil {
				n, err = conn.Read(reply) // the reply to the header comes first
			}
			if err != nil || n == 0 {
				t.Fatalf("%+v, datagram %x: the query after it got error %v", c.proxies, c.datagram, err)
			}
			if unreadable()-u != c.unreadable || rejected()-r != c.rejected {
				t.Errorf("%+v, datagram %x: counted %d unreadable and %d rejected, want %d and %d", c.proxies, c.datagram, unreadable()-u, rejected()-r, c.unreadable, c.rejected)
			}
		}
	})
}
