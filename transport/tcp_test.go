package transport

import (
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/test/chaintest"
)

// A tcpClient is one TCP connection of a client.
type tcpClient struct {
	clientConn
	tcp *net.TCPConn
	t   *testing.T
}

// A clientConn is a *net.TCPConn, or a *tls.Conn below TestTLS.
type clientConn interface {
	net.Conn
	CloseWrite() error
}

func newTCPClient(t *testing.T, c net.Conn) tcpClient {
	if withTLS(t) {
		return tcpClient{tls.Client(c, clientTLS()), c.(*net.TCPConn), t}
	}
	return tcpClient{c.(*net.TCPConn), c.(*net.TCPConn), t}
}

func dialTCP(t *testing.T, s *server, ip string) tcpClient {
	t.Helper()
	c := newTCPClient(t, dial(t, "tcp", s.at(ip)))
	if c, ok := c.clientConn.(*tls.Conn); ok {
		_ = c.Handshake() // fails if the server refuses the connection
	}
	return c
}

// framed returns a message behind its length.
func framed(packet []byte) []byte {
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(packet))), packet...)
}

func (c tcpClient) ask(id uint16, name string, qtype uint16) {
	c.t.Helper()
	m := newQuery(name, qtype)
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
		c.t.Fatalf("reading a reply: %v", err)
	}
	packet := make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(c, packet); err != nil {
		c.t.Fatalf("reading a reply of %d bytes: %v", len(packet), err)
	}
	m := new(mdns.Msg)
	if err := m.Unpack(packet); err != nil {
		c.t.Fatal(err)
	}
	return m
}

// expectClosed waits until the server closes the connection. It is an error if data
// arrives before that.
func (c tcpClient) expectClosed() {
	c.t.Helper()
	n, err := c.Read(make([]byte, 100))
	if e, ok := err.(net.Error); n > 0 || err == nil || ok && e.Timeout() {
		c.t.Errorf("got %d bytes and error %v, want the end of the connection", n, err)
	}
}

func TestTCP(t *testing.T) {
	for _, tc := range []struct{ bind, ask string }{
		{"127.0.0.1", "127.0.0.1"}, {"::1", "::1"}, {"0.0.0.0", "127.0.0.2"}, {"::", "127.0.0.2"}, {"::", "::1"},
	} {
		t.Run(tc.bind+" "+tc.ask, func(t *testing.T) {
			requireAddress(t, tc.ask)
			s := serve(t, tc.bind, Options{})
			close(s.wait.gate)
			at := s.at(tc.ask)
			wantA(t, ask(t, "tcp", at, newQuery("a.in.", mdns.TypeA)), 1)
			wantA(t, ask(t, "tcp", at, newQuery("a.wait.", mdns.TypeA)), 2)
			wantA(t, ask(t, "tcp", at, newQuery("o.in.", mdns.TypeA)), 1)
			if r := ask(t, "tcp", at, newQuery("a.panic.", mdns.TypeA)); r.Rcode != mdns.RcodeServerFailure {
				t.Errorf("a.panic.: got %v, want SERVFAIL", r)
			}
			if r := ask(t, "tcp", at, newQuery("a.elsewhere.", mdns.TypeA)); r.Rcode != mdns.RcodeRefused {
				t.Errorf("a.elsewhere.: got %v, want REFUSED", r)
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
		if r := ask(t, "tcp", s.at("127.0.0.1"), newQuery(tc.name, mdns.TypeTXT)); len(r.Answer) != tc.answers || r.Truncated != tc.truncated {
			t.Errorf("%s: got %d records, TC %v; want %d, %v", tc.name, len(r.Answer), r.Truncated, tc.answers, tc.truncated)
		}
	}
	m := newQuery("a.in.", mdns.TypeA)
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
	// Parked queries free their places when their replies are sent.
	close(s.wait.gate)
	m.Question[0].Name = "a.wait."
	for range maxLarge + 3 {
		if _, err := c.Write(framed(pack(t, m))); err != nil {
			t.Fatal(err)
		}
		wantA(t, c.next(), 2)
	}
	chaintest.Eventually(t, "the places of large messages are free", func() bool { return s.large.Used() == 0 })
}

// TestTCPPipelined sends many queries at once, and then one query byte by byte.
func TestTCPPipelined(t *testing.T) {
	s := serve(t, "127.0.0.1", Options{})
	c := dialTCP(t, s, "127.0.0.1")
	const n = 500
	var all []byte
	for i := range n {
		m := newQuery(strings.Repeat("x", 1+i%63)+".in.", mdns.TypeA)
		m.Id = uint16(i)
		all = append(all, framed(pack(t, m))...)
	}
	go func() { _, _ = c.Write(all) }()
	for i := range n {
		if m := c.next(); int(m.Id) != i {
			t.Fatalf("reply %d is to query %d, want the order of the queries", i, m.Id)
		}
	}
	for _, b := range all[:200] {
		if _, err := c.Write([]byte{b}); err != nil {
			t.Fatal(err)
		}
	}
	if m := c.next(); m.Id != 0 {
		t.Errorf("byte by byte: got %v, want the reply to query 0", m)
	}
}

// TestTCPOutOfOrder: a parked query does not delay later ones, and is answered
// after its client has shut down its sending side.
func TestTCPOutOfOrder(t *testing.T) {
	s := serve(t, "127.0.0.1", Options{})
	c := dialTCP(t, s, "127.0.0.1")
	c.ask(1, "a.wait.", mdns.TypeA)
	c.ask(2, "a.drop.", mdns.TypeA)
	c.ask(3, "a.in.", mdns.TypeA)
	c.ask(4, "b.wait.", mdns.TypeA)
	c.ask(5, "a.panic.", mdns.TypeA)
	if m := c.next(); m.Id != 3 {
		t.Errorf("got %v, want the reply to query 3", m)
	}
	if m := c.next(); m.Id != 5 || m.Rcode != mdns.RcodeServerFailure {
		t.Errorf("got %v, want SERVFAIL for query 5", m)
	}
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	close(s.wait.gate)
	if a, b := c.next(), c.next(); a.Id+b.Id != 5 || a.Id*b.Id != 4 {
		t.Errorf("got the replies to queries %d and %d, want 1 and 4", a.Id, b.Id)
	}
	c.expectClosed()
	chaintest.Eventually(t, "all queries are observed", func() bool { return s.seen.n.Load() == 5 })
}

// TestTCPHalfClosed: a client that shuts down its sending side gets its answer,
// even if the server sees that before it has read the query.
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
			t.Errorf("%s: got %v, want the reply to query 7", name, m)
		}
		c.expectClosed()
	}
	chaintest.Eventually(t, "the connections are removed", func() bool { return len(s.conns.list()) == 0 })
}

func TestTCPAddresses(t *testing.T) {
	for _, tc := range []struct{ bind, ask string }{{"127.0.0.1", "127.0.0.1"}, {"0.0.0.0", "127.0.0.2"}, {"::", "127.0.0.2"}, {"::", "::1"}} {
		t.Run(tc.bind+" "+tc.ask, func(t *testing.T) {
			requireAddress(t, tc.ask)
			s := serve(t, tc.bind, Options{})
			c := dialTCP(t, s, tc.ask)
			c.ask(1, "a.in.", mdns.TypeA)
			c.next()
			have := s.conns.list()[0]
			if peer, local := AddrPort(c.LocalAddr()), AddrPort(c.RemoteAddr()); have.peer != peer || have.local != local {
				t.Errorf("got peer %v and local address %v, want %v and %v", have.peer, have.local, peer, local)
			}
		})
	}
}

// TestTCPGarbage: a message that is not a query ends the connection after the
// queries before it are answered.
func TestTCPGarbage(t *testing.T) {
	s := serve(t, "127.0.0.1", Options{})
	reply := pack(t, newQuery("a.in.", mdns.TypeA))
	reply[2] |= 0x80
	for _, garbage := range [][]byte{{0, 0}, {0, 1, 7}, framed(reply), framed(make([]byte, 11)), framed(append(reply, make([]byte, 40000)...))} {
		c := dialTCP(t, s, "127.0.0.1")
		c.ask(1, "a.wait.", mdns.TypeA)
		c.ask(2, "a.in.", mdns.TypeA)
		if _, err := c.Write(garbage); err != nil {
			t.Fatal(err)
		}
		c.ask(3, "a.in.", mdns.TypeA)
		if m := c.next(); m.Id != 2 {
			t.Errorf("message %x: got %v, want the reply to query 2", garbage[:min(20, len(garbage))], m)
		}
		s.wait.gate <- struct{}{}
		if m := c.next(); m.Id != 1 {
			t.Errorf("message %x: got %v, want the reply to query 1", garbage[:min(20, len(garbage))], m)
		}
		c.expectClosed()
	}
	if n := s.count(`seamark_transport_unreadable_total{proto="tcp"}`); n != 5 {
		t.Errorf("%d unreadable messages are counted, want 5", n)
	}
	// A malformed message with a header and a question is answered, and the
	// connection stays open.
	c := dialTCP(t, s, "127.0.0.1")
	m := newQuery("a.in.", mdns.TypeA)
	m.Extra = []mdns.RR{&mdns.OPT{Hdr: mdns.RR_Header{Name: ".", Rrtype: mdns.TypeOPT}}}
	packet := pack(t, m)
	for _, cut := range []int{1, 5} {
		if _, err := c.Write(framed(packet[:len(packet)-cut])); err != nil {
			t.Fatal(err)
		}
		if r := c.next(); r.Rcode != mdns.RcodeFormatError {
			t.Errorf("last %d bytes missing: got %v, want FORMERR", cut, r)
		}
	}
	c.ask(1, "a.in.", mdns.TypeA)
	wantA(t, c.next(), 1)
}

func TestTCPHostile(t *testing.T) {
	s := serve(t, "127.0.0.1", Options{Limits: Limits{MessageTimeout: time.Second}, MaxConnsPerClient: 1000})
	var c tcpClient
	n := 0
	sendMalformed(t, 3000, func(p []byte) {
		if n++; n%10 == 1 {
			if c.tcp != nil {
				c.Close()
			}
			c = dialTCP(t, s, "127.0.0.1")
		}
		if n%3 > 0 {
			p = framed(p)
		}
		_, _ = c.Write(p) // fails if the connection is closed by now
	})
	wantA(t, ask(t, "tcp", s.at("127.0.0.1"), newQuery("a.in.", mdns.TypeA)), 1)
	if s.panics.Load() > 0 {
		t.Errorf("%d handlers panicked, want 0", s.panics.Load())
	}
	c.Close()
	chaintest.Eventually(t, "all connections end", func() bool { return len(s.conns.list()) == 0 })
	if s.large.Used() != 0 || s.queued.Load() != 0 {
		t.Errorf("%d large messages and %d bytes are counted after the end, want 0", s.large.Used(), s.queued.Load())
	}
}

// TestTCPStop: Stop waits for the reply of a parked query until the grace period
// ends, and then cuts the connection.
func TestTCPStop(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	s := serve(t, "127.0.0.1", Options{Grace: patience})
	c, idle := dialTCP(t, s, "127.0.0.1"), dialTCP(t, s, "127.0.0.1")
	c.ask(1, "a.wait.", mdns.TypeA)
	idle.ask(1, "a.in.", mdns.TypeA)
	idle.next()
	chaintest.Eventually(t, "the query is parked", func() bool { return s.wait.arrived.Load() == 1 })
	go func() {
		idle.expectClosed() // Stop closes idle connections at once.
		close(s.wait.gate)
	}()
	s.Stop()
	if m := c.next(); m.Id != 1 {
		t.Errorf("got %v, want the reply to query 1", m)
	}
	c.expectClosed()

	s = serve(t, "127.0.0.1", Options{Grace: 20 * time.Millisecond})
	c = dialTCP(t, s, "127.0.0.1")
	c.ask(1, "a.wait.", mdns.TypeA)
	chaintest.Eventually(t, "the query is parked", func() bool { return s.wait.arrived.Load() == 1 })
	s.Stop()
	c.expectClosed()
	close(s.wait.gate)
	chaintest.Eventually(t, "the query is not parked any more", func() bool { return s.lot.Parked() == 0 })
}

// TestTCPStopFirstQuery: a client that has connected when the listener stops may
// still send its query; one that sends none within lastQuery is disconnected.
func TestTCPStopFirstQuery(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	s := serve(t, "127.0.0.1", Options{Grace: patience})
	dialTCP(t, s, "127.0.0.1")
	s.Stop()

	s = serve(t, "127.0.0.1", Options{Grace: patience})
	s.Listener.lastQuery = patience
	c, silent := dialTCP(t, s, "127.0.0.1"), dialTCP(t, s, "127.0.0.1")
	chaintest.Eventually(t, "the connections are accepted", func() bool { return s.Listener.conns.count() == 2 })
	stopped := make(chan struct{})
	go func() { defer close(stopped); s.Stop() }()
	chaintest.Eventually(t, "both connections read a last query", func() bool { return blocked("(*conn).readLast(") == 2 })
	c.ask(1, "a.in.", mdns.TypeA)
	if m := c.next(); m.Id != 1 {
		t.Errorf("got %v, want the reply to query 1", m)
	}
	c.expectClosed()
	silent.Close()
	<-stopped
}

// A client that sends one query after the other over a connection loses none when the
// listener stops: the connection ends with a reply. An idle connection is closed at once.
func TestTCPStopLastQuery(t *testing.T) {
	s := serve(t, "127.0.0.1", Options{Grace: patience, Limits: Limits{IdleTimeout: 24 * time.Hour, keepGoroutine: time.Hour}})
	s.Listener.lastQuery = patience
	idle := dialTCP(t, s, "127.0.0.1")
	idle.ask(1, "a.in.", mdns.TypeA)
	idle.next()
	// In the accept loop, or on a goroutine that a TLS handshake has needed.
	chaintest.Eventually(t, "the connection reads again after its reply", func() bool {
		return s.withGoroutine() == 0 || blocked("(*conn).read(") == 1
	})
	s.conns.list()[0].lastActive.Add(-int64(2 * time.Hour))
	busy := dialTCP(t, s, "127.0.0.1")
	ask := func() {
		busy.ask(1, "a.in.", mdns.TypeA)
		wantA(t, busy.next(), 1)
	}
	ask()
	stopped := make(chan struct{})
	go func() { defer close(stopped); s.Stop() }()
	chaintest.Eventually(t, "the listener stops", s.Listener.isStopping)
	idle.expectClosed()
	ask()
	busy.expectClosed()
	busy.Close()
	<-stopped
}

// A query that arrives when the listener stops, before that has woken the connection, is the last one, too: the
// connection ends with the reply.
func TestTCPStopBeforeWake(t *testing.T) {
	s := serve(t, "127.0.0.1", Options{Grace: patience, Portable: true})
	s.Listener.lastQuery = 2 * patience
	c := dialTCP(t, s, "127.0.0.1")
	ask := func() {
		c.ask(1, "a.in.", mdns.TypeA)
		wantA(t, c.next(), 1)
	}
	ask()

	s.Listener.accepting.Add(1) // Stop wakes the connections after it
	stopped := make(chan struct{})
	go func() { defer close(stopped); s.Stop() }()
	chaintest.Eventually(t, "the listener stops", s.Listener.isStopping)
	ask()
	c.expectClosed()
	s.Listener.accepting.Done()
	c.Close()
	<-stopped
}

// TestTCPStopLoad: while the listener stops, each query that was read is
// answered, and the client receives the reply.
func TestTCPStopLoad(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	s := serve(t, "127.0.0.1", Options{Grace: patience})
	got := make(chan int)
	const clients = 4
	for range clients {
		c := dialTCP(t, s, "127.0.0.1")
		packet := framed(pack(t, newQuery("a.in.", mdns.TypeA)))
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
	chaintest.Eventually(t, "1,000 queries are answered", func() bool { return s.seen.n.Load() > 1000 })
	s.Stop()
	total := 0
	for range clients {
		total += <-got
	}
	if int64(total) != s.seen.n.Load() {
		t.Errorf("clients received %d replies, want %d, one for each query", total, s.seen.n.Load())
	}
}
