package transport

import (
	"encoding/binary"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	mdns "github.com/miekg/dns"
)

// A client is one TCP connection on which the test writes and reads as it
// likes.
type tcpClient struct {
	*net.TCPConn
	t *testing.T
}

func dialTCP(t *testing.T, s *server, ip string) tcpClient {
	t.Helper()
	return tcpClient{dial(t, "tcp", s.at(ip)).(*net.TCPConn), t}
}

// framed is a message with its length in front.
func framed(packet []byte) []byte {
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(packet))), packet...)
}

func (c tcpClient) ask(id uint16, name string, qtype uint16) {
	c.t.Helper()
	m := question(name, qtype)
	m.Id = id
	if _, err := c.Write(framed(pack(c.t, m))); err != nil {
		c.t.Fatal(err)
	}
}

// next reads one reply.
func (c tcpClient) next() *mdns.Msg {
	c.t.Helper()
	var size [2]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		c.t.Fatal("no reply:", err)
	}
	packet := make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(c, packet); err != nil {
		c.t.Fatal("half a reply:", err)
	}
	m := new(mdns.Msg)
	if err := m.Unpack(packet); err != nil {
		c.t.Fatal(err)
	}
	return m
}

// closed waits for the server to close the connection, and wants nothing more
// from it.
func (c tcpClient) closed() {
	c.t.Helper()
	n, err := c.Read(make([]byte, 100))
	if e, ok := err.(net.Error); n > 0 || err == nil || ok && e.Timeout() {
		c.t.Errorf("%d bytes and %v, want the end", n, err)
	}
}

func TestTCP(t *testing.T) {
	for _, tc := range []struct{ bind, ask string }{
		{"127.0.0.1", "127.0.0.1"}, {"::1", "::1"}, {"0.0.0.0", "127.0.0.2"}, {"::", "127.0.0.2"}, {"::", "::1"},
	} {
		t.Run(tc.bind+" "+tc.ask, func(t *testing.T) {
			has(t, tc.ask)
			s := serve(t, tc.bind, Options{})
			close(s.wait.gate)
			at := s.at(tc.ask)
			wantA(t, ask(t, "tcp", at, question("a.in.", mdns.TypeA)), 1)
			wantA(t, ask(t, "tcp", at, question("a.wait.", mdns.TypeA)), 2)
			wantA(t, ask(t, "tcp", at, question("o.in.", mdns.TypeA)), 1)
			if r := ask(t, "tcp", at, question("a.panic.", mdns.TypeA)); r.Rcode != mdns.RcodeServerFailure {
				t.Error(r)
			}
			if r := ask(t, "tcp", at, question("a.elsewhere.", mdns.TypeA)); r.Rcode != mdns.RcodeRefused {
				t.Error(r)
			}
		})
	}
}

func TestTCPSizes(t *testing.T) {
	s := serve(t, "127.0.0.1", Options{})
	for _, tc := range []struct {
		name      string
		answers   int
		truncated bool
	}{{"1.in.", 1, false}, {"500.in.", 500, false}, {"579.in.", 579, false}, {"580.in.", 579, true}, {"3000.in.", 579, true}} {
		if r := ask(t, "tcp", s.at("127.0.0.1"), question(tc.name, mdns.TypeTXT)); len(r.Answer) != tc.answers || r.Truncated != tc.truncated {
			t.Errorf("%s: %d answers, TC %v", tc.name, len(r.Answer), r.Truncated)
		}
	}
	m := question("a.in.", mdns.TypeA)
	m.SetEdns0(1232, false)
	m.IsEdns0().Option = []mdns.EDNS0{&mdns.EDNS0_PADDING{Padding: make([]byte, 65000)}}
	c := dialTCP(t, s, "127.0.0.1")
	for range maxLarge + 3 {
		c.ask(1, "a.in.", mdns.TypeA)
		if _, err := c.Write(framed(pack(t, m))); err != nil {
			t.Fatal(err)
		}
		wantA(t, c.next(), 1)
		wantA(t, c.next(), 1)
	}
	// The same, parked: it makes room when it is sent.
	close(s.wait.gate)
	m.Question[0].Name = "a.wait."
	for range maxLarge + 3 {
		if _, err := c.Write(framed(pack(t, m))); err != nil {
			t.Fatal(err)
		}
		wantA(t, c.next(), 2)
	}
	eventually(t, "large messages are given back", func() bool { return len(s.large) == 0 })
}

// TestTCPPipelined sends many questions at once, byte by byte too.
func TestTCPPipelined(t *testing.T) {
	s := serve(t, "127.0.0.1", Options{})
	c := dialTCP(t, s, "127.0.0.1")
	const n = 500
	var all []byte
	for i := range n {
		m := question(strings.Repeat("x", 1+i%63)+".in.", mdns.TypeA)
		m.Id = uint16(i)
		all = append(all, framed(pack(t, m))...)
	}
	go func() { _, _ = c.Write(all) }()
	for i := range n {
		if m := c.next(); int(m.Id) != i {
			t.Fatalf("reply %d came as %d: inline ones are in order", m.Id, i)
		}
	}
	for _, b := range all[:200] {
		if _, err := c.Write([]byte{b}); err != nil {
			t.Fatal(err)
		}
	}
	if m := c.next(); m.Id != 0 {
		t.Error(m)
	}
}

// TestTCPOutOfOrder: a parked query does not hold up those behind it, and is
// answered when its client has shut down its side.
func TestTCPOutOfOrder(t *testing.T) {
	s := serve(t, "127.0.0.1", Options{})
	c := dialTCP(t, s, "127.0.0.1")
	c.ask(1, "a.wait.", mdns.TypeA)
	c.ask(2, "a.drop.", mdns.TypeA)
	c.ask(3, "a.in.", mdns.TypeA)
	c.ask(4, "b.wait.", mdns.TypeA)
	c.ask(5, "a.panic.", mdns.TypeA)
	if m := c.next(); m.Id != 3 {
		t.Error(m)
	}
	if m := c.next(); m.Id != 5 || m.Rcode != mdns.RcodeServerFailure {
		t.Error(m)
	}
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	close(s.wait.gate)
	if a, b := c.next(), c.next(); a.Id+b.Id != 5 || a.Id*b.Id != 4 {
		t.Errorf("replies to %d and %d, want 1 and 4", a.Id, b.Id)
	}
	c.closed()
	eventually(t, "all are observed", func() bool { return s.seen.n.Load() == 5 })
}

// TestTCPHalfClosed: who has nothing more to say gets its answer, also if that
// was clear before it was read.
func TestTCPHalfClosed(t *testing.T) {
	s := serve(t, "127.0.0.1", Options{})
	close(s.wait.gate)
	for _, name := range []string{"a.in.", "500.in.", "a.wait."} {
		c := dialTCP(t, s, "127.0.0.1")
		c.ask(7, name, mdns.TypeTXT)
		if err := c.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if m := c.next(); m.Id != 7 {
			t.Error(m)
		}
		c.closed()
	}
	eventually(t, "they are forgotten", func() bool { return len(s.conns.list()) == 0 })
}

func TestTCPAddresses(t *testing.T) {
	for _, tc := range []struct{ bind, ask string }{{"127.0.0.1", "127.0.0.1"}, {"0.0.0.0", "127.0.0.2"}, {"::", "127.0.0.2"}, {"::", "::1"}} {
		t.Run(tc.bind+" "+tc.ask, func(t *testing.T) {
			has(t, tc.ask)
			s := serve(t, tc.bind, Options{})
			c := dialTCP(t, s, tc.ask)
			c.ask(1, "a.in.", mdns.TypeA)
			c.next()
			have := s.conns.list()[0]
			if peer, local := addrPort(c.LocalAddr()), addrPort(c.RemoteAddr()); have.peer != peer || have.local != local {
				t.Errorf("%v asked %v, want %v and %v", have.peer, have.local, peer, local)
			}
		})
	}
}

// TestTCPGarbage: what is no query ends the connection, but not before what was
// asked has been answered.
func TestTCPGarbage(t *testing.T) {
	s := serve(t, "127.0.0.1", Options{})
	reply := pack(t, question("a.in.", mdns.TypeA))
	reply[2] |= 0x80
	for _, garbage := range [][]byte{{0, 0}, {0, 1, 7}, framed(reply), framed(make([]byte, 12)), framed(make([]byte, 40000))} {
		c := dialTCP(t, s, "127.0.0.1")
		c.ask(1, "a.wait.", mdns.TypeA)
		c.ask(2, "a.in.", mdns.TypeA)
		if _, err := c.Write(garbage); err != nil {
			t.Fatal(err)
		}
		c.ask(3, "a.in.", mdns.TypeA)
		if m := c.next(); m.Id != 2 {
			t.Error(m)
		}
		s.wait.gate <- struct{}{}
		if m := c.next(); m.Id != 1 {
			t.Error(m)
		}
		c.closed()
	}
	if n := s.count(`seamark_transport_unreadable_total{proto="tcp"}`); n != 5 {
		t.Errorf("%d unreadable", n)
	}
	// What has a header and a question is answered, and the connection lives.
	c := dialTCP(t, s, "127.0.0.1")
	m := question("a.in.", mdns.TypeA)
	m.Extra = []mdns.RR{&mdns.OPT{Hdr: mdns.RR_Header{Name: ".", Rrtype: mdns.TypeOPT}}}
	packet := pack(t, m)
	for _, cut := range []int{1, 5} {
		if _, err := c.Write(framed(packet[:len(packet)-cut])); err != nil {
			t.Fatal(err)
		}
		if r := c.next(); r.Rcode != mdns.RcodeFormatError {
			t.Error(r)
		}
	}
	c.ask(1, "a.in.", mdns.TypeA)
	wantA(t, c.next(), 1)
}

func TestTCPHostile(t *testing.T) {
	s := serve(t, "127.0.0.1", Options{Limits: Limits{MessageTimeout: 50 * time.Millisecond}, MaxConnsPerClient: 1000})
	var c tcpClient
	n := 0
	hostile(t, 3000, func(p []byte) {
		if n++; n%10 == 1 {
			if c.TCPConn != nil {
				c.Close()
			}
			c = dialTCP(t, s, "127.0.0.1")
		}
		if n%3 > 0 {
			p = framed(p)
		}
		_, _ = c.Write(p) // it may have been closed by now
	})
	wantA(t, ask(t, "tcp", s.at("127.0.0.1"), question("a.in.", mdns.TypeA)), 1)
	if s.panics.Load() > 0 {
		t.Error("panics")
	}
	c.Close()
	eventually(t, "all connections end", func() bool { return len(s.conns.list()) == 0 })
	if len(s.large) != 0 || s.queued.Load() != 0 {
		t.Errorf("%d large messages, %d bytes are still counted", len(s.large), s.queued.Load())
	}
}

// TestTCPStop: a parked query has its reply within the grace, and one that takes
// longer is cut.
func TestTCPStop(t *testing.T) {
	s := serve(t, "127.0.0.1", Options{Grace: patience})
	c, idle := dialTCP(t, s, "127.0.0.1"), dialTCP(t, s, "127.0.0.1")
	c.ask(1, "a.wait.", mdns.TypeA)
	idle.ask(1, "a.in.", mdns.TypeA)
	idle.next()
	eventually(t, "it is parked", func() bool { return s.wait.arrived.Load() == 1 })
	go func() {
		idle.closed() // at once
		close(s.wait.gate)
	}()
	s.Stop()
	if m := c.next(); m.Id != 1 {
		t.Error(m)
	}
	c.closed()

	s = serve(t, "127.0.0.1", Options{Grace: 20 * time.Millisecond})
	c = dialTCP(t, s, "127.0.0.1")
	c.ask(1, "a.wait.", mdns.TypeA)
	eventually(t, "it is parked", func() bool { return s.wait.arrived.Load() == 1 })
	s.Stop()
	c.closed()
	close(s.wait.gate)
	eventually(t, "the query is done with", func() bool { return s.lot.Parked() == 0 })
}

// TestTCPStopLoad: every query that was read is answered, and the client gets
// that.
func TestTCPStopLoad(t *testing.T) {
	s := serve(t, "127.0.0.1", Options{Grace: patience})
	got := make(chan int)
	const clients = 4
	for range clients {
		c := dialTCP(t, s, "127.0.0.1")
		packet := framed(pack(t, question("a.in.", mdns.TypeA)))
		go func() {
			for {
				if _, err := c.Write(packet); err != nil {
					return
				}
			}
		}()
		go func() {
			n := 0
			defer func() { got <- n }()
			var size [2]byte
			for {
				if _, err := io.ReadFull(c, size[:]); err != nil {
					return
				}
				if _, err := io.CopyN(io.Discard, c, int64(binary.BigEndian.Uint16(size[:]))); err != nil {
					return
				}
				n++
			}
		}()
	}
	eventually(t, "there is load", func() bool { return s.seen.n.Load() > 1000 })
	s.Stop()
	total := 0
	for range clients {
		total += <-got
	}
	if int64(total) != s.seen.n.Load() {
		t.Errorf("%d queries were answered, %d answers came", s.seen.n.Load(), total)
	}
}
