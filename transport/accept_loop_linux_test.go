package transport

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"syscall"
	"testing"
	"time"

	mdns "github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/test/chaintest"
)

// TestAcceptLoopGoroutines: connections in the accept loop have no goroutine, and
// connections with more than a few queries get one until they are idle.
func TestAcceptLoopGoroutines(t *testing.T) {
	s := serve(t, "127.0.0.1", Options{Limits: Limits{IdleTimeout: 24 * time.Hour, keepGoroutine: time.Hour}})
	const n = 50
	ask(t, "tcp", s.at("127.0.0.1"), newQuery("a.in.", mdns.TypeA)) // starts the accept loop
	chaintest.Eventually(t, "the connection is removed", func() bool { return len(s.conns.list()) == 0 })
	before := runtime.NumGoroutine()
	var clients []tcpClient
	for range n {
		c := dialTCP(t, s, "127.0.0.1")
		clients = append(clients, c)
		for id := range uint16(maxLoopReads - 1) {
			c.ask(id, "a.in.", mdns.TypeA)
			wantA(t, c.next(), 1)
		}
	}
	// The loop runs a connection until after the client has its reply.
	chaintest.Eventually(t, "all connections wait in the loop", func() bool {
		return len(s.conns.list()) == n && s.withGoroutine() == 0 && runtime.NumGoroutine() <= before
	})
	for round := range 3 {
		for _, c := range clients {
			c.ask(7, "a.in.", mdns.TypeA)
			wantA(t, c.next(), 1)
		}
		chaintest.Eventually(t, fmt.Sprintf("round %d: %d connections have goroutines", round, n), func() bool {
			return s.withGoroutine() == n && runtime.NumGoroutine() == before+n
		})
	}
	for _, c := range s.conns.list() {
		c.lastActive.Add(-int64(2 * time.Hour))
	}
	s.conns.check(s.Listener)
	chaintest.Eventually(t, "the idle connections are in the loop", func() bool {
		return s.withGoroutine() == 0 && runtime.NumGoroutine() <= before
	})
	for _, c := range clients {
		c.ask(8, "a.in.", mdns.TypeA)
		wantA(t, c.next(), 1)
	}
}

// A connection that is cut just before its reader hands it to the accept loop is closed: no event would
// come for it, and no other goroutine would wake it.
func TestAcceptLoopCutBeforeWait(t *testing.T) {
	s := serve(t, "127.0.0.1", Options{})
	client := dialTCP(t, s, "127.0.0.1")
	client.ask(1, "a.in.", mdns.TypeA)
	wantA(t, client.next(), 1)
	var c *conn
	chaintest.Eventually(t, "the connection waits in the loop", func() bool {
		c = s.conns.list()[0]
		return c.claim() // this goroutine is the reader now
	})

	c.cut()
	if s.loop.await(c) {
		t.Error("got a connection that waits after it was cut")
	}
	c.start()
	chaintest.Eventually(t, "it is closed", func() bool { return len(s.conns.list()) == 0 })
}

// A connection that its reader hands to the accept loop during a hand-over is passed to the other process,
// although it was not in the loop when the waiting connections were woken.
func TestAcceptLoopHandOverBeforeWait(t *testing.T) {
	s := serve(t, "127.0.0.1", Options{})
	client := dialTCP(t, s, "127.0.0.1")
	client.ask(1, "a.in.", mdns.TypeA)
	wantA(t, client.next(), 1)
	var c *conn
	chaintest.Eventually(t, "the connection waits in the loop", func() bool {
		c = s.conns.list()[0]
		return c.claim() // this goroutine is the reader now
	})

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	passed, done := 0, make(chan error)
	go func() { done <- s.HandOver(ctx, func(Conn) error { passed++; return nil }) }()
	chaintest.Eventually(t, "the hand-over begins", s.passing.Load)
	if s.loop.await(c) {
		t.Error("got a connection that waits, want one whose reader continues")
		cancel()
	}
	c.start()
	if err := <-done; err != nil || passed != 1 {
		t.Errorf("HandOver: got error %v and %d connections, want none and 1", err, passed)
	}
}

// TestAcceptLoopBacklog: connections that were opened before the listener accepts
// are all answered, and the accept loop keeps only a part of them.
func TestAcceptLoopBacklog(t *testing.T) {
	l, err := Listen(t.Context(), netip.MustParseAddrPort("127.0.0.1:0"), Options{MaxConns: 2 * maxInline, Grace: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Stop()
	s := &server{Listener: l, t: t, wait: new(waiting), seen: new(observing)}
	l.Port().Swap(s.mux(1))
	const n = 2*maxInline - 4
	var clients []tcpClient
	for i := range n + 2 {
		c := dialTCP(t, s, "127.0.0.1")
		switch i {
		case 3:
			c.Close()
		case 5:
			_ = c.tcp.SetLinger(0)
			c.Close()
		default:
			c.ask(uint16(i), "a.in.", mdns.TypeA)
			clients = append(clients, c)
		}
	}
	l.Serve()
	for _, c := range clients {
		wantA(t, c.next(), 1)
	}
	if k := s.withGoroutine(); k < n-maxInline || k == n {
		t.Errorf("of %d connections %d have goroutines, want at least %d but not all", n, k, n-maxInline)
	}
	chaintest.Eventually(t, "closed connections are removed", func() bool { return len(s.conns.list()) == n })
}

// TestAcceptLoopSocketOptions: accepted sockets have the options that package net
// sets on each connection.
func TestAcceptLoopSocketOptions(t *testing.T) {
	s := serve(t, "127.0.0.1", Options{})
	c := dialTCP(t, s, "127.0.0.1")
	c.ask(1, "a.in.", mdns.TypeA)
	c.next()
	fd := s.conns.list()[0].sock.(*descriptor).fd
	if on, err := unix.GetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY); on == 0 || err != nil {
		t.Errorf("TCP_NODELAY: got %d, %v; want it set", on, err)
	}
	if size, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF); size != 2*connBuffer || err != nil {
		t.Errorf("SO_RCVBUF: got %d, %v; want %d", size, err, 2*connBuffer)
	}
	if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0); flags&unix.O_NONBLOCK == 0 || err != nil {
		t.Errorf("file status flags: got %#x, %v; want O_NONBLOCK", flags, err)
	}
	if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); flags&unix.FD_CLOEXEC == 0 || err != nil {
		t.Errorf("descriptor flags: got %#x, %v; want FD_CLOEXEC", flags, err)
	}
}

// TestAcceptLoopFullSendBuffer: a goroutine writes the replies that do not fit
// into the socket's buffer, complete and once.
func TestAcceptLoopFullSendBuffer(t *testing.T) {
	s := serve(t, "127.0.0.1", Options{})
	d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		return controlFD(c, func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 4096) })
	}}
	small, err := d.Dial("tcp", s.at("127.0.0.1"))
	if err != nil {
		t.Fatal(err)
	}
	defer small.Close()
	_ = small.SetDeadline(time.Now().Add(patience))
	c := newTCPClient(t, small)
	for id := range uint16(2) { // one reply would fit into the socket's buffer
		c.ask(id, "570.in.", mdns.TypeTXT)
		chaintest.Eventually(t, "the query is answered", func() bool { return s.seen.n.Load() == int64(id+1) })
	}
	chaintest.Eventually(t, "the connection has a goroutine", func() bool { return s.withGoroutine() == 1 })
	for id := range uint16(2) {
		if m := c.next(); m.Id != id || len(m.Answer) != 570 {
			t.Fatalf("got reply %d with %d records, want %d with 570", m.Id, len(m.Answer), id)
		}
	}
}

// resettingHandler calls reset, which resets the client's connection, before it answers.
type resettingHandler struct{ reset func() }

func (h resettingHandler) ServeDNS(q *dns.Query) dns.Verdict {
	h.reset()
	return inline(1).ServeDNS(q)
}

// TestAcceptLoopClientReset: a client that resets its connection before its reply
// is sent is removed, with a parked query or without.
func TestAcceptLoopClientReset(t *testing.T) {
	s := serve(t, "127.0.0.1", Options{})
	clients := make(chan tcpClient, 1)
	mux, chain := s.mux(1), &dns.Chain{Zone: "hang."}
	chain.Add("test", resettingHandler{func() {
		c := <-clients
		_ = c.tcp.SetLinger(0)
		c.Close()
	}})
	if err := mux.Route("\x04hang\x00", chain); err != nil {
		t.Fatal(err)
	}
	s.Port().Swap(mux)
	hang := framed(pack(t, newQuery("a.hang.", mdns.TypeA)))
	for i, packet := range [][]byte{hang, append(framed(pack(t, newQuery("a.wait.", mdns.TypeA))), hang...)} {
		c := dialTCP(t, s, "127.0.0.1")
		if _, err := c.Write(packet); err != nil {
			t.Fatal(err)
		}
		clients <- c
		chaintest.Eventually(t, "the send error is counted", func() bool { return s.count(`seamark_transport_send_errors_total{proto="tcp"}`) == i+1 })
	}
	chaintest.Eventually(t, "the query is parked", func() bool { return s.wait.arrived.Load() == 1 })
	close(s.wait.gate)
	chaintest.Eventually(t, "the connections are removed", func() bool { return len(s.conns.list()) == 0 && s.lot.Parked() == 0 })
}

// slowHandler answers after gate is closed, and keeps the accept loop busy for
// longer than maxBusy.
type slowHandler struct{ started, gate chan struct{} }

func (h slowHandler) ServeDNS(q *dns.Query) dns.Verdict {
	h.started <- struct{}{}
	<-h.gate
	for start := time.Now(); time.Since(start) < 2*maxBusy; {
	}
	return inline(1).ServeDNS(q)
}

// TestAcceptLoopEndOfFile: the accept loop sees the end of file of a connection
// that came together with a query while it was busy.
func TestAcceptLoopEndOfFile(t *testing.T) {
	s := serve(t, "127.0.0.1", Options{Limits: Limits{IdleTimeout: time.Hour}})
	h := slowHandler{make(chan struct{}, 2), make(chan struct{})}
	mux, chain := s.mux(1), &dns.Chain{Zone: "linger."}
	chain.Add("test", h)
	if err := mux.Route("\x06linger\x00", chain); err != nil {
		t.Fatal(err)
	}
	s.Port().Swap(mux)
	busy, c := dialTCP(t, s, "127.0.0.1"), dialTCP(t, s, "127.0.0.1")
	for _, c := range []tcpClient{busy, c} { // then the accept loop waits for both
		c.ask(1, "a.in.", mdns.TypeA)
		wantA(t, c.next(), 1)
	}
	busy.ask(2, "a.linger.", mdns.TypeA)
	<-h.started
	c.ask(2, "a.linger.", mdns.TypeA)
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	// The kernel has the query and the end of file. The answer over UDP shows that
	// the netpoller has run since.
	fd, peer := -1, AddrPort(c.LocalAddr())
	for _, served := range s.conns.list() {
		if served.peer == peer {
			fd = served.sock.(*descriptor).fd
		}
	}
	chaintest.Eventually(t, "the server's socket has the end of file", func() bool {
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		n, err := unix.Poll(poll, 0)
		return n == 1 && err == nil && poll[0].Revents&unix.POLLRDHUP != 0
	})
	wantA(t, ask(t, "udp", s.at("127.0.0.1"), newQuery("a.in.", mdns.TypeA)), 1)
	close(h.gate)
	wantA(t, busy.next(), 1)
	wantA(t, c.next(), 1)
	c.expectClosed()
}

// TestAcceptLoopEviction: at the limit of connections the oldest idle one is
// closed, in the accept loop and with a goroutine.
func TestAcceptLoopEviction(t *testing.T) {
	for _, queries := range []int{1, maxLoopReads} {
		t.Run(fmt.Sprint(queries), func(t *testing.T) {
			s := serve(t, "127.0.0.1", Options{MaxConns: 2})
			var all [3]tcpClient
			for i := range all {
				all[i] = dialTCP(t, s, "127.0.0.1")
				for range queries {
					all[i].ask(1, "a.in.", mdns.TypeA)
					wantA(t, all[i].next(), 1)
				}
			}
			all[0].expectClosed()
			for _, c := range all[1:] {
				c.ask(2, "a.in.", mdns.TypeA)
				wantA(t, c.next(), 1)
			}
		})
	}
}

// TestAcceptLoopNoDescriptors: without free descriptors the accept loop answers
// open connections, and it accepts again when there are some.
func TestAcceptLoopNoDescriptors(t *testing.T) {
	out := new(logBuffer)
	s := serve(t, "127.0.0.1", Options{Log: slog.New(slog.NewTextHandler(out, nil))})
	c := dialTCP(t, s, "127.0.0.1")
	c.ask(1, "a.in.", mdns.TypeA)
	wantA(t, c.next(), 1)
	var limit, none unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	none = limit
	none.Cur = 3
	restore := func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &limit) }
	defer restore()
	d := net.Dialer{Control: func(_, _ string, _ syscall.RawConn) error { // the client's socket is open by now
		return unix.Setrlimit(unix.RLIMIT_NOFILE, &none)
	}}
	late, err := d.Dial("tcp", s.at("127.0.0.1"))
	if err != nil {
		t.Fatal(err)
	}
	defer late.Close()
	_ = late.SetDeadline(time.Now().Add(patience))
	chaintest.Eventually(t, "the error is logged", func() bool { return out.count("Accepting TCP connections failed") == 1 })
	c.ask(2, "a.in.", mdns.TypeA)
	wantA(t, c.next(), 1)
	restore()
	other := newTCPClient(t, late)
	other.ask(1, "a.in.", mdns.TypeA)
	wantA(t, other.next(), 1)
	if n := out.count("Accepting TCP connections failed"); n != 1 {
		t.Errorf("the error was logged %d times, want 1", n)
	}
}

// TestAcceptLoopAllocations: a connection with one query allocates its conn, two
// channels, and at most one object more, since a garbage collection empties the
// pools.
func TestAcceptLoopAllocations(t *testing.T) {
	s := serve(t, "127.0.0.1", Options{Readers: 1})
	to := unix.SockaddrInet4{Port: int(s.Addr().Port()), Addr: [4]byte{127, 0, 0, 1}}
	packet := framed(pack(t, newQuery("a.in.", mdns.TypeA)))
	reply := make([]byte, 512)
	once := func() {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		if err := unix.Connect(fd, &to); err != nil {
			t.Fatal(err)
		}
		if _, err := unix.Write(fd, packet); err != nil {
			t.Fatal(err)
		}
		if n, err := unix.Read(fd, reply); n < 14 || int(binary.BigEndian.Uint16(reply)) != n-2 {
			t.Fatalf("got %d bytes, %v; want one reply behind its length", n, err)
		}
	}
	if n := testing.AllocsPerRun(500, once); n > 4 {
		t.Errorf("a connection allocates %v times, want at most 4", n)
	}
}
