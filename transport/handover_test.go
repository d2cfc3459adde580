//go:build unix

package transport

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/test/chaintest"
)

// serveSockets starts a server with the sockets of another one.
func serveSockets(t *testing.T, from *server, o Options) *server {
	t.Helper()
	files, err := from.Files()
	if err != nil {
		t.Fatal(err)
	}
	o.Inherited = new(Inherited)
	if err := o.Inherited.Add(false, files...); err != nil {
		t.Fatal(err)
	}
	return serve(t, from.Addr().String(), o)
}

// copyFile returns a copy of a descriptor, as another process receives it.
func copyFile(t *testing.T, f *os.File) *os.File {
	t.Helper()
	raw, err := f.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	fd := -1
	if err := raw.Control(func(original uintptr) { fd, err = syscall.Dup(int(original)) }); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fd), "tcp")
}

// Connections continue in the other process: idle ones, one with a part of a query, and
// one with a parked query after its reply.
func TestHandOver(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	before := serve(t, "127.0.0.1", Options{Grace: patience})
	idle, partial, parked := dialTCP(t, before, "127.0.0.1"), dialTCP(t, before, "127.0.0.1"), dialTCP(t, before, "127.0.0.1")
	for _, c := range []tcpClient{idle, partial, parked} {
		c.ask(1, "a.in.", mdns.TypeA)
		wantA(t, c.next(), 1)
	}
	query := framed(pack(t, newQuery("a.in.", mdns.TypeA)))
	if _, err := partial.Write(query[:7]); err != nil {
		t.Fatal(err)
	}
	parked.ask(2, "a.wait.", mdns.TypeA)
	chaintest.Eventually(t, "the query is parked", func() bool { return before.wait.arrived.Load() == 1 })

	after := serveSockets(t, before, Options{Grace: patience})
	after.Port().Swap(after.mux(3))
	passed := make(chan Conn, 3)
	done := make(chan error)
	go func() {
		done <- before.HandOver(t.Context(), func(c Conn) error {
			c.File = copyFile(t, c.File)
			passed <- c
			return nil
		})
	}()
	unread := 0
	for range 2 {
		c := <-passed
		unread += len(c.Unread)
		if err := after.Adopt(c); err != nil {
			t.Fatal(err)
		}
	}
	if unread != 7 {
		t.Errorf("bytes of incomplete queries: got %d, want 7", unread)
	}
	idle.ask(3, "a.in.", mdns.TypeA)
	wantA(t, idle.next(), 3)
	if _, err := partial.Write(query[7:]); err != nil {
		t.Fatal(err)
	}
	wantA(t, partial.next(), 3)

	select {
	case c := <-passed:
		t.Fatalf("got connection %v while its query is parked, want none", c)
	default:
	}
	parked.ask(4, "a.in.", mdns.TypeA) // This query waits for the other process.
	close(before.wait.gate)
	wantA(t, parked.next(), 2)
	if err := after.Adopt(<-passed); err != nil {
		t.Fatal(err)
	}
	wantA(t, parked.next(), 3)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	before.Stop()
	for _, network := range []string{"udp", "tcp"} {
		wantA(t, ask(t, network, after.at("127.0.0.1"), newQuery("a.in.", mdns.TypeA)), 3)
	}
}

// A connection over the limits of the other process is not adopted.
func TestAdoptOverLimit(t *testing.T) {
	before, after := serve(t, "127.0.0.1", Options{}), serve(t, "127.0.0.1", Options{MaxConnsPerClient: 1})
	open := dialFrom(t, "127.0.0.2", after.at("127.0.0.1"))
	defer open.Close()
	chaintest.Eventually(t, "the connection is accepted", func() bool { return len(after.conns.list()) == 1 })
	defer dialFrom(t, "127.0.0.2", before.at("127.0.0.1")).Close()
	chaintest.Eventually(t, "the other connection is accepted", func() bool { return len(before.conns.list()) == 1 })

	adopted := errors.New("not passed")
	err := before.HandOver(t.Context(), func(c Conn) error {
		c.File = copyFile(t, c.File)
		adopted = after.Adopt(c)
		return nil
	})
	if err != nil || adopted == nil || adopted.Error() != "too many connections" || len(after.conns.list()) != 1 {
		t.Errorf("got errors %v and %v, want that there are too many connections", err, adopted)
	}
}

// A connection that has sent a query counts as one that has asked in the other process, too: it yields
// to new connections after those that have not.
func TestHandOverKeepsWhoHasAsked(t *testing.T) {
	before := serve(t, "127.0.0.1", Options{})
	asking := newTCPClient(t, dialFrom(t, "127.0.0.2", before.at("127.0.0.1")))
	asking.ask(1, "a.in.", mdns.TypeA)
	wantA(t, asking.next(), 1)
	defer dialFrom(t, "127.0.0.3", before.at("127.0.0.1")).Close()
	chaintest.Eventually(t, "the connections are accepted", func() bool { return len(before.conns.list()) == 2 })

	after := serveSockets(t, before, Options{})
	err := before.HandOver(t.Context(), func(c Conn) error {
		c.File = copyFile(t, c.File)
		return after.Adopt(c)
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range after.conns.list() {
		if got, want := c.asked.Load(), c.peer.Addr().String() == "127.0.0.2"; got != want {
			t.Errorf("connection of %s has asked: got %v, want %v", c.peer, got, want)
		}
	}
}

// If the other process fails, the listener continues to serve all connections.
func TestHandOverFailure(t *testing.T) {
	s := serve(t, "127.0.0.1", Options{Grace: patience})
	var clients []tcpClient
	for range 10 {
		c := dialTCP(t, s, "127.0.0.1")
		c.ask(1, "a.in.", mdns.TypeA)
		wantA(t, c.next(), 1)
		clients = append(clients, c)
	}
	sends := 0
	failure := errors.New("the other process has ended")
	err := s.HandOver(t.Context(), func(c Conn) error {
		if sends++; sends > 5 {
			return failure
		}
		return nil
	})
	if err != failure || sends != 6 {
		t.Errorf("HandOver: got %v after %d connections, want %v after 6", err, sends, failure)
	}
	closed := 0
	for _, c := range clients {
		if _, err := c.Write(framed(pack(t, newQuery("a.in.", mdns.TypeA)))); err != nil {
			closed++
			continue
		}
		if _, err := c.Read(make([]byte, 100)); err != nil {
			closed++
		}
	}
	if closed != 5 {
		t.Errorf("closed connections: got %d, want the 5 that were passed", closed)
	}
	wantA(t, ask(t, "tcp", s.at("127.0.0.1"), newQuery("a.in.", mdns.TypeA)), 1)
	wantA(t, ask(t, "udp", s.at("127.0.0.1"), newQuery("a.in.", mdns.TypeA)), 1)
}

// A parked query is answered after its listener has stopped reading a socket that
// another process has open.
func TestStopSharedParked(t *testing.T) {
	withEachReader(t, func(t *testing.T, o Options) {
		opener, err := Listen(t.Context(), netip.MustParseAddrPort("127.0.0.1:0"), Options{Readers: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer opener.Stop()
		files, err := opener.Files()
		if err != nil {
			t.Fatal(err)
		}
		o.Inherited = new(Inherited)
		if err := o.Inherited.Add(true, files...); err != nil {
			t.Fatal(err)
		}
		o.Grace = patience
		udp := opener.udp[0]
		s := serve(t, udp.LocalAddr().String(), o)
		c := dial(t, "udp", udp.LocalAddr().String())
		if _, err := c.Write(pack(t, newQuery("a.wait.", mdns.TypeA))); err != nil {
			t.Fatal(err)
		}
		chaintest.Eventually(t, "the query is parked", func() bool { return s.wait.arrived.Load() == 1 })
		stopped := make(chan struct{})
		go func() { defer close(stopped); s.Stop() }()
		chaintest.Eventually(t, "UDP is not read any more", s.isUDPStopping)
		s.readers.Wait()
		if _, err := c.Write(pack(t, newQuery("a.in.", mdns.TypeA))); err != nil {
			t.Fatal(err)
		}
		close(s.wait.gate)
		if _, err := c.Read(make([]byte, 512)); err != nil {
			t.Errorf("reply of the parked query: %v", err)
		}
		<-stopped
		_ = udp.SetReadDeadline(time.Now().Add(patience))
		if n, _, err := udp.ReadFrom(make([]byte, 512)); err != nil || n == 0 {
			t.Errorf("the query after Stop: got %d bytes and error %v, want it left in the socket", n, err)
		}
	})
}

// A connection keeps the client that its proxy has named, and needs no other header.
func TestHandOverProxied(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	proxies := &ProxyOptions{Others: ProxyUse, KeepTLVs: true}
	before := serve(t, "127.0.0.1", Options{Grace: patience})
	before.SetProxies(proxies)
	c := dialTCP(t, before, "127.0.0.1")
	if _, err := c.Write(withTLVs(proxyV2From("192.0.2.7:4711"), "\xea\x00\x02hi")); err != nil {
		t.Fatal(err)
	}
	c.ask(1, "a.in.", mdns.TypeA)
	wantA(t, c.next(), 1)

	after := serveSockets(t, before, Options{Grace: patience})
	after.Port().Swap(after.mux(3))
	after.SetProxies(proxies)
	if err := before.HandOver(t.Context(), func(c Conn) error {
		c.File = copyFile(t, c.File)
		return after.Adopt(c)
	}); err != nil {
		t.Fatal(err)
	}
	c.ask(2, "a.in.", mdns.TypeA)
	wantA(t, c.next(), 3)
	conns := after.conns.list()
	if len(conns) != 1 || conns[0].peer != netip.MustParseAddrPort("192.0.2.7:4711") {
		t.Fatalf("connections of the other process: got %v, want one of 192.0.2.7:4711", conns)
	}
	if got, want := conns[0].tlvs, "\xea\x00\x02hi"; got != want {
		t.Errorf("TLVs of the connection in the other process: got %q, want %q", got, want)
	}
}

// passAll passes the connections of a server to another one, and returns them.
func passAll(t *testing.T, from, to *server) (passed []Conn) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err := from.HandOver(ctx, func(c Conn) error {
		passed = append(passed, c)
		c.File = copyFile(t, c.File)
		return to.Adopt(c)
	})
	if err != nil || ctx.Err() != nil {
		t.Fatalf("HandOver: got error %v, %v; want none", err, ctx.Err())
	}
	return passed
}

// successor returns a server that is to replace another one.
func (s *server) successor(t *testing.T, answer byte) *server {
	t.Helper()
	after := serveSockets(t, s, Options{Grace: patience})
	after.Port().Swap(after.mux(answer))
	after.SetProxies(&ProxyOptions{Others: ProxyUse})
	return after
}

// A connection is passed although its PROXY header is not complete, also several times, and
// the last process reads the rest.
func TestHandOverPartialHeader(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	headers := []string{string(proxyV2From("192.0.2.7:4711")), "PROXY TCP4 192.0.2.7 198.51.100.1 4711 53\r\n"}
	first := serve(t, "127.0.0.1", Options{Grace: patience})
	first.SetProxies(&ProxyOptions{Others: ProxyUse})
	type client struct {
		tcpClient
		rest string
	}
	var clients []client
	for _, h := range headers {
		for _, sent := range []int{0, 1, 10, len(h) - 1} {
			c := client{dialTCP(t, first, "127.0.0.1"), h[sent:]}
			if _, err := c.Write([]byte(h[:sent])); err != nil {
				t.Fatal(err)
			}
			clients = append(clients, c)
		}
	}
	chaintest.Eventually(t, "the connections are accepted", func() bool { return len(first.conns.list()) == len(clients) })
	second := first.successor(t, 2)
	third := second.successor(t, 3)
	for i, passed := range [][]Conn{passAll(t, first, second), passAll(t, second, third)} {
		for _, c := range passed {
			if !c.HeaderPending || c.Client.IsValid() || c.Queries != 0 {
				t.Errorf("process %d passed %+v, want a pending header", i+1, c)
			}
		}
		if len(passed) != len(clients) {
			t.Errorf("process %d passed %d connections, want %d", i+1, len(passed), len(clients))
		}
	}
	for i, c := range clients {
		if _, err := c.Write([]byte(c.rest)); err != nil {
			t.Fatal(err)
		}
		c.ask(uint16(i), "a.in.", mdns.TypeA)
		wantA(t, c.next(), 3)
	}
	for _, c := range third.conns.list() {
		if c.peer != netip.MustParseAddrPort("192.0.2.7:4711") {
			t.Errorf("got a connection of %s, want 192.0.2.7:4711", c.peer)
		}
	}
}

// After a failed hand-over the header is read to its end.
func TestHandOverFailurePartialHeader(t *testing.T) {
	header := proxyV2From("192.0.2.7:4711")
	s := serve(t, "127.0.0.1", Options{Grace: patience})
	s.SetProxies(&ProxyOptions{Others: ProxyUse})
	clients := []tcpClient{dialTCP(t, s, "127.0.0.1"), dialTCP(t, s, "127.0.0.1")}
	for _, c := range clients {
		if _, err := c.Write(header[:7]); err != nil {
			t.Fatal(err)
		}
	}
	chaintest.Eventually(t, "the connections are accepted", func() bool { return len(s.conns.list()) == len(clients) })
	failure := errors.New("the other process has ended")
	for range 3 {
		if err := s.HandOver(t.Context(), func(Conn) error { return failure }); err != failure {
			t.Fatalf("HandOver: got error %v, want %v", err, failure)
		}
	}
	for i, c := range clients {
		if _, err := c.Write(header[7:]); err != nil {
			t.Fatal(err)
		}
		c.ask(uint16(i), "a.in.", mdns.TypeA)
		wantA(t, c.next(), 1)
	}
}

// The client that a proxy has named is passed on by each process.
func TestHandOverProxiedTwice(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	first := serve(t, "127.0.0.1", Options{Grace: patience})
	first.SetProxies(&ProxyOptions{Others: ProxyUse})
	c := dialTCP(t, first, "127.0.0.1")
	if _, err := c.Write(proxyV2From("192.0.2.7:4711")); err != nil {
		t.Fatal(err)
	}
	c.ask(1, "a.in.", mdns.TypeA)
	wantA(t, c.next(), 1)
	second := first.successor(t, 2)
	third := second.successor(t, 3)
	passAll(t, first, second)
	passAll(t, second, third)
	c.ask(2, "a.in.", mdns.TypeA)
	wantA(t, c.next(), 3)
	if conns := third.conns.list(); len(conns) != 1 || conns[0].peer != netip.MustParseAddrPort("192.0.2.7:4711") {
		t.Errorf("connections of the last process: got %v, want one of 192.0.2.7:4711", conns)
	}
}
