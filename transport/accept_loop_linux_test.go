package transport

import (
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
)

// attended counts the connections that have a goroutine.
func (s *server) attended() (n int) {
	for _, c := range s.conns.list() {
		c.mu.Lock()
		if c.tcp != nil {
			n++
		}
		c.mu.Unlock()
	}
	return n
}

// TestDesk: connections that wait at the desk have no goroutine, and those that
// come often get one.
func TestDesk(t *testing.T) {
	s := serve(t, "127.0.0.1", Options{})
	const n = 50
	ask(t, "tcp", s.at("127.0.0.1"), question("a.in.", mdns.TypeA)) // the desk has begun
	eventually(t, "it is forgotten", func() bool { return len(s.conns.list()) == 0 })
	before := runtime.NumGoroutine()
	var clients []tcpClient
	for range n {
		c := dialTCP(t, s, "127.0.0.1")
		clients = append(clients, c)
		for id := range uint16(maxReads - 1) {
			c.ask(id, "a.in.", mdns.TypeA)
			wantA(t, c.next(), 1)
		}
	}
	if now := runtime.NumGoroutine(); now > before || s.attended() > 0 || len(s.conns.list()) != n {
		t.Errorf("%d connections, %d attended, %d goroutines more", len(s.conns.list()), s.attended(), now-before)
	}
	for round := range 3 {
		for _, c := range clients {
			c.ask(7, "a.in.", mdns.TypeA)
			wantA(t, c.next(), 1)
		}
		eventually(t, "they are attended", func() bool { return s.attended() == n })
		if now := runtime.NumGoroutine(); now != before+n {
			t.Errorf("round %d: %d goroutines more, want %d", round, now-before, n)
		}
	}
}

// TestDeskCrowd: connections that were there before anybody could accept them
// are all answered, and the desk does not have them all.
func TestDeskCrowd(t *testing.T) {
	l, err := Listen(t.Context(), netip.MustParseAddrPort("127.0.0.1:0"), Options{MaxConns: 2 * maxAccepted, Grace: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Stop()
	s := &server{Listener: l, t: t, wait: new(waiting), seen: new(observing)}
	l.Port().Swap(s.mux(1))
	const n = 2*maxAccepted - 4
	var clients []tcpClient
	for i := range n + 2 {
		c := dialTCP(t, s, "127.0.0.1")
		switch i {
		case 3:
			c.Close()
		case 5:
			_ = c.SetLinger(0)
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
	if k := s.attended(); k < n-maxAccepted || k == n {
		t.Errorf("%d of %d are attended", k, n)
	}
	eventually(t, "the closed ones are forgotten", func() bool { return len(s.conns.list()) == n })
}

// TestDeskOptions: what package net sets on each connection is inherited.
func TestDeskOptions(t *testing.T) {
	s := serve(t, "127.0.0.1", Options{})
	c := dialTCP(t, s, "127.0.0.1")
	c.ask(1, "a.in.", mdns.TypeA)
	c.next()
	fd := s.conns.list()[0].loop.fd
	if on, err := unix.GetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY); on == 0 || err != nil {
		t.Error("TCP_NODELAY:", on, err)
	}
	if size, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF); size != 2*connBuffer || err != nil {
		t.Error("SO_RCVBUF:", size, err)
	}
	if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0); flags&unix.O_NONBLOCK == 0 || err != nil {
		t.Error("it blocks:", err)
	}
	if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); flags&unix.FD_CLOEXEC == 0 || err != nil {
		t.Error("children get it:", err)
	}
}

// TestDeskFull: what a client does not take at once is written by a goroutine,
// without a gap and without a repetition.
func TestDeskFull(t *testing.T) {
	s := serve(t, "127.0.0.1", Options{})
	d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		return with(c, func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 4096) })
	}}
	small, err := d.Dial("tcp", s.at("127.0.0.1"))
	if err != nil {
		t.Fatal(err)
	}
	defer small.Close()
	_ = small.SetDeadline(time.Now().Add(patience))
	c := tcpClient{small.(*net.TCPConn), t}
	for id := range uint16(2) { // one alone would fit into the socket's buffer
		c.ask(id, "570.in.", mdns.TypeTXT)
		eventually(t, "it is answered", func() bool { return s.seen.n.Load() == int64(id+1) })
	}
	eventually(t, "it is attended", func() bool { return s.attended() == 1 })
	for id := range uint16(2) {
		if m := c.next(); m.Id != id || len(m.Answer) != 570 {
			t.Fatalf("reply %d with %d answers, want %d", m.Id, len(m.Answer), id)
		}
	}
}

// hanging ends the client's connection before it answers.
type hanging struct{ up func() }

func (h hanging) ServeDNS(q *dns.Query) dns.Verdict {
	h.up()
	return inline(1).ServeDNS(q)
}

// TestDeskGone: a client that has gone when its reply is sent leaves nothing
// behind, whether it has a query parked or not.
func TestDeskGone(t *testing.T) {
	s := serve(t, "127.0.0.1", Options{})
	clients := make(chan tcpClient, 1)
	mux, chain := s.mux(1), &dns.Chain{Zone: "hang."}
	chain.Add("test", hanging{func() {
		c := <-clients
		_ = c.SetLinger(0)
		c.Close()
	}})
	if err := mux.Route("\x04hang\x00", chain); err != nil {
		t.Fatal(err)
	}
	s.Port().Swap(mux)
	hang := framed(pack(t, question("a.hang.", mdns.TypeA)))
	for i, packet := range [][]byte{hang, append(framed(pack(t, question("a.wait.", mdns.TypeA))), hang...)} {
		c := dialTCP(t, s, "127.0.0.1")
		if _, err := c.Write(packet); err != nil {
			t.Fatal(err)
		}
		clients <- c
		eventually(t, "it is counted", func() bool { return s.count(`seamark_transport_send_errors_total{proto="tcp"}`) == i+1 })
	}
	eventually(t, "one is parked", func() bool { return s.wait.arrived.Load() == 1 })
	close(s.wait.gate)
	eventually(t, "they are forgotten", func() bool { return len(s.conns.list()) == 0 && s.lot.Parked() == 0 })
}

// lingering takes longer to answer than the desk works without a pause, and
// waits before that until it may.
type lingering struct{ begun, gate chan struct{} }

func (h lingering) ServeDNS(q *dns.Query) dns.Verdict {
	h.begun <- struct{}{}
	<-h.gate
	time.Sleep(2 * maxBusyTCP)
	return inline(1).ServeDNS(q)
}

// TestDeskEnd: the end of a connection is seen that came together with a query,
// while the desk had much to do.
func TestDeskEnd(t *testing.T) {
	s := serve(t, "127.0.0.1", Options{Limits: Limits{IdleTimeout: time.Hour}})
	h := lingering{make(chan struct{}, 2), make(chan struct{})}
	mux, chain := s.mux(1), &dns.Chain{Zone: "linger."}
	chain.Add("test", h)
	if err := mux.Route("\x06linger\x00", chain); err != nil {
		t.Fatal(err)
	}
	s.Port().Swap(mux)
	busy, c := dialTCP(t, s, "127.0.0.1"), dialTCP(t, s, "127.0.0.1")
	for _, c := range []tcpClient{busy, c} { // and then the desk waits for both
		c.ask(1, "a.in.", mdns.TypeA)
		wantA(t, c.next(), 1)
	}
	busy.ask(2, "a.linger.", mdns.TypeA)
	<-h.begun
	c.ask(2, "a.linger.", mdns.TypeA)
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(20 * time.Millisecond) // the netpoller has told of both
	close(h.gate)
	wantA(t, busy.next(), 1)
	wantA(t, c.next(), 1)
	c.closed()
}

// TestDeskEvicts: a connection at the desk makes room for another, and an
// attended one too.
func TestDeskEvicts(t *testing.T) {
	for _, queries := range []int{1, maxReads} {
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
			all[0].closed()
			for _, c := range all[1:] {
				c.ask(2, "a.in.", mdns.TypeA)
				wantA(t, c.next(), 1)
			}
		})
	}
}

// TestDeskAcceptErrors: without descriptors the desk goes on to answer, and
// accepts again when there are some.
func TestDeskAcceptErrors(t *testing.T) {
	out := new(logged)
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
	d := net.Dialer{Control: func(_, _ string, _ syscall.RawConn) error { // it has its descriptor by now
		return unix.Setrlimit(unix.RLIMIT_NOFILE, &none)
	}}
	late, err := d.Dial("tcp", s.at("127.0.0.1"))
	if err != nil {
		t.Fatal(err)
	}
	defer late.Close()
	_ = late.SetDeadline(time.Now().Add(patience))
	eventually(t, "it is said", func() bool { return out.count("accepting tcp connections failed") == 1 })
	c.ask(2, "a.in.", mdns.TypeA)
	wantA(t, c.next(), 1)
	restore()
	other := tcpClient{late.(*net.TCPConn), t}
	other.ask(1, "a.in.", mdns.TypeA)
	wantA(t, other.next(), 1)
	if out.count("accepting tcp connections failed") != 1 {
		t.Error("it is said more than once")
	}
}

// TestDeskAllocations: a connection with one query costs its conn and what the
// conn cannot be without (two channels). The collector empties pools, so there is
// room for one more.
func TestDeskAllocations(t *testing.T) {
	s := serve(t, "127.0.0.1", Options{Readers: 1})
	to := unix.SockaddrInet4{Port: int(s.Addr().Port()), Addr: [4]byte{127, 0, 0, 1}}
	packet := framed(pack(t, question("a.in.", mdns.TypeA)))
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
			t.Fatal(n, err)
		}
	}
	if n := testing.AllocsPerRun(500, once); n > 4 {
		t.Errorf("%v allocations for a connection", n)
	}
}
