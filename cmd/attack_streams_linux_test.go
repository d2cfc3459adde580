package cmd_test

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/quic-go/quic-go"

	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/test/freeport"
	"github.com/seamark/seamark/test/memorygroup"
)

// A streamServer is a server of 64 MB with an address for each transport, and own names with small and large answers.
type streamServer struct {
	*testing.T
	process                       *process
	group                         *memorygroup.Group
	tls, https, grpc, doq, https3 string // ports
}

func newStreamServer(t *testing.T, binary string) *streamServer {
	t.Helper()
	dir := t.TempDir()
	s := &streamServer{T: t, group: memorygroup.New(t, 64<<20)}
	for _, port := range []*string{&s.tls, &s.https, &s.grpc, &s.doq, &s.https3} {
		*port = freeport.Reserve(t)
	}
	zone := "$ORIGIN example.\n@ 60 IN SOA ns admin 1 3600 600 86400 60\n@ 60 IN NS ns\nown 60 IN A 192.0.2.1\n"
	for i := range 250 {
		zone += fmt.Sprintf("large 60 IN TXT \"%d%s\"\n", i, strings.Repeat("x", 200))
	}
	write(t, filepath.Join(dir, "zone"), zone)
	writeCertificate(t, dir)
	s.process = startInGroupAt(t, s.group, binary, dir, fmt.Sprintf(
		"example:0 tls://example:%s https://example:%s grpc://example:%s quic://example:%s https3://example:%s {\n"+
			" bind 127.0.0.1\n tls cert.pem key.pem\n file zone\n}\n", s.tls, s.https, s.grpc, s.doq, s.https3))
	return s
}

// ownQuery returns a query for TXT records of a name, with its length.
func ownQuery(name string) []byte {
	m := new(dns.Msg).SetQuestion(name, dns.TypeTXT)
	m.Id = 0
	packet, _ := m.Pack()
	return framed(packet)
}

// frame returns a frame of HTTP/2 (RFC 9113 §4.1).
func frame(kind, flags byte, stream uint32, payload []byte) []byte {
	b := []byte{byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)), kind, flags}
	return append(binary.BigEndian.AppendUint32(b, stream), payload...)
}

// Kinds of frames, and flags.
const (
	frameData, frameHeaders, framePriority, frameReset, frameSettings, framePing, frameWindow, frameContinuation = 0, 1, 2, 3, 4, 6, 8, 9
	endStream, endHeaders                                                                                        = 1, 4
)

// requestHeaders returns the fields of a POST request in HPACK (RFC 7541): indexed ones, and literals.
func requestHeaders(path, contentType string) []byte {
	literal := func(b []byte, name byte, value string) []byte {
		return append(append(b, name, byte(len(value))), value...)
	}
	b := literal([]byte{0x83, 0x87}, 0x04, path)
	b = literal(b, 0x01, "localhost")
	return literal(append(b, 0x0F), 0x10, contentType) // the index 31 has two bytes
}

// An http2Attack is what a client sends over one connection of HTTP/2 after the preface, again and again with the
// next stream.
type http2Attack struct {
	settings []byte
	again    func(stream uint32) []byte
	reads    bool
}

func http2Attacks(path, contentType string, body []byte) map[string]http2Attack {
	headers := func(stream uint32, flags byte) []byte {
		return frame(frameHeaders, flags, stream, requestHeaders(path, contentType))
	}
	request := func(stream uint32) []byte {
		return append(headers(stream, endHeaders), frame(frameData, endStream, stream, body)...)
	}
	reset := func(stream uint32) []byte { return frame(frameReset, 0, stream, []byte{0, 0, 0, 8}) }
	return map[string]http2Attack{
		"rapid reset":            {nil, func(n uint32) []byte { return append(request(n), reset(n)...) }, true},
		"reset by the server":    {nil, func(n uint32) []byte { return append(request(n), frame(frameWindow, 0, n, make([]byte, 4))...) }, true},
		"PING, nothing is read":  {nil, func(uint32) []byte { return frame(framePing, 0, 0, make([]byte, 8)) }, false},
		"SETTINGS, nothing read": {nil, func(uint32) []byte { return frame(frameSettings, 0, 0, nil) }, false},
		"SETTINGS":               {nil, func(n uint32) []byte { return frame(frameSettings, 0, 0, []byte{0, 1, 0, 0, byte(n), 0}) }, true},
		"PRIORITY":               {nil, func(n uint32) []byte { return frame(framePriority, 0, n, make([]byte, 5)) }, true},
		"empty DATA": {nil, func(n uint32) []byte {
			return append(headers(n, endHeaders), strings.Repeat(string(frame(frameData, 0, n, nil)), 1000)...)
		}, true},
		"CONTINUATION without end": {nil, func(n uint32) []byte {
			b := headers(n, 0)
			for range 1000 {
				b = append(b, frame(frameContinuation, 0, n, requestHeaders(path, contentType))...)
			}
			return b
		}, true},
		"no window":          {[]byte{0, 4, 0, 0, 0, 0}, request, true},
		"replies not read":   {[]byte{0, 4, 0x7F, 0xFF, 0xFF, 0xFF}, request, false},
		"a body of one byte": {nil, func(n uint32) []byte { return append(headers(n, endHeaders), frame(frameData, 0, n, body[:1])...) }, true},
	}
}

// run opens connections from an address, one after the other, until ctx ends.
func (a http2Attack) run(ctx context.Context, client, port string, sent *atomic.Int64) {
	dialer := &tls.Dialer{NetDialer: &net.Dialer{Timeout: time.Minute, LocalAddr: &net.TCPAddr{IP: net.ParseIP(client)}},
		Config: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}}
	for ctx.Err() == nil {
		if conn, err := dialer.DialContext(ctx, "tcp", "127.0.0.1:"+port); err == nil {
			a.use(ctx, conn, sent)
		}
		sleep(ctx, 50*time.Millisecond)
	}
}

func (a http2Attack) use(ctx context.Context, conn net.Conn, sent *atomic.Int64) {
	var reading sync.WaitGroup
	defer reading.Wait()
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	_ = conn.SetWriteDeadline(time.Now().Add(10 * time.Second))
	if a.reads {
		reading.Go(func() { _, _ = io.Copy(io.Discard, conn) })
	}
	if _, err := conn.Write(append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), frame(frameSettings, 0, 0, a.settings)...)); err != nil {
		return
	}
	for stream := uint32(1); ; stream += 2 {
		if _, err := conn.Write(a.again(stream)); err != nil {
			return
		}
		sent.Add(1)
	}
}

// A deafSocket is a UDP socket whose packets are not received any more from a moment on.
type deafSocket struct {
	*net.UDPConn
	deaf atomic.Bool
}

func (s *deafSocket) ReadFrom(p []byte) (n int, from net.Addr, err error) {
	for {
		if n, from, err = s.UDPConn.ReadFrom(p); err != nil || !s.deaf.Load() {
			return n, from, err
		}
	}
}

// A packetConn hides the methods by which quic-go would read past ReadFrom.
type packetConn struct{ net.PacketConn }

func (s *streamServer) socket(client string) *deafSocket {
	s.Helper()
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.ParseIP(client)})
	if err != nil {
		s.Fatal(err)
	}
	_ = conn.SetReadBuffer(4 << 20)
	s.Cleanup(func() { conn.Close() })
	return &deafSocket{UDPConn: conn}
}

// silent opens a connection over QUIC, acknowledges as much as it gets so that the server sends more at a time, and
// then nothing more, with large replies on their way.
func (s *streamServer) silent(ctx context.Context, client, port string) (received int64) {
	socket := s.socket(client)
	to, _ := net.ResolveUDPAddr("udp", "127.0.0.1:"+port)
	conn, err := quic.Dial(ctx, packetConn{socket}, to, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"doq"}}, &quic.Config{
		InitialStreamReceiveWindow: 1 << 20, InitialConnectionReceiveWindow: 64 << 20, MaxConnectionReceiveWindow: 64 << 20,
		MaxIdleTimeout: time.Minute,
	})
	if err != nil {
		return 0
	}
	var all sync.WaitGroup
	var n atomic.Int64
	ask := func() {
		stream, err := conn.OpenStreamSync(ctx)
		if err != nil {
			return
		}
		_, _ = stream.Write(ownQuery("large.example."))
		_ = stream.Close()
		got, _ := io.Copy(io.Discard, stream)
		n.Add(got)
	}
	for range 100 {
		all.Go(func() {
			for n.Load() < 40<<20 && ctx.Err() == nil && conn.Context().Err() == nil {
				ask()
			}
		})
	}
	all.Wait()
	socket.deaf.Store(true)
	for range 250 {
		go ask()
	}
	return n.Load()
}

// answered waits until a new client has an answer over each transport: the connections of attackers may end a moment
// later.
func (s *streamServer) answered(when string) {
	s.Helper()
	var last error
	chaintest.Eventually(s.T, when+": an answer over each transport", func() bool { last = s.answers(); return last == nil })
	if last != nil {
		s.Error(last)
	}
}

// answers returns an error unless a new client has an answer over each transport.
func (s *streamServer) answers() error {
	const client = "127.0.0.77"
	secure := &tls.Config{InsecureSkipVerify: true}
	for network, port := range map[string]string{"udp": s.process.ports[0], "tcp": s.process.ports[0], "tcp-tls": s.tls} {
		var local net.Addr = &net.TCPAddr{IP: net.ParseIP(client)}
		if network == "udp" {
			local = &net.UDPAddr{IP: net.ParseIP(client)}
		}
		c := dns.Client{Net: network, Timeout: 30 * time.Second, TLSConfig: secure, Dialer: &net.Dialer{LocalAddr: local, Timeout: 30 * time.Second}}
		m, _, err := c.Exchange(new(dns.Msg).SetQuestion("own.example.", dns.TypeA), "127.0.0.1:"+port)
		if err != nil || len(m.Answer) != 1 {
			return fmt.Errorf("%s: got %v, error %w, want an address", network, m, err)
		}
	}
	h2 := &http.Transport{TLSClientConfig: secure, ForceAttemptHTTP2: true, DialContext: func(_ context.Context, _, address string) (net.Conn, error) { return dialFrom(client, address) }}
	defer h2.CloseIdleConnections()
	if err := exchangeHTTPS(&http.Client{Transport: h2, Timeout: 30 * time.Second}, http.MethodPost, "127.0.0.1:"+s.https, "own.example."); err != nil {
		return err
	}

	to, _ := net.ResolveUDPAddr("udp", "127.0.0.1:"+s.doq)
	ctx, cancel := context.WithTimeout(s.Context(), 30*time.Second)
	defer cancel()
	conn, err := quic.Dial(ctx, s.socket(client), to, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"doq"}}, &quic.Config{HandshakeIdleTimeout: 30 * time.Second})
	if err != nil {
		return err
	}
	defer conn.CloseWithError(0, "")
	stream, err := conn.OpenStreamSync(ctx)
	if err != nil {
		return err
	}
	_ = stream.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err = stream.Write(ownQuery("own.example.")); err != nil {
		return err
	}
	_ = stream.Close()
	_, err = io.ReadFull(stream, make([]byte, 20))
	return err
}

// attacked runs an attack of many clients for a second, beside which own names are answered.
func (s *streamServer) attacked(name string, attack func(ctx context.Context, client string)) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), time.Second)
	defer cancel()
	var attackers sync.WaitGroup
	for i := range 20 {
		attackers.Go(func() { attack(ctx, fmt.Sprintf("127.0.1.%d", i+1)) })
	}
	for ctx.Err() == nil {
		s.own(name)
		sleep(ctx, 20*time.Millisecond)
	}
	cancel()
	attackers.Wait()
	s.answered("after " + name)
}

func (s *streamServer) own(when string) {
	s.Helper()
	if n := s.group.Kills(); n > 0 {
		s.Fatalf("%s: the kernel has killed %d processes: %s", when, n, s.group)
	}
	if reply, err := ask("udp", s.process.ports[0], "own.example.", dns.TypeA); err != nil || len(reply.Answer) != 1 {
		s.Errorf("%s: own name: got %v, error %v", when, reply, err)
	}
}

// Clients that abuse HTTP/2, over HTTPS and gRPC, get no server of 64 MB killed, and own names are answered.
func TestHTTP2Attacked(t *testing.T) {
	long(t)
	s := newStreamServer(t, buildServer(t))
	large := ownQuery("large.example.")[2:]
	message := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(large))), large...)
	for protocol, attacks := range map[string]map[string]http2Attack{
		"https": http2Attacks("/dns-query", "application/dns-message", large),
		"grpc":  http2Attacks("/coredns.dns.DnsService/Query", "application/grpc", message),
	} {
		port := map[string]string{"https": s.https, "grpc": s.grpc}[protocol]
		for name, a := range attacks {
			var sent atomic.Int64
			s.attacked(protocol+", "+name, func(ctx context.Context, client string) { a.run(ctx, client, port, &sent) })
			t.Logf("%s, %s: %d; %s", protocol, name, sent.Load(), s.group)
		}
	}
}

// Clients over QUIC that let the server send much at a time and then acknowledge nothing get no server of 64 MB
// killed.
func TestQUICUnacknowledged(t *testing.T) {
	long(t)
	s := newStreamServer(t, buildServer(t))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var clients sync.WaitGroup
	var received atomic.Int64
	for i := range 16 {
		clients.Go(func() { received.Add(s.silent(ctx, fmt.Sprintf("127.0.2.%d", i/4+1), s.doq)) })
	}
	clients.Wait()
	for range 50 {
		s.own("unacknowledged replies")
		sleep(t.Context(), 20*time.Millisecond)
	}
	t.Logf("%d MB received and then silence: %s", received.Load()>>20, s.group)
	s.answered("with unacknowledged replies")
}
