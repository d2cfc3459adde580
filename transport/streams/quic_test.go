package streams

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	mdns "github.com/miekg/dns"
	"github.com/quic-go/quic-go"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/transport"
	"github.com/seamark/seamark/wire"
)

// patience is how long a test waits for a condition.
const patience = 10 * time.Second

// inline answers TXT queries with as many strings of 100 bytes as the first label of the name
// is, and one with "x" if it is not a number.
type inline struct{}

func (inline) ServeDNS(q *dns.Query) dns.Verdict {
	n := 1
	_, _ = fmt.Sscan(string(q.Name()[1:1+q.Name()[0]]), &n)
	for range n {
		q.Answer.Buf = wire.AppendRecordHeader(q.Answer.Buf, wire.OwnerIsQuestion, wire.TypeTXT, 5, 101)
		q.Answer.Buf = append(append(q.Answer.Buf, 100), strings.Repeat("x", 100)...)
		q.Answer.Append(wire.Answers, nil, 1)
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
		inline{}.ServeDNS(q)
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// dropping answers no query.
type dropping struct{}

func (dropping) ServeDNS(*dns.Query) dns.Verdict { return dns.Drop }

// server is a listener with the zones in., wait. and drop.
type server struct {
	*QUIC
	t       testing.TB
	wait    *waiting
	counts  *metrics.Registry
	lot     *dns.ParkingLot
	certify atomic.Pointer[tls.Config]
}

// serve starts a server at a free port, or at that of the inherited socket.
func serve(t testing.TB, o Options) *server {
	t.Helper()
	s := listen(t, o)
	s.Serve()
	return s
}

// listen opens a server that does not read its socket yet.
func listen(t testing.TB, o Options) *server {
	t.Helper()
	s := &server{t: t, wait: &waiting{gate: make(chan struct{})}, counts: new(metrics.Registry), lot: dns.NewParkingLot(1000)}
	o.Metrics, o.Name, o.TLS = s.counts, "quic://test", new(transport.TLS)
	s.certify.Store(&tls.Config{Certificates: []tls.Certificate{certificate(t)}})
	o.TLS.Set(s.certify.Load)
	if o.Limits.Streams == 0 {
		o.Limits.Streams = 256
	}
	if o.Limits.Workers == 0 {
		o.Limits.Workers = 1024
	}
	addr := netip.MustParseAddrPort("127.0.0.1:0")
	if o.Inherited != nil {
		addr = o.Inherited.Addresses(false)[0]
	}
	var err error
	if s.QUIC, err = ListenQUIC(t.Context(), addr, o); err != nil {
		t.Fatal(err)
	}
	m := dns.NewMux(s.lot, func(*dns.Query, any) {})
	for zone, h := range map[wire.Name]any{"\x02in\x00": inline{}, "\x04wait\x00": s.wait, "\x04drop\x00": dropping{}} {
		c := &dns.Chain{Zone: zone.String()}
		c.Add("test", h)
		if err := m.Route(zone, c); err != nil {
			t.Fatal(err)
		}
	}
	s.Port().Swap(m)
	t.Cleanup(func() {
		s.Stop()
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		s.lot.Close(ctx)
	})
	return s
}

func certificate(t testing.TB) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func clientTLS() *tls.Config {
	return &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"doq"}, ClientSessionCache: tls.NewLRUClientSessionCache(1)}
}

// A client is a connection to a server.
type client struct {
	*quic.Conn
	t testing.TB
}

func (s *server) dial() client {
	s.t.Helper()
	return s.dialWith(clientTLS())
}

func (s *server) dialWith(config *tls.Config) client {
	s.t.Helper()
	c, err := s.try(config)
	if err != nil {
		s.t.Fatal(err)
	}
	return client{c, s.t}
}

func (s *server) try(config *tls.Config) (*quic.Conn, error) {
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	c, err := quic.DialAddr(ctx, s.Addr().String(), config, nil)
	if err == nil {
		s.t.Cleanup(func() { _ = c.CloseWithError(0, "") })
	}
	return c, err
}

// query returns a query with its length.
func query(t testing.TB, name string) []byte {
	t.Helper()
	m := new(mdns.Msg).SetQuestion(name, mdns.TypeTXT)
	m.Id = 0
	packet, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return framed(nil, packet)
}

// send writes data on a new stream.
func (c client) send(data []byte) *quic.Stream {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	s, err := c.OpenStreamSync(ctx)
	if err == nil {
		_ = s.SetDeadline(time.Now().Add(patience))
		_, err = s.Write(data)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return s
}

// ask sends a query on a stream that it ends.
func (c client) ask(name string) *quic.Stream {
	c.t.Helper()
	s := c.send(query(c.t, name))
	_ = s.Close()
	return s
}

// received is what a client has received on a stream.
type received struct {
	data []byte
	err  error
}

// readAll reads a stream to its end, on another goroutine.
func readAll(s *quic.Stream) <-chan received {
	c := make(chan received, 1)
	go func() {
		all, err := io.ReadAll(s)
		c <- received{all, err}
	}()
	return c
}

// wantReply fails the test unless the reply has n records.
func wantReply(t *testing.T, s *quic.Stream, n int) {
	t.Helper()
	all, err := io.ReadAll(s)
	wantReplyOf(t, received{all, err}, n)
}

func wantReplyOf(t *testing.T, r received, n int) {
	t.Helper()
	all, err := r.data, r.err
	m := new(mdns.Msg)
	if err == nil && (len(all) < 2 || int(binary.BigEndian.Uint16(all)) != len(all)-2) {
		err = fmt.Errorf("got %d bytes, want one message with its length", len(all))
	}
	if err == nil {
		err = m.Unpack(all[2:])
	}
	if err != nil || len(m.Answer) != n {
		t.Fatalf("got %d records, error %v; want %d", len(m.Answer), err, n)
	}
}

// wantReset fails the test unless the server resets the stream with a code.
func wantReset(t *testing.T, s *quic.Stream, code quic.StreamErrorCode) {
	t.Helper()
	all, err := io.ReadAll(s)
	var reset *quic.StreamError
	if !errors.As(err, &reset) || !reset.Remote || reset.ErrorCode != code {
		t.Errorf("got %d bytes, error %v; want a reset with %d", len(all), err, code)
	}
}

// wantClosed waits until the server closes the connection with a code.
func wantClosed(t *testing.T, c *quic.Conn, code closeCode) {
	t.Helper()
	select {
	case <-c.Context().Done():
	case <-time.After(patience):
	}
	var closed *quic.ApplicationError
	if err := context.Cause(c.Context()); !errors.As(err, &closed) || !closed.Remote || closed.ErrorCode != quic.ApplicationErrorCode(code) {
		t.Fatalf("connection: got %v, want that the server closes it with %v", err, code)
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("timed out waiting until %s", what)
		}
	}
}

// count returns the value of a metric.
func (s *server) count(series string) (n int) {
	var text strings.Builder
	_ = s.counts.WriteText(&text)
	for line := range strings.Lines(text.String()) {
		if rest, ok := strings.CutPrefix(line, series+" "); ok {
			_, _ = fmt.Sscan(rest, &n)
		}
	}
	return n
}

// Replies have any size, and are sent when they are ready.
func TestQUICSizesAndOrder(t *testing.T) {
	s := serve(t, Options{})
	c := s.dial()
	parked := c.ask("600.wait.")
	eventually(t, "the query waits", func() bool { return s.wait.arrived.Load() == 1 })
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
	eventually(t, "all replies are counted", func() bool {
		return s.count(`coredns_dns_quic_responses_total{server="quic://test",status="0x0"}`) == 9
	})
}

// A query that is not complete in time is reset, without harm for others; so are queries that
// wait for more of their client when too many do.
func TestQUICIncompleteQueries(t *testing.T) {
	s := serve(t, Options{Options: transport.Options{Limits: transport.Limits{MessageTimeout: 300 * time.Millisecond}}, Limits: Limits{Workers: 4}})
	c := s.dial()
	var slow []*quic.Stream
	for range 4 {
		slow = append(slow, c.send(query(t, "1.in.")[:10]))
	}
	eventually(t, "four streams wait", func() bool { return s.waiting.Load() == 4 })
	wantReset(t, c.send(query(t, "1.in.")[:10]), 4)
	wantReply(t, c.ask("1.in."), 1)
	for _, stream := range slow {
		wantReset(t, stream, 4)
	}
	if n := s.count(`seamark_transport_connections_closed_total{why="slow_sender"}`); n != 4 {
		t.Errorf("slow_sender: got %d, want 4", n)
	}
	wantReply(t, c.send(query(t, "1.in.")), 1)
}

// Clients that reset their streams leave nothing behind.
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
	eventually(t, "no stream is left", func() bool { return s.waiting.Load() == 0 && s.load.queued.Load() == 0 && len(s.load.large) == 0 })
}

// Replies that their client does not read are reset.
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
	eventually(t, "the reply is given up", func() bool {
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
	eventually(t, "the client may connect again", func() bool { return s.sessions.Count() == 2 })
	wantReply(t, s.dial().ask("1.in."), 1)
}

// Without options an address has 500 connections, and a client 100.
func TestQUICConnectionLimitDefaults(t *testing.T) {
	s := listen(t, Options{})
	begin := func(client byte) bool {
		return s.sessions.Begin(t.Context(), &net.UDPAddr{IP: net.IPv4(192, 0, 2, client), Port: 53}) == nil
	}
	for client := range byte(10) {
		accepted := 0
		for range 101 {
			if begin(client) {
				accepted++
			}
		}
		if want := []int{100, 0}[client/5]; accepted != want {
			t.Errorf("client %d: got %d connections, want %d", client, accepted, want)
		}
	}
}

// Handshakes that clients do not complete end, and do not keep others from connecting.
func TestQUICHalfOpen(t *testing.T) {
	s := serve(t, Options{Options: transport.Options{MaxConns: 40, MaxConnsPerClient: 1000, Limits: transport.Limits{MessageTimeout: 200 * time.Millisecond}}})
	before := s.dial()
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
	eventually(t, "clients have to show that they receive packets", s.sessions.NeedsVerification)
	if n := s.sessions.Count(); n > 1+40/4 {
		t.Errorf("got %v connections, want at most 11", n)
	}
	wantReply(t, s.dial().ask("1.in."), 1)
	wantReply(t, before.ask("1.in."), 1)
	eventually(t, "only two connections are left", func() bool { return s.sessions.Count() == 2 })
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
	eventually(t, "a session is resumed", func() bool { return s.dialWith(config).ConnectionState().TLS.DidResume })
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

// A server that stops answers the queries that wait, and closes the connections.
func TestQUICStop(t *testing.T) {
	s := serve(t, Options{})
	idle, busy := s.dial(), s.dial()
	parked := busy.ask("1.wait.")
	eventually(t, "the query waits", func() bool { return s.wait.arrived.Load() == 1 })
	stopped := make(chan struct{})
	go func() { s.Stop(); close(stopped) }()
	wantClosed(t, idle.Conn, doqNoError)
	reply := readAll(parked)
	close(s.wait.gate)
	wantReplyOf(t, <-reply, 1)
	wantClosed(t, busy.Conn, doqNoError)
	<-stopped
}

// Of two processes with the socket only one reads it. The one that stops closes its connections,
// and clients connect to the other one.
func TestQUICHandOver(t *testing.T) {
	old := serve(t, Options{})
	open := old.dial()
	parked := open.ask("1.wait.")
	eventually(t, "the query waits", func() bool { return old.wait.arrived.Load() == 1 })
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
