package transport

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/wire"
)

// patience is how long a test waits for a condition.
const patience = 30 * time.Second

// inline answers A queries with 192.0.2.h, and TXT queries with as many strings
// of 100 bytes as the first label of the name is.
type inline byte

func (h inline) ServeDNS(q *dns.Query) dns.Verdict {
	q.AA = true
	switch q.Type {
	case wire.TypeA:
		q.Answer.Buf = wire.AppendAddress(q.Answer.Buf, wire.OwnerIsQuestion, 5, netip.AddrFrom4([4]byte{192, 0, 2, byte(h)}))
		q.Answer.Append(wire.Answers, nil, 1)
	case wire.TypeTXT:
		if q.Proto == dns.UDP {
			q.ReplyLimit = wire.MaxUDPReply
		}
		n, _ := strconv.Atoi(string(q.Name()[1 : 1+q.Name()[0]]))
		for range n {
			q.Answer.Buf = wire.AppendRecordHeader(q.Answer.Buf, wire.OwnerIsQuestion, wire.TypeTXT, 5, 101)
			q.Answer.Buf = append(append(q.Answer.Buf, 100), strings.Repeat("x", 100)...)
			q.Answer.Append(wire.Answers, nil, 1)
		}
	}
	return dns.Done
}

// waiting parks each query until its gate is closed or its context ends.
type waiting struct {
	arrived atomic.Int32
	gate    chan struct{}
}

func (h *waiting) Resolve(ctx context.Context, q *dns.Query) error {
	h.arrived.Add(1)
	select {
	case <-h.gate:
		inline(2).ServeDNS(q)
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

type panicking struct{}

func (panicking) ServeDNS(*dns.Query) dns.Verdict { panic("boom") }

type dropping struct{}

func (dropping) ServeDNS(*dns.Query) dns.Verdict { return dns.Drop }

// observing counts queries, and panics for names that begin with "o".
type observing struct{ n, dropped atomic.Int64 }

func (o *observing) ObserveDNS(q *dns.Query) {
	o.n.Add(1)
	if q.Dropped() {
		o.dropped.Add(1)
	}
	if q.Elapsed < 0 || q.Start.IsZero() || !q.Peer.IsValid() || q.Peer.Addr().Is4In6() || !q.Local.IsValid() {
		panic("a query without times or addresses")
	}
	if q.Name()[1] == 'o' {
		panic("observer")
	}
}

// server is a listener with the zones in., wait., panic. and drop. The handler of
// in. is inline.
type server struct {
	*Listener
	t      *testing.T
	lot    *dns.ParkingLot
	wait   *waiting
	seen   *observing
	panics atomic.Int32
	counts *metrics.Registry
}

func (s *server) mux(answer byte) *dns.Mux {
	m := dns.NewMux(s.lot, func(*dns.Query, any) { s.panics.Add(1) })
	for zone, h := range map[wire.Name]any{
		"\x02in\x00": inline(answer), "\x04wait\x00": s.wait, "\x05panic\x00": panicking{}, "\x04drop\x00": dropping{},
	} {
		c := &dns.Chain{Zone: zone.String()}
		c.Add("test", h)
		c.Observe(s.seen)
		if err := m.Route(zone, c); err != nil {
			s.t.Fatal(err)
		}
	}
	return m
}

// serve starts a server at addr, an address with a port or one that gets a free port. At the end of the test it stops
// the server and waits until its goroutines have ended.
func serve(t *testing.T, addr string, o Options) *server {
	t.Helper()
	before := runtime.NumGoroutine()
	s := &server{t: t, lot: dns.NewParkingLot(1000), wait: &waiting{gate: make(chan struct{})}, seen: new(observing), counts: new(metrics.Registry)}
	o.Metrics = s.counts
	o.Portable = o.Portable || strings.HasPrefix(t.Name(), "TestTCPPortable/")
	if withTLS(t) {
		o.TLS = serverTLS(t)
	}
	if o.Grace == 0 {
		o.Grace = 50 * time.Millisecond
	}
	at, err := netip.ParseAddrPort(addr)
	if err != nil {
		at = netip.AddrPortFrom(netip.MustParseAddr(addr), 0)
	}
	s.Listener, err = Listen(t.Context(), at, o)
	if err != nil {
		t.Fatal(err)
	}
	s.Port().Swap(s.mux(1))
	s.Serve()
	t.Cleanup(func() {
		s.Stop()
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		s.lot.Close(ended)
		chaintest.Eventually(t, "the goroutines end", func() bool { return runtime.NumGoroutine() <= before })
	})
	return s
}

// count returns the value of a counter, given its name and labels as in the text
// format.
func (s *server) count(series string) int {
	var b strings.Builder
	if err := s.counts.WriteText(&b); err != nil {
		s.t.Fatal(err)
	}
	for line := range strings.Lines(b.String()) {
		if value, ok := strings.CutPrefix(line, series+" "); ok {
			n, _ := strconv.Atoi(strings.TrimSpace(value))
			return n
		}
	}
	return -1
}

// at returns the server's address with this IP.
func (s *server) at(ip string) string {
	return net.JoinHostPort(ip, strconv.Itoa(int(s.Addr().Port())))
}

// withGoroutine returns the number of connections that do not wait in the accept
// loop.
func (s *server) withGoroutine() (n int) {
	for _, c := range s.conns.list() {
		if !c.isWaiting() {
			n++
		}
	}
	return n
}

// blocked returns the number of goroutines that wait for a socket in a method of
// this package, such as "(*conn).read(".
func blocked(method string) (n int) {
	buf := make([]byte, 1<<20)
	for g := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		state, _, _ := strings.Cut(g, "\n")
		if strings.Contains(state, "[IO wait") && strings.Contains(g, "transport."+method) {
			n++
		}
	}
	return n
}

// requireAddress skips the test if this machine does not have ip: ::1, or all but one of
// 127.0.0.0/8.
func requireAddress(t *testing.T, ip string) {
	t.Helper()
	c, err := net.ListenPacket("udp", net.JoinHostPort(ip, "0"))
	if err != nil {
		t.Skip(err)
	}
	c.Close()
}

func newQuery(name string, qtype uint16) *mdns.Msg { return new(mdns.Msg).SetQuestion(name, qtype) }

// pack returns a message in wire form.
func pack(t *testing.T, m *mdns.Msg) []byte {
	t.Helper()
	b, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func dial(t *testing.T, network, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return c
}

// ask sends one query and returns its reply.
func ask(t *testing.T, network, addr string, m *mdns.Msg) *mdns.Msg {
	t.Helper()
	c := &mdns.Client{Net: network, Timeout: patience, UDPSize: 4096, TLSConfig: clientTLS()}
	if withTLS(t) && network == "tcp" {
		c.Net = "tcp-tls"
	}
	r, _, err := c.Exchange(m, addr)
	if err != nil {
		t.Fatalf("%s %s %s: %v", network, addr, m.Question[0].Name, err)
	}
	return r
}

// wantA checks that r is the one address 192.0.2.last.
func wantA(t *testing.T, r *mdns.Msg, last byte) {
	t.Helper()
	if r.Rcode != mdns.RcodeSuccess || len(r.Answer) != 1 || r.Answer[0].(*mdns.A).A.To4()[3] != last {
		t.Errorf("got %v, want 192.0.2.%d", r, last)
	}
}

// withEachReader runs a test with and without system calls for batches.
func withEachReader(t *testing.T, f func(t *testing.T, o Options)) {
	t.Run("batch", func(t *testing.T) { f(t, Options{Readers: 2}) })
	t.Run("portable", func(t *testing.T) { f(t, Options{Readers: 2, Portable: true}) })
}

func TestListenErrors(t *testing.T) {
	taken, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	// A port that is taken for UDP and free for TCP.
	free, err := Listen(t.Context(), netip.MustParseAddrPort("127.0.0.1:0"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	free.Stop()
	takenUDP, err := net.ListenPacket("udp4", free.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer takenUDP.Close()
	for _, tc := range []struct{ addr, want string }{
		{taken.Addr().String(), "listen tcp " + taken.Addr().String() + ": address in use: another process is listening there; stop it, or choose another address with bind or another port in the Corefile (-p is for blocks that name none)"},
		{takenUDP.LocalAddr().String(), "listen udp " + takenUDP.LocalAddr().String() + ": address in use"},
		{"198.51.100.7:0", "listen tcp 198.51.100.7:0: no interface of this machine has that address"},
		{"[fe80::1]:0", "needs its interface"},
	} {
		l, err := Listen(t.Context(), netip.MustParseAddrPort(tc.addr), Options{})
		if err == nil {
			l.Stop()
			t.Errorf("Listen(%s): got no error, want %s", tc.addr, tc.want)
		} else if !strings.Contains(err.Error(), tc.want) {
			t.Errorf("Listen(%s): got %v, want %s", tc.addr, err, tc.want)
		}
	}
	denied := explain("udp", netip.MustParseAddrPort("127.0.0.1:53"), &net.OpError{Op: "listen", Err: syscall.EACCES})
	if want := "listen udp 127.0.0.1:53: permission denied: ports below 1024 need root or CAP_NET_BIND_SERVICE"; !strings.HasPrefix(denied.Error(), want) || !errors.Is(denied, syscall.EACCES) {
		t.Errorf("EACCES: got %v, want %s", denied, want)
	}
}

// TestListenSharedAddress: Listen fails if another server of the same user has
// the address, although both set SO_REUSEPORT.
func TestListenSharedAddress(t *testing.T) {
	s := serve(t, "127.0.0.1", Options{})
	if l, err := Listen(t.Context(), s.Addr(), Options{}); err == nil {
		l.Stop()
		t.Errorf("Listen(%v) a second time: got no error, want one", s.Addr())
	}
	// Without the TCP socket only the UDP sockets with SO_REUSEPORT are left.
	s.tcp.Close()
	l, err := Listen(t.Context(), s.Addr(), Options{})
	if err == nil {
		l.Stop()
		t.Fatalf("Listen(%v) while its UDP port is taken: got no error, want one of UDP", s.Addr())
	}
	if !strings.HasPrefix(err.Error(), "listen udp ") {
		t.Errorf("Listen(%v) while its UDP port is taken: got %v, want an error of UDP", s.Addr(), err)
	}
}

func TestStopWithoutServe(t *testing.T) {
	l, err := Listen(t.Context(), netip.AddrPort{}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	l.Stop()
	l.Stop()
	if l, err = Listen(t.Context(), l.Addr(), Options{}); err != nil {
		t.Fatalf("Listen after Stop: got error %v, want none", err)
	}
	l.Stop()
}

// TestSwapUnderLoad: while the mux is swapped each query is answered, by the old
// mux or the new one, and by the new one only after WaitReaders.
func TestSwapUnderLoad(t *testing.T) {
	withEachReader(t, func(t *testing.T, o Options) {
		s := serve(t, "127.0.0.1", o)
		var oldest atomic.Int32 // no query that is sent now may be answered by an older mux
		oldest.Store(1)
		stop := make(chan struct{})
		var clients sync.WaitGroup
		for _, network := range []string{"udp", "tcp", "udp", "tcp"} {
			conn, err := mdns.Dial(network, s.at("127.0.0.1"))
			if err != nil {
				t.Fatal(err)
			}
			clients.Go(func() {
				defer conn.Close()
				c := &mdns.Client{Net: network, Timeout: patience}
				for {
					select {
					case <-stop:
						return
					default:
					}
					least := byte(oldest.Load())
					r, _, err := c.ExchangeWithConn(newQuery("a.in.", mdns.TypeA), conn)
					if err != nil || len(r.Answer) != 1 || r.Answer[0].(*mdns.A).A.To4()[3] < least {
						t.Errorf("%s: got %v, %v; want 192.0.2.%d or a later mux", network, r, err, least)
						return
					}
				}
			})
		}
		for answer := byte(2); answer < 100; answer++ {
			s.Port().Swap(s.mux(answer))
			s.Port().WaitReaders()
			oldest.Store(int32(answer))
		}
		close(stop)
		clients.Wait()
	})
}
