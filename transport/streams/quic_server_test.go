package streams

import (
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
const patience = 30 * time.Second

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

// quic-go gets the socket of the system with the methods by which it reads and writes many packets at once.
func TestQUICSocketHasBatches(t *testing.T) {
	s := serve(t, Options{})
	if _, ok := s.packets().(quic.OOBCapablePacketConn); !ok {
		t.Errorf("got a socket of type %T, want one with ReadMsgUDP and WriteMsgUDP", s.packets())
	}
	if _, ok := s.socket.(*net.UDPConn); !ok {
		t.Errorf("got a socket of type %T, want *net.UDPConn", s.socket)
	}
}
