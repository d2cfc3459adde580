package transport

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/test/chaintest"
)

func TestTCPIdle(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	const idle = 200 * time.Millisecond
	s := serve(t, "127.0.0.1", Options{Limits: Limits{IdleTimeout: idle}})
	start := time.Now()
	c := dialTCP(t, s, "127.0.0.1")
	c.expectClosed()
	if d := time.Since(start); d < idle {
		t.Errorf("an idle connection was closed after %v, want at least %v", d, idle)
	}
	// A connection with a parked query is not idle. It is after the reply.
	c = dialTCP(t, s, "127.0.0.1")
	c.ask(1, "a.wait.", mdns.TypeA)
	chaintest.Eventually(t, "other connections are closed", func() bool {
		other := dialTCP(t, s, "127.0.0.1")
		other.expectClosed()
		return time.Since(start) > 4*idle
	})
	start = time.Now()
	close(s.wait.gate)
	c.next()
	c.expectClosed()
	if d := time.Since(start); d < idle {
		t.Errorf("the connection was closed %v after its reply, want at least %v", d, idle)
	}
	if n := s.count(`seamark_transport_connections_closed_total{why="slow_sender"}`); n != 0 {
		t.Errorf("%d slow senders are counted, want 0", n)
	}
}

// TestTCPSlowSender: the time limit is for a whole message, even if its bytes
// arrive steadily. Connections without an incomplete message have no such limit.
func TestTCPSlowSender(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	const limit = time.Second // and no less: with TLS it is also that of the handshake
	s := serve(t, "127.0.0.1", Options{Limits: Limits{MessageTimeout: limit}})
	patient := dialTCP(t, s, "127.0.0.1")
	large := framed(make([]byte, 30000))
	var clients []tcpClient
	for _, packet := range [][]byte{{0}, {0, 40, 1, 2, 3}, large[:20000], nil} {
		c := dialTCP(t, s, "127.0.0.1")
		c.ask(1, "a.in.", mdns.TypeA)
		if packet != nil {
			_, _ = c.Write(packet)
		} else {
			go func() { // one byte at a time
				ticker := time.NewTicker(limit / 10)
				defer ticker.Stop()
				for _, err := c.Write([]byte{0, 200}); err == nil; <-ticker.C {
					_, err = c.Write([]byte{7})
				}
			}()
		}
		clients = append(clients, c)
	}
	for _, c := range clients {
		c.next()
		c.expectClosed()
	}
	if n := s.count(`seamark_transport_connections_closed_total{why="slow_sender"}`); n != len(clients) {
		t.Errorf("%d slow senders are counted, want %d", n, len(clients))
	}
	patient.ask(1, "a.in.", mdns.TypeA)
	wantA(t, patient.next(), 1)
}

// TestTCPSetLimits: SetLimits changes the limits of open connections.
func TestTCPSetLimits(t *testing.T) {
	s := serve(t, "127.0.0.1", Options{Limits: Limits{IdleTimeout: time.Hour, MessageTimeout: time.Hour}})
	idle, slow := dialTCP(t, s, "127.0.0.1"), dialTCP(t, s, "127.0.0.1")
	idle.ask(1, "a.in.", mdns.TypeA)
	wantA(t, idle.next(), 1)
	// The server reads the beginning of the second message with the first, so it has
	// both when it replies.
	_, _ = slow.Write(append(framed(pack(t, newQuery("a.in.", mdns.TypeA))), 0, 40, 1))
	wantA(t, slow.next(), 1)
	wait := func() {
		t.Helper()
		chaintest.Eventually(t, "the goroutines of the connections wait for data", func() bool {
			n := s.withGoroutine()
			return n > 0 && n == blocked("(*conn).read(")
		})
	}
	wait()
	s.SetLimits(Limits{IdleTimeout: time.Hour, MessageTimeout: time.Hour})
	idle.ask(2, "a.in.", mdns.TypeA)
	wantA(t, idle.next(), 1)
	wait()
	s.SetLimits(Limits{IdleTimeout: 50 * time.Millisecond, MessageTimeout: 50 * time.Millisecond})
	idle.expectClosed()
	slow.expectClosed()
	if n := s.count(`seamark_transport_connections_closed_total{why="slow_sender"}`); n != 1 {
		t.Errorf("%d slow senders are counted, want 1", n)
	}
}

// TestTCPMaxQueries: a connection is closed after its last query, when all
// queries, also parked ones, are answered.
func TestTCPMaxQueries(t *testing.T) {
	s := serve(t, "127.0.0.1", Options{Limits: Limits{MaxQueries: 3}})
	c := dialTCP(t, s, "127.0.0.1")
	c.ask(1, "a.wait.", mdns.TypeA)
	for id := range uint16(5) {
		c.ask(2+id, "a.in.", mdns.TypeA)
	}
	for range 2 {
		wantA(t, c.next(), 1)
	}
	close(s.wait.gate)
	c.next()
	c.expectClosed()
}

// TestTCPMaxQueriesLowered: a connection that has sent more queries than a new
// limit allows is closed at once, since the next one would not be answered.
func TestTCPMaxQueriesLowered(t *testing.T) {
	s := serve(t, "127.0.0.1", Options{Limits: Limits{IdleTimeout: time.Hour}})
	c := dialTCP(t, s, "127.0.0.1")
	for id := range uint16(3) {
		c.ask(id, "a.in.", mdns.TypeA)
		wantA(t, c.next(), 1)
	}
	s.SetLimits(Limits{MaxQueries: 2, IdleTimeout: time.Hour})
	c.expectClosed()
}

// TestTCPInFlight: a connection with the maximum of parked queries is not read
// until one of them is answered.
func TestTCPInFlight(t *testing.T) {
	const most = 3
	s := serve(t, "127.0.0.1", Options{MaxInFlight: most})
	c := dialTCP(t, s, "127.0.0.1")
	c.ask(100, "a.in.", mdns.TypeA)
	for i := range uint16(10) {
		c.ask(i, "a.wait.", mdns.TypeA)
	}
	c.ask(101, "a.in.", mdns.TypeA)
	if m := c.next(); m.Id != 100 { // This reply precedes the replies of the parked queries.
		t.Errorf("got %v, want the reply to query 100", m)
	}
	for done := int32(0); done < 10; done++ {
		want := min(most+done, 10)
		chaintest.Eventually(t, fmt.Sprintf("%d queries are parked", want), func() bool { return s.wait.arrived.Load() == want })
		if done < 10-most {
			// If the server read one more query of c, it would be parked before
			// the query of d is answered.
			d := dialTCP(t, s, "127.0.0.1")
			d.ask(1, "b.in.", mdns.TypeA)
			d.next()
			if n := s.wait.arrived.Load(); n != want {
				t.Fatalf("%d queries are parked, want %d", n, want)
			}
		}
		s.wait.gate <- struct{}{}
		if m := c.next(); m.Id == 101 { // The query is read as soon as another one is answered.
			c.next()
		}
	}
}

// expectRefused opens a connection that the server must close at once. The client may
// see that before Dial returns.
func expectRefused(t *testing.T, s *server) {
	t.Helper()
	c, err := net.Dial("tcp", s.at("127.0.0.1"))
	if err != nil {
		return
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	newTCPClient(t, c).expectClosed()
}

func TestTCPMaxConnsPerClient(t *testing.T) {
	requireAddress(t, "::1")
	s := serve(t, "::", Options{MaxConnsPerClient: 2})
	a, b := dialTCP(t, s, "127.0.0.1"), dialTCP(t, s, "127.0.0.1")
	a.ask(1, "a.in.", mdns.TypeA)
	a.next()
	expectRefused(t, s)
	if n := s.count(`seamark_transport_connections_refused_total{cap="client"}`); n != 1 {
		t.Errorf("%d connections were refused, want 1", n)
	}
	other := dialTCP(t, s, "::1") // The limit is separate from the limit of 127.0.0.1.
	other.ask(1, "a.in.", mdns.TypeA)
	other.next()
	b.Close()
	chaintest.Eventually(t, "the closed connection is removed", func() bool { return len(s.conns.list()) == 2 })
	c := dialTCP(t, s, "127.0.0.1")
	c.ask(1, "a.in.", mdns.TypeA)
	wantA(t, c.next(), 1)
}

func TestClientKey(t *testing.T) {
	for in, want := range map[string]string{
		"192.0.2.1": "192.0.2.1", "2001:db8:1:2:3:4:5:6": "2001:db8:1:2::", "fe80::1%lo": "fe80::",
	} {
		if got := ClientKey(netip.MustParseAddr(in)); got.String() != want {
			t.Errorf("ClientKey(%s) = %s, want %s", in, got, want)
		}
	}
}

// TestTCPMaxConns: at the limit the connection that has been idle longest is
// closed. If none is idle, the new one is refused.
func TestTCPMaxConns(t *testing.T) {
	s := serve(t, "127.0.0.1", Options{MaxConns: 3})
	var c [3]tcpClient
	for i := range c {
		c[i] = dialTCP(t, s, "127.0.0.1")
		c[i].ask(1, "a.in.", mdns.TypeA)
		c[i].next()
	}
	c[0].ask(2, "a.in.", mdns.TypeA)
	c[0].next()
	fresh := dialTCP(t, s, "127.0.0.1")
	fresh.ask(1, "a.in.", mdns.TypeA)
	wantA(t, fresh.next(), 1)
	c[1].expectClosed()
	for _, c := range []tcpClient{c[0], c[2], fresh} {
		c.ask(1, "a.wait.", mdns.TypeA)
	}
	chaintest.Eventually(t, "all connections have a parked query", func() bool { return s.wait.arrived.Load() == 3 })
	expectRefused(t, s)
	if e, r := s.count(`seamark_transport_connections_closed_total{why="idlest"}`), s.count(`seamark_transport_connections_refused_total{cap="total"}`); e != 1 || r != 1 {
		t.Errorf("%d connections were closed and %d refused, want 1 and 1", e, r)
	}
	close(s.wait.gate)
	for _, c := range []tcpClient{c[0], c[2], fresh} {
		wantA(t, c.next(), 2)
	}
}

// The socket of a connection that is replaced is closed while its queries still wait. Their replies are then
// discarded, even if another connection has received the same descriptor.
func TestTCPReplacedWhileQueriesWait(t *testing.T) {
	requireAddress(t, "::1")
	for name, prepare := range map[string]func(c tcpClient){
		"idle":        func(tcpClient) {},
		"half closed": func(c tcpClient) { _ = c.tcp.CloseWrite() },
		"not read":    func(c tcpClient) { c.ask(2, "b.wait.", mdns.TypeA) }, // MaxInFlight wait
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, "::", Options{MaxConns: 3, MaxInFlight: 1})
			for i := range int32(3) {
				c := dialTCP(t, s, "127.0.0.1")
				c.ask(1, "a.wait.", mdns.TypeA)
				prepare(c)
				chaintest.Eventually(t, "its query waits", func() bool { return s.wait.arrived.Load() == i+1 })
			}
			old := s.conns.list()

			fresh := dialTCP(t, s, "::1")
			fresh.ask(3, "a.in.", mdns.TypeA)
			wantA(t, fresh.next(), 1)

			left := s.conns.list()
			old = slices.DeleteFunc(old, func(c *conn) bool { return slices.Contains(left, c) })
			if len(old) != 1 {
				t.Fatalf("got %d connections replaced, want 1", len(old))
			}
			chaintest.Eventually(t, "its socket is closed", func() bool {
				old[0].mu.Lock()
				defer old[0].mu.Unlock()
				return old[0].closed
			})
			if n := s.conns.evicted.Load(); n != 0 || old[0].inFlight() != 1 {
				t.Errorf("got %d sockets to close and %d queries that wait, want 0 and 1", n, old[0].inFlight())
			}

			close(s.wait.gate)
			chaintest.Eventually(t, "its query is answered", func() bool { return old[0].inFlight() == 0 })
			fresh.ask(4, "a.in.", mdns.TypeA)
			if m := fresh.next(); m.Id != 4 {
				t.Errorf("got the reply to query %d, want 4", m.Id)
			}
		})
	}
}

// floodUnread connects, sends one query as often as possible and never reads. It
// returns the server's side of the connection.
func floodUnread(t *testing.T, s *server, name string) *conn {
	t.Helper()
	flood(dialTCP(t, s, "127.0.0.1"), pack(t, newQuery(name, mdns.TypeTXT)))
	chaintest.Eventually(t, "the client is connected", func() bool { return len(s.conns.list()) == 1 })
	return s.conns.list()[0]
}

// flood sends a query as often as possible until the connection is closed, and
// never reads.
func flood(c tcpClient, query []byte) {
	_ = c.tcp.SetReadBuffer(4096)
	packet := framed(query)
	go func() {
		for {
			if _, err := c.Write(packet); err != nil {
				return
			}
		}
	}()
}

// TestTCPNeverReads: a client that does not read its replies is disconnected, and
// other clients are answered meanwhile.
func TestTCPNeverReads(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	s := serve(t, "127.0.0.1", Options{Limits: Limits{WriteTimeout: time.Second}})
	close(s.wait.gate)
	floodUnread(t, s, "500.in.")
	other := dialTCP(t, s, "127.0.0.1")
	n := 0
	for ; s.count(`seamark_transport_connections_closed_total{why="slow_reader"}`) == 0; n++ {
		other.ask(1, "a.in.", mdns.TypeA)
		wantA(t, other.next(), 1)
	}
	if n < 20 {
		t.Errorf("another client got %d answers meanwhile, want at least 20", n)
	}
	chaintest.Eventually(t, "its connection is removed", func() bool { return len(s.conns.list()) == 1 })
}

// TestTCPNeverReadsParked: replies to parked queries that the client does not
// read occupy no place in the parking lot, and the client is not read while
// MaxInFlight of them wait.
func TestTCPNeverReadsParked(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	s := serve(t, "127.0.0.1", Options{Limits: Limits{WriteTimeout: time.Second}})
	close(s.wait.gate)
	c := floodUnread(t, s, "10.wait.") // 1.1 KB for each reply
	chaintest.Eventually(t, "its replies wait and no query is parked", func() bool {
		return c.inFlight() == s.o.MaxInFlight && s.lot.Parked() == 0 && s.queued.Load() > 1000
	})
	wantA(t, ask(t, "tcp", s.at("127.0.0.1"), newQuery("a.wait.", mdns.TypeA)), 2)
	chaintest.Eventually(t, "the client is disconnected", func() bool { return s.count(`seamark_transport_connections_closed_total{why="slow_reader"}`) == 1 })
	chaintest.Eventually(t, "the connection and its bytes are released", func() bool { return len(s.conns.list()) == 0 && s.queued.Load() == 0 })
}

// TestTCPNeverReadsLarge: a client is disconnected at the limit of bytes that
// wait for it, before the write timeout.
func TestTCPNeverReadsLarge(t *testing.T) {
	s := serve(t, "127.0.0.1", Options{Limits: Limits{WriteTimeout: time.Hour}})
	close(s.wait.gate)
	c := dialTCP(t, s, "127.0.0.1")
	c.ask(1, "a.wait.", mdns.TypeA) // The query is parked, so that a goroutine reads the connection from here on.
	wantA(t, c.next(), 2)
	flood(c, pack(t, newQuery("500.wait.", mdns.TypeTXT)))
	chaintest.Eventually(t, "the client is disconnected", func() bool { return s.count(`seamark_transport_connections_closed_total{why="slow_reader"}`) > 0 })
	chaintest.Eventually(t, "the connection and its bytes are released", func() bool { return len(s.conns.list()) == 0 && s.queued.Load() == 0 })
}

// TestTCPSlowReader: a client that reads slowly gets all replies.
func TestTCPSlowReader(t *testing.T) {
	s := serve(t, "127.0.0.1", Options{})
	c := dialTCP(t, s, "127.0.0.1")
	_ = c.tcp.SetReadBuffer(64 << 10)
	const n = 200
	go func() {
		for i := range uint16(n) {
			m := newQuery("300.in.", mdns.TypeTXT)
			m.Id = i
			_, _ = c.Write(framed(pack(t, m)))
		}
	}()
	for i := range uint16(n) {
		if i%10 == 0 {
			chaintest.Eventually(t, "the server waits for the client", func() bool {
				return s.seen.n.Load() == n || blocked("(*conn).writeNow(") == 1
			})
		}
		if m := c.next(); m.Id != i || len(m.Answer) != 300 {
			t.Fatalf("got reply %d with %d records, want %d with 300", m.Id, len(m.Answer), i)
		}
	}
}

// TestTCPPortable runs the tests without the accept loop.
func TestTCPPortable(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	for name, test := range map[string]func(*testing.T){
		"TCP": TestTCP, "Sizes": TestTCPSizes, "Pipelined": TestTCPPipelined, "OutOfOrder": TestTCPOutOfOrder,
		"HalfClosed": TestTCPHalfClosed, "Addresses": TestTCPAddresses, "Garbage": TestTCPGarbage,
		"Hostile": TestTCPHostile, "Stop": TestTCPStop, "StopLoad": TestTCPStopLoad, "StopFirstQuery": TestTCPStopFirstQuery, "Idle": TestTCPIdle,
		"SlowSender": TestTCPSlowSender, "SetLimits": TestTCPSetLimits, "MaxQueries": TestTCPMaxQueries,
		"MaxQueriesLowered": TestTCPMaxQueriesLowered, "InFlight": TestTCPInFlight, "MaxConnsPerClient": TestTCPMaxConnsPerClient,
		"MaxConns": TestTCPMaxConns, "NeverReads": TestTCPNeverReads, "SlowReader": TestTCPSlowReader,
	} {
		t.Run(name, test)
	}
}

// failingListener is a listener whose next left calls of Accept fail.
type failingListener struct {
	net.Listener
	left atomic.Int32
}

func (f *failingListener) Accept() (net.Conn, error) {
	if f.left.Add(-1) >= 0 {
		return nil, &net.OpError{Op: "accept", Err: syscall.EMFILE}
	}
	return f.Listener.Accept()
}

func TestAcceptErrors(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	out := new(logBuffer)
	l, err := Listen(t.Context(), netip.MustParseAddrPort("127.0.0.1:0"), Options{Log: slog.New(slog.NewTextHandler(out, nil))})
	if err != nil {
		t.Fatal(err)
	}
	f := &failingListener{Listener: l.tcp}
	f.left.Store(6)
	l.tcp = f
	s := &server{Listener: l, t: t}
	start := time.Now()
	l.Port().Swap((&server{t: t, wait: new(waiting), seen: new(observing)}).mux(1))
	l.Serve()
	wantA(t, ask(t, "tcp", s.at("127.0.0.1"), newQuery("a.in.", mdns.TypeA)), 1)
	if d := time.Since(start); d < 300*time.Millisecond { // 5+10+20+40+80+160 ms
		t.Errorf("accepting after six errors took %v, want at least 300ms", d)
	}
	if n := out.count("Accepting TCP connections failed"); n != 1 {
		t.Errorf("six errors were logged %d times, want 1", n)
	}
	f.left.Store(1000)
	dial(t, "tcp", s.at("127.0.0.1")) // This connection ends the pending call of Accept.
	chaintest.Eventually(t, "Accept fails again", func() bool { return f.left.Load() < 1000 })
	l.Stop()
}

// TestAcceptErrorsLog: the first error is logged, and success is logged a second
// after the last one. Pauses double up to one second.
func TestAcceptErrorsLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := new(logBuffer)
		a := acceptErrors{log: slog.New(slog.NewTextHandler(out, nil))}
		check := func(when string, bad, good int) {
			t.Helper()
			if b, g := out.count("Accepting TCP connections failed"), out.count("Accepting TCP connections again"); b != bad || g != good {
				t.Errorf("%s: %d errors and %d recoveries are logged, want %d and %d", when, b, g, bad, good)
			}
		}
		for _, want := range []time.Duration{5, 10, 20, 40, 80, 160, 320, 640, 1000, 1000} {
			if got := a.failed(syscall.EMFILE); got != want*time.Millisecond {
				t.Errorf("pause: got %v, want %v", got, want*time.Millisecond)
			}
		}
		a.succeeded()
		check("success after an error", 1, 0)
		time.Sleep(time.Second + time.Millisecond)
		a.succeeded()
		a.succeeded()
		check("success a second later", 1, 1)
		if got := a.failed(syscall.EMFILE); got != 5*time.Millisecond {
			t.Errorf("pause after a recovery: got %v, want 5ms", got)
		}
		check("another error", 2, 1)
	})
}

// logBuffer is a log in memory.
type logBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *logBuffer) count(what string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), what)
}

// A client with incomplete large messages for all places has a share of them, and leaves the rest
// to others.
func TestTCPLargeIncomplete(t *testing.T) {
	s := serve(t, "0.0.0.0", Options{Limits: Limits{MessageTimeout: time.Hour}})
	for range maxLarge + 6 {
		_, _ = dialTCP(t, s, "127.0.0.1").Write(framed(make([]byte, 30000))[:20000])
	}
	chaintest.Eventually(t, "the client has its share", func() bool { return s.large.Used() == maxLarge/4 })

	m := newQuery("a.in.", mdns.TypeA)
	m.SetEdns0(1232, false)
	m.IsEdns0().Option = []mdns.EDNS0{&mdns.EDNS0_PADDING{Padding: make([]byte, 30000)}}
	d := net.Dialer{Timeout: time.Minute, LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	c, err := d.Dial("tcp", s.at("127.0.0.1"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := c.Write(framed(pack(t, m))); err != nil {
		t.Fatal(err)
	}
	if _, err := (&mdns.Conn{Conn: c}).ReadMsg(); err != nil {
		t.Errorf("large query of another client: %v", err)
	}
}
