package transport

import (
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	mdns "github.com/miekg/dns"
)

func TestTCPIdle(t *testing.T) {
	const idle = 100 * time.Millisecond
	s := serve(t, "127.0.0.1", Options{Limits: Limits{IdleTimeout: idle}})
	start := time.Now()
	c := dialTCP(t, s, "127.0.0.1")
	c.closed()
	if d := time.Since(start); d < idle {
		t.Errorf("closed after %v", d)
	}
	// A connection with a query under way is not idle; afterwards it is.
	c = dialTCP(t, s, "127.0.0.1")
	c.ask(1, "a.wait.", mdns.TypeA)
	eventually(t, "others have idled", func() bool {
		other := dialTCP(t, s, "127.0.0.1")
		other.closed()
		return time.Since(start) > 4*idle
	})
	start = time.Now()
	close(s.wait.gate)
	c.next()
	c.closed()
	if d := time.Since(start); d < idle {
		t.Errorf("closed %v after the reply was ready", d)
	}
	if n := s.count(`seamark_transport_connections_closed_total{why="slow_sender"}`); n != 0 {
		t.Errorf("%d slow senders", n)
	}
}

// TestTCPSlowSender: a message has one time limit, however busily its bytes
// drip; connections that have none are not meant.
func TestTCPSlowSender(t *testing.T) {
	const limit = 100 * time.Millisecond
	s := serve(t, "127.0.0.1", Options{Limits: Limits{MessageTimeout: limit}})
	patient := dialTCP(t, s, "127.0.0.1")
	large := framed(make([]byte, 30000))
	for i, packet := range [][]byte{{0}, {0, 40, 1, 2, 3}, large[:20000], nil} {
		c := dialTCP(t, s, "127.0.0.1")
		c.ask(1, "a.in.", mdns.TypeA)
		if packet != nil {
			_, _ = c.Write(packet)
		} else {
			go func() { // one byte after the other
				for _, err := c.Write([]byte{0, 200}); err == nil; time.Sleep(limit / 10) {
					_, err = c.Write([]byte{7})
				}
			}()
		}
		c.next()
		c.closed()
		if n := s.count(`seamark_transport_connections_closed_total{why="slow_sender"}`); n != i+1 {
			t.Errorf("%d slow senders, want %d", n, i+1)
		}
	}
	patient.ask(1, "a.in.", mdns.TypeA)
	wantA(t, patient.next(), 1)
}

// TestTCPSetLimits: new limits are those of connections that are open, too.
func TestTCPSetLimits(t *testing.T) {
	s := serve(t, "127.0.0.1", Options{Limits: Limits{IdleTimeout: time.Hour, MessageTimeout: time.Hour}})
	idle, slow := dialTCP(t, s, "127.0.0.1"), dialTCP(t, s, "127.0.0.1")
	for _, c := range []tcpClient{idle, slow} {
		c.ask(1, "a.in.", mdns.TypeA)
		wantA(t, c.next(), 1)
	}
	_, _ = slow.Write([]byte{0, 40, 1})
	time.Sleep(50 * time.Millisecond) // let both wait
	s.SetLimits(Limits{IdleTimeout: time.Hour, MessageTimeout: time.Hour})
	idle.ask(2, "a.in.", mdns.TypeA)
	wantA(t, idle.next(), 1)
	time.Sleep(50 * time.Millisecond)
	s.SetLimits(Limits{IdleTimeout: 50 * time.Millisecond, MessageTimeout: 50 * time.Millisecond})
	idle.closed()
	slow.closed()
	if n := s.count(`seamark_transport_connections_closed_total{why="slow_sender"}`); n != 1 {
		t.Errorf("%d slow senders", n)
	}
}

// TestTCPMaxQueries: a connection is closed when it has had its queries, and
// all of them are answered, those that wait too.
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
	c.closed()
}

// TestTCPFewerQueries: a connection that has had more queries than a reload
// allows is closed at once: the next one would not be answered.
func TestTCPFewerQueries(t *testing.T) {
	s := serve(t, "127.0.0.1", Options{Limits: Limits{IdleTimeout: 2 * time.Second}})
	c := dialTCP(t, s, "127.0.0.1")
	for id := range uint16(3) {
		c.ask(id, "a.in.", mdns.TypeA)
		wantA(t, c.next(), 1)
	}
	s.SetLimits(Limits{MaxQueries: 2, IdleTimeout: time.Hour})
	c.closed()
}

// TestTCPInFlight: at the cap the connection is not read, and goes on as soon
// as one is done.
func TestTCPInFlight(t *testing.T) {
	const most = 3
	s := serve(t, "127.0.0.1", Options{MaxInFlight: most})
	c := dialTCP(t, s, "127.0.0.1")
	c.ask(100, "a.in.", mdns.TypeA)
	for i := range uint16(10) {
		c.ask(i, "a.wait.", mdns.TypeA)
	}
	c.ask(101, "a.in.", mdns.TypeA)
	if m := c.next(); m.Id != 100 { // it is not kept back
		t.Error(m)
	}
	for done := int32(0); done < 10; done++ {
		want := min(most+done, 10)
		eventually(t, "so many are parked", func() bool { return s.wait.arrived.Load() == want })
		if done < 10-most {
			// If one more were read it would be parked before this other is.
			d := dialTCP(t, s, "127.0.0.1")
			d.ask(1, "b.in.", mdns.TypeA)
			d.next()
			if n := s.wait.arrived.Load(); n != want {
				t.Fatalf("%d are parked, want %d", n, want)
			}
		}
		s.wait.gate <- struct{}{}
		if m := c.next(); m.Id == 101 { // read as soon as there was room
			c.next()
		}
	}
}

// refused opens a connection that must be closed at once; the client may see
// that before it has it.
func refused(t *testing.T, s *server) {
	t.Helper()
	c, err := net.Dial("tcp", s.at("127.0.0.1"))
	if err != nil {
		return
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	tcpClient{c.(*net.TCPConn), t}.closed()
}

func TestTCPCapOfClient(t *testing.T) {
	has(t, "::1")
	s := serve(t, "::", Options{MaxConnsPerClient: 2})
	a, b := dialTCP(t, s, "127.0.0.1"), dialTCP(t, s, "127.0.0.1")
	a.ask(1, "a.in.", mdns.TypeA)
	a.next()
	refused(t, s)
	if n := s.count(`seamark_transport_connections_refused_total{cap="client"}`); n != 1 {
		t.Errorf("%d refused", n)
	}
	other := dialTCP(t, s, "::1") // counts for itself
	other.ask(1, "a.in.", mdns.TypeA)
	other.next()
	b.Close()
	eventually(t, "there is room again", func() bool { return len(s.conns.list()) == 2 })
	c := dialTCP(t, s, "127.0.0.1")
	c.ask(1, "a.in.", mdns.TypeA)
	wantA(t, c.next(), 1)
}

func TestClient(t *testing.T) {
	for in, want := range map[string]string{
		"192.0.2.1": "192.0.2.1", "2001:db8:1:2:3:4:5:6": "2001:db8:1:2::", "fe80::1%lo": "fe80::",
	} {
		if got := clientKey(netip.MustParseAddr(in)); got.String() != want {
			t.Errorf("%s counts for %s, want %s", in, got, want)
		}
	}
}

// TestTCPCapTotal: the connection that has been idle longest makes room; if
// none is idle the new one is refused.
func TestTCPCapTotal(t *testing.T) {
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
	c[1].closed()
	for _, c := range []tcpClient{c[0], c[2], fresh} {
		c.ask(1, "a.wait.", mdns.TypeA)
	}
	eventually(t, "all are busy", func() bool { return s.wait.arrived.Load() == 3 })
	refused(t, s)
	if e, r := s.count(`seamark_transport_connections_closed_total{why="idlest"}`), s.count(`seamark_transport_connections_refused_total{cap="total"}`); e != 1 || r != 1 {
		t.Errorf("%d closed, %d refused", e, r)
	}
	close(s.wait.gate)
	for _, c := range []tcpClient{c[0], c[2], fresh} {
		wantA(t, c.next(), 2)
	}
}

// deaf sends one question as often as it can and never reads. It returns the
// server's side of the connection.
func deaf(t *testing.T, s *server, name string) *conn {
	t.Helper()
	c := dialTCP(t, s, "127.0.0.1")
	_ = c.SetReadBuffer(4096)
	packet := framed(pack(t, question(name, mdns.TypeTXT)))
	go func() {
		for {
			if _, err := c.Write(packet); err != nil {
				return
			}
		}
	}()
	eventually(t, "it is connected", func() bool { return len(s.conns.list()) == 1 })
	return s.conns.list()[0]
}

// TestTCPNeverReads: who does not read its replies is cut, and holds nobody up
// before that.
func TestTCPNeverReads(t *testing.T) {
	s := serve(t, "127.0.0.1", Options{Limits: Limits{WriteTimeout: time.Second}})
	close(s.wait.gate)
	deaf(t, s, "500.in.")
	other := dialTCP(t, s, "127.0.0.1")
	n := 0
	for ; s.count(`seamark_transport_connections_closed_total{why="slow_reader"}`) == 0; n++ {
		other.ask(1, "a.in.", mdns.TypeA)
		wantA(t, other.next(), 1)
	}
	if n < 20 {
		t.Errorf("another client had %d answers meanwhile", n)
	}
	eventually(t, "its connection ends", func() bool { return len(s.conns.list()) == 1 })
}

// TestTCPNeverReadsParked: its replies wait without workers, and it is not read
// while there are as many as it may have in flight.
func TestTCPNeverReadsParked(t *testing.T) {
	s := serve(t, "127.0.0.1", Options{Limits: Limits{WriteTimeout: time.Second}})
	close(s.wait.gate)
	c := deaf(t, s, "10.wait.") // 1.1 KB each
	eventually(t, "no worker is left with its replies", func() bool {
		return c.inFlight() == s.o.MaxInFlight && s.lot.Parked() == 0 && s.queued.Load() > 1000
	})
	wantA(t, ask(t, "tcp", s.at("127.0.0.1"), question("a.wait.", mdns.TypeA)), 2)
	eventually(t, "it is cut", func() bool { return s.count(`seamark_transport_connections_closed_total{why="slow_reader"}`) == 1 })
	eventually(t, "all is given back", func() bool { return len(s.conns.list()) == 0 && s.queued.Load() == 0 })
}

// TestTCPNeverReadsLarge: too many bytes wait for it, sooner than any timeout.
func TestTCPNeverReadsLarge(t *testing.T) {
	s := serve(t, "127.0.0.1", Options{Limits: Limits{WriteTimeout: time.Hour}})
	close(s.wait.gate)
	deaf(t, s, "500.wait.")
	eventually(t, "it is cut", func() bool { return s.count(`seamark_transport_connections_closed_total{why="slow_reader"}`) > 0 })
	eventually(t, "all is given back", func() bool { return len(s.conns.list()) == 0 && s.queued.Load() == 0 })
}

// TestTCPSlowReader: a client that reads slowly, but reads, gets everything.
func TestTCPSlowReader(t *testing.T) {
	s := serve(t, "127.0.0.1", Options{})
	c := dialTCP(t, s, "127.0.0.1")
	const n = 200
	go func() {
		for i := range uint16(n) {
			m := question("300.in.", mdns.TypeTXT)
			m.Id = i
			_, _ = c.Write(framed(pack(t, m)))
		}
	}()
	for i := range uint16(n) {
		if i%10 == 0 {
			time.Sleep(5 * time.Millisecond) // this is the client's slowness
		}
		if m := c.next(); m.Id != i || len(m.Answer) != 300 {
			t.Fatalf("reply %d: id %d, %d answers", i, m.Id, len(m.Answer))
		}
	}
}

// TestTCPPortable: the same where there is no desk.
func TestTCPPortable(t *testing.T) {
	for name, test := range map[string]func(*testing.T){
		"TCP": TestTCP, "Sizes": TestTCPSizes, "Pipelined": TestTCPPipelined, "OutOfOrder": TestTCPOutOfOrder,
		"HalfClosed": TestTCPHalfClosed, "Addresses": TestTCPAddresses, "Garbage": TestTCPGarbage,
		"Hostile": TestTCPHostile, "Stop": TestTCPStop, "StopLoad": TestTCPStopLoad, "Idle": TestTCPIdle,
		"SlowSender": TestTCPSlowSender, "SetLimits": TestTCPSetLimits, "MaxQueries": TestTCPMaxQueries,
		"FewerQueries": TestTCPFewerQueries, "InFlight": TestTCPInFlight, "CapOfClient": TestTCPCapOfClient,
		"CapTotal": TestTCPCapTotal, "NeverReads": TestTCPNeverReads, "SlowReader": TestTCPSlowReader,
	} {
		t.Run(name, test)
	}
}

// failing is a listener that cannot accept for a while.
type failing struct {
	net.Listener
	left atomic.Int32
}

func (f *failing) Accept() (net.Conn, error) {
	if f.left.Add(-1) >= 0 {
		return nil, &net.OpError{Op: "accept", Err: syscall.EMFILE}
	}
	return f.Listener.Accept()
}

func TestAcceptErrors(t *testing.T) {
	out := new(logged)
	l, err := Listen(t.Context(), netip.MustParseAddrPort("127.0.0.1:0"), Options{Log: slog.New(slog.NewTextHandler(out, nil))})
	if err != nil {
		t.Fatal(err)
	}
	f := &failing{Listener: l.tcp}
	f.left.Store(6)
	l.tcp = f
	s := &server{Listener: l, t: t}
	start := time.Now()
	l.Port().Swap((&server{t: t, wait: new(waiting), seen: new(observing)}).mux(1))
	l.Serve()
	wantA(t, ask(t, "tcp", s.at("127.0.0.1"), question("a.in.", mdns.TypeA)), 1)
	if d := time.Since(start); d < 300*time.Millisecond { // 5+10+20+40+80+160
		t.Errorf("six errors took %v: no back-off", d)
	}
	time.Sleep(time.Second + 100*time.Millisecond) // after this long without an error all is well again
	ask(t, "tcp", s.at("127.0.0.1"), question("a.in.", mdns.TypeA))
	ask(t, "tcp", s.at("127.0.0.1"), question("a.in.", mdns.TypeA))
	f.left.Store(1000)
	dial(t, "tcp", s.at("127.0.0.1")) // the pending accept
	eventually(t, "it fails again", func() bool { return f.left.Load() < 998 })
	l.Stop()
	if bad, good := out.count("accepting tcp connections failed"), out.count("accepting tcp connections again"); bad != 2 || good != 1 {
		t.Errorf("logged %d times that it fails, %d times that it works again", bad, good)
	}
}

// logged is what has been logged.
type logged struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logged) count(what string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), what)
}
