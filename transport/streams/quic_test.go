package streams

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"testing"
	"time"

	mdns "github.com/miekg/dns"
	"github.com/quic-go/quic-go"

	"github.com/seamark/seamark/sys/memory"
	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/transport"
)

// Replies have any size, and are sent when they are ready.
func TestQUICSizesAndOrder(t *testing.T) {
	s := serve(t, Options{})
	c := s.dial()
	parked := c.ask("600.wait.")
	chaintest.Eventually(t, "the query waits", func() bool { return s.wait.arrived.Load() == 1 })
	for _, n := range []int{0, 1, 12, 13, 100, 570} {
		wantReply(t, c.ask(fmt.Sprintf("%d.in.", n)), n)
	}
	close(s.wait.gate)
	all, err := io.ReadAll(parked)
	if m := new(mdns.Msg); err != nil || m.Unpack(all[2:]) != nil || !m.Truncated || len(m.Answer) < 500 {
		t.Errorf("600 records: got %d bytes, %d records, error %v; want a truncated reply of more than 500", len(all), len(m.Answer), err)
	}
	// The client need not end its stream, and a large query is not special.
	wantReply(t, c.send(query(t, "1.in.")), 1)
	large := new(mdns.Msg).SetQuestion("1.in.", mdns.TypeTXT)
	large.Id = 0
	large.SetEdns0(1232, false)
	large.IsEdns0().Option = append(large.IsEdns0().Option, &mdns.EDNS0_PADDING{Padding: make([]byte, 60000)})
	packet, err := large.Pack()
	if err != nil {
		t.Fatal(err)
	}
	stream := c.send(framed(nil, packet))
	_ = stream.Close()
	wantReply(t, stream, 1)
	chaintest.Eventually(t, "all replies are counted", func() bool {
		return s.count(`coredns_dns_quic_responses_total{server="quic://test",status="0x0"}`) == 9
	})
}

// A query that is not complete in time is reset, without harm for others; so are queries that
// wait for more of their client when too many do.
// See CVE-2026-32934 in docs/reference/advisories.md.
func TestQUICIncompleteQueries(t *testing.T) {
	long := transport.Limits{MessageTimeout: patience}
	s := serve(t, Options{Options: transport.Options{Limits: long}, Limits: Limits{Workers: 8}}) // half of them for one client
	c := s.dial()
	begin := func() (slow []*quic.Stream) {
		for range 4 {
			slow = append(slow, c.send(query(t, "1.in.")[:10]))
		}
		return slow
	}
	slow := begin()
	chaintest.Eventually(t, "four streams wait", func() bool { return s.waiting.Used() == 4 })
	wantReset(t, c.send(query(t, "1.in.")[:10]), 4)
	wantReply(t, c.ask("1.in."), 1)
	for _, stream := range slow {
		stream.CancelWrite(3)
	}
	chaintest.Eventually(t, "no stream waits", func() bool { return s.waiting.Used() == 0 })

	s.SetLimits(transport.Limits{MessageTimeout: 100 * time.Millisecond})
	for _, stream := range begin() {
		wantReset(t, stream, 4)
	}
	s.SetLimits(long)
	if n := s.count(`seamark_transport_connections_closed_total{why="slow_sender"}`); n != 4 {
		t.Errorf("slow_sender: got %d, want 4", n)
	}
	wantReply(t, c.send(query(t, "1.in.")), 1)
}

// Clients that reset their streams leave nothing behind.
// See CVE-2026-41637 and CVE-2026-14586 in docs/reference/advisories.md.
func TestQUICResets(t *testing.T) {
	s := serve(t, Options{Limits: Limits{Streams: 8}})
	c := s.dial()
	for i := range 100 {
		var stream *quic.Stream
		switch i % 4 {
		case 0:
			stream = c.send(query(t, "1.in.")[:5])
		case 1:
			stream = c.send(query(t, "600.in."))
		case 2:
			stream = c.ask("1.wait.")
		default:
			stream = c.send(nil)
		}
		stream.CancelRead(3)
		stream.CancelWrite(3)
	}
	close(s.wait.gate)
	wantReply(t, c.ask("1.in."), 1)
	chaintest.Eventually(t, "no stream is left", func() bool { return s.waiting.Used() == 0 && s.load.large.Used() == 0 })
}

// Replies that their client does not read are reset.
// See CVE-2026-32665 and CVE-2026-55991 in docs/reference/advisories.md.
func TestQUICSlowReader(t *testing.T) {
	s := serve(t, Options{Options: transport.Options{Limits: transport.Limits{WriteTimeout: 100 * time.Millisecond}}})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	conn, err := quic.DialAddr(ctx, s.Addr().String(), clientTLS(), &quic.Config{InitialStreamReceiveWindow: 1000, MaxStreamReceiveWindow: 1000})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.CloseWithError(0, "") }()
	c := client{conn, t}
	stream := c.ask("600.in.")
	chaintest.Eventually(t, "the reply is given up", func() bool {
		return s.count(`seamark_transport_connections_closed_total{why="slow_reader"}`) == 1
	})
	wantReset(t, stream, 4)
	wantReply(t, c.ask("1.in."), 1)
}

// The connection that has been idle longest is closed for one over the limit, but not for a
// client that does not show that it receives packets. Clients have a limit of their own.
func TestQUICConnectionLimits(t *testing.T) {
	s := serve(t, Options{Options: transport.Options{MaxConns: 8}})
	var all []client
	for range 9 {
		c := s.dial()
		wantReply(t, c.ask("1.in."), 1)
		all = append(all, c)
	}
	wantClosed(t, all[0].Conn, doqExcessiveLoad)
	for _, c := range all[1:] {
		wantReply(t, c.ask("1.in."), 1)
	}
	if n := s.count(`seamark_transport_connections_closed_total{why="idlest"}`); n != 1 {
		t.Errorf("idlest: got %d, want 1", n)
	}
}

// max_connections bounds the connections, also when a reload changes it. 0 is no limit.
func TestQUICMaxConnections(t *testing.T) {
	s := serve(t, Options{Limits: Limits{Connections: 2, Streams: 8}})
	idlest := func() int { return s.count(`seamark_transport_connections_closed_total{why="idlest"}`) }
	connect := func(n int) {
		for range n {
			wantReply(t, s.dial().ask("1.in."), 1)
		}
	}

	connect(3)
	if n := idlest(); n != 1 {
		t.Errorf("3 connections at a limit of 2: got %d closed, want 1", n)
	}
	s.SetStreamLimits(Limits{Streams: 8, Workers: 1024})
	connect(20)
	if n := idlest(); n != 1 {
		t.Errorf("20 connections without a limit: got %d closed, want none more", n-1)
	}
	s.SetStreamLimits(Limits{Connections: 22, Streams: 8, Workers: 1024})
	connect(1)
	if n := idlest(); n != 2 {
		t.Errorf("one connection over the changed limit: got %d closed, want 1 more", n-1)
	}
}

// A connection over the limit of its client is refused at once. The client's open connections
// continue, and clients at other addresses connect.
func TestQUICClientConnectionLimit(t *testing.T) {
	s := serve(t, Options{Options: transport.Options{MaxConnsPerClient: 2}})
	open := []client{s.dial(), s.dial()}
	var refused *quic.TransportError
	start := time.Now()
	if _, err := s.try(clientTLS()); !errors.As(err, &refused) || refused.ErrorCode != quic.ConnectionRefused {
		t.Errorf("third connection of a client: got %v after %v, want CONNECTION_REFUSED", err, time.Since(start))
	}
	if n := s.count(`seamark_transport_connections_refused_total{cap="client"}`); n < 1 { // a client's first packets may be two
		t.Errorf("refused connections: got %d, want at least 1", n)
	}
	socket, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 2)})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	other, err := quic.Dial(ctx, socket, net.UDPAddrFromAddrPort(s.Addr()), clientTLS(), nil)
	if err != nil {
		t.Fatalf("client at another address: %v", err)
	}
	defer func() { _ = other.CloseWithError(0, "") }()
	for _, c := range append(open, client{other, t}) {
		wantReply(t, c.ask("1.in."), 1)
	}
	_ = open[0].CloseWithError(0, "")
	chaintest.Eventually(t, "the client may connect again", func() bool { return s.sessions.Count() == 2 })
	wantReply(t, s.dial().ask("1.in."), 1)
}

// An address has as many connections as the limit, and a client 100 of them. At the limit a client
// with fewer replaces one of another, though all have queries.
func TestQUICConnectionLimitOfClients(t *testing.T) {
	s := listen(t, Options{Limits: Limits{Connections: 500}})
	replaced := 0
	begin := func(client byte) bool {
		peer := &net.UDPAddr{IP: net.IPv4(192, 0, 2, client), Port: 53}
		ctx, err := s.sessions.Begin(t.Context(), peer, time.Hour)
		if err == nil {
			s.sessions.Add(ctx, peer, func() { replaced++ }).StartQuery()
		}
		return err == nil
	}
	for client := range byte(5) {
		accepted := 0
		for range 101 {
			if begin(client) {
				accepted++
			}
		}
		if accepted != 100 || replaced != 0 {
			t.Errorf("client %d: got %d connections, and %d replaced, want 100 and none", client, accepted, replaced)
		}
	}
	if !begin(5) || replaced != 1 {
		t.Errorf("a sixth client: %d connections were replaced, want that of a client with 100", replaced)
	}
}

// Handshakes that clients do not complete end, and do not keep others from connecting.
func TestQUICHalfOpen(t *testing.T) {
	s := serve(t, Options{Options: transport.Options{MaxConns: 40, MaxConnsPerClient: 1000}})
	before := s.dial()
	s.SetLimits(transport.Limits{MessageTimeout: 200 * time.Millisecond})
	initial := captureInitial(t)
	for range 500 { // each from an address of its own, so each is a connection
		c, err := net.Dial("udp", s.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, _ = rand.Read(initial[6:14]) // another connection ID makes the packet invalid, but not for the header
		_, _ = c.Write(initial)
	}
	chaintest.Eventually(t, "clients have to show that they receive packets", s.sessions.NeedsVerification)
	if n := s.sessions.Count(); n > 1+40/4 {
		t.Errorf("got %v connections, want at most 11", n)
	}
	s.SetLimits(transport.Limits{})
	wantReply(t, s.dial().ask("1.in."), 1)
	wantReply(t, before.ask("1.in."), 1)
	chaintest.Eventually(t, "only two connections are left", func() bool { return s.sessions.Count() == 2 })
}

// captureInitial returns the first packet of a handshake.
func captureInitial(t *testing.T) []byte {
	t.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithCancel(t.Context())
	dialed := make(chan struct{})
	go func() {
		defer close(dialed)
		_, _ = quic.DialAddr(ctx, c.LocalAddr().String(), clientTLS(), nil)
	}()
	defer func() { cancel(); <-dialed }()
	packet := make([]byte, 2000)
	_ = c.SetReadDeadline(time.Now().Add(patience))
	n, _, err := c.ReadFrom(packet)
	if err != nil {
		t.Fatal(err)
	}
	return packet[:n]
}

// A changed certificate is used for new connections, and sessions of before are resumed. Open
// connections continue.
func TestQUICSetTLS(t *testing.T) {
	s := serve(t, Options{})
	config := clientTLS()
	first := s.dialWith(config)
	wantReply(t, first.ask("1.in."), 1)
	chaintest.Eventually(t, "a session is resumed", func() bool { return s.dialWith(config).ConnectionState().TLS.DidResume })
	changed := &tls.Config{Certificates: []tls.Certificate{certificate(t)}}
	s.SetTLS(func() *tls.Config { return changed })
	wantReply(t, first.ask("1.in."), 1)
	if again := s.dialWith(config); !again.ConnectionState().TLS.DidResume {
		t.Error("after the change a connection did not resume the session")
	}
	if got := s.dial().ConnectionState().TLS.PeerCertificates[0].Raw; !bytes.Equal(got, changed.Certificates[0].Certificate[0]) {
		t.Error("new connection: got the certificate of before")
	}
}

// Of two processes with the socket only one reads it. The one that stops closes its connections,
// and clients connect to the other one.
func TestQUICHandOver(t *testing.T) {
	old := serve(t, Options{})
	open := old.dial()
	parked := open.ask("1.wait.")
	chaintest.Eventually(t, "the query waits", func() bool { return old.wait.arrived.Load() == 1 })
	files, err := old.Files()
	if err != nil {
		t.Fatal(err)
	}
	in := new(transport.Inherited)
	if err := in.Add(false, files...); err != nil {
		t.Fatal(err)
	}
	next := listen(t, Options{Options: transport.Options{Inherited: in}})
	wantReply(t, open.ask("1.in."), 1) // of the old process
	done := make(chan error)
	go func() { done <- old.HandOver(t.Context(), nil) }()
	reply := readAll(parked)
	close(old.wait.gate)
	wantReplyOf(t, <-reply, 1)
	wantClosed(t, open.Conn, doqNoError)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	next.Serve()
	for range 20 {
		wantReply(t, next.dial().ask("1.in."), 1)
	}
	// The hand-over fails: the old process continues.
	if err := next.HandOver(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	old.Resume()
	wantReply(t, old.dial().ask("1.in."), 1)
}

// Nothing is written to standard error.
func TestQUICLog(t *testing.T) {
	var output bytes.Buffer
	log.SetOutput(&output)
	s := serve(t, Options{})
	c := s.dial()
	wantReply(t, c.ask("1.in."), 1)
	if output.Len() > 0 {
		t.Errorf("got %q, want no message", output.String())
	}
	if !c.ConnectionState().GSO {
		t.Log("this kernel has no GSO")
	}
}

// At the end of the memory for connections a new one replaces the one that has been idle longest,
// and another listener gets a few in any case.
func TestQUICConnectionMemory(t *testing.T) {
	b := memory.New(8<<20, memory.FromGroup) // ten connections
	o := Options{Options: transport.Options{Memory: b}}
	s, other := serve(t, o), serve(t, o)
	for range 30 {
		wantReply(t, s.dial().ask("1.in."), 1)
	}
	wantReply(t, other.dial().ask("1.in."), 1)
	if n := s.count(`seamark_transport_connections_closed_total{why="idlest"}`); n < 15 {
		t.Errorf("idlest: got %d of 30, want most", n)
	}

	s.Stop()
	other.Stop()
	if used := b.Part(memory.QUIC).Used; used != 0 {
		t.Errorf("%d bytes reserved after Stop, want 0", used)
	}
}
