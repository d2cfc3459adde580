package builtin

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	mdns "github.com/miekg/dns"
	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
)

// A protocol is a way to send queries over an encrypted connection, with what differs between
// them: see transports_test.go.
type protocol struct {
	name, scheme string
	dial         func(c *caller) link
	limits       string // the directive that limits its streams; "" if there is none
	others       string // further limits, with which one query at a time is answered
	parallel     bool   // a connection has several queries at the same time

	dropped string // how a query ends that a directive drops; "" if the client waits
	fault   string // a message that is not a query
	closes  bool   // the connection ends after a fault
	large   string // a message of more than 65,535 bytes; "" if there is none
	slow    string // a query that is not complete in time; a reset is possible, too
	stopped string // the connection, when the listener stops
}

var encryptedProtocols = []protocol{
	{name: "TLS", scheme: "tls", dial: linkTLS,
		fault: "end", closes: true, slow: "end", stopped: "end"},
	{name: "HTTP/1.1", scheme: "https", dial: linkHTTP1, limits: "https",
		dropped: "500", fault: "400", large: "413", slow: "400", stopped: "end"},
	{name: "HTTP/2", scheme: "https", dial: linkHTTP2, limits: "https", parallel: true,
		dropped: "500", fault: "400", large: "413", slow: "400", stopped: "end"},
	{name: "HTTP/3", scheme: "https3", dial: linkHTTP3, limits: "https3", parallel: true,
		dropped: "500", fault: "400", large: "413", slow: "400", stopped: "end 0x100"}, // H3_NO_ERROR
	{name: "QUIC", scheme: "quic", dial: linkQUIC, limits: "quic", parallel: true,
		dropped: "reset 0x5", fault: "end 0x2", closes: true, slow: "reset 0x4", stopped: "end 0x0"},
	{name: "gRPC", scheme: "grpc", dial: linkGRPC, limits: "grpc_server", others: "  max_streams 1\n", parallel: true,
		dropped: "Unavailable", fault: "InvalidArgument", large: "ResourceExhausted", slow: "InvalidArgument", stopped: "end"},
}

// A caller connects to an address of the server. Without a configuration it does not use TLS.
type caller struct {
	t       *testing.T
	address string
	tls     *tls.Config
}

// A link is a client's connection.
type link struct {
	// ask sends a query and returns the reply.
	ask func(ctx context.Context, packet []byte) (*mdns.Msg, error)
	// begin sends a part of a query. It returns a function that blocks until the server gives up
	// to wait for the rest, and returns the error of the query.
	begin func(part []byte) (end func() error)
	*fate
}

// dial connects to the server at the scheme of the transport.
func (s *encrypted) dial(tr protocol) link {
	return s.dialWith(tr, &tls.Config{InsecureSkipVerify: true})
}

func (s *encrypted) dialWith(tr protocol, config *tls.Config) link {
	s.t.Helper()
	return tr.dial(&caller{s.t, s.address(tr.scheme), config})
}

// packed returns a query in wire form.
func packed(t *testing.T, name string) []byte {
	t.Helper()
	m := new(mdns.Msg).SetQuestion(name, mdns.TypeTXT)
	m.Id = 0
	packet, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return packet
}

// unpacked returns the message in a packet, unless there is an error.
func unpacked(packet []byte, err error) (*mdns.Msg, error) {
	if err != nil {
		return nil, err
	}
	m := new(mdns.Msg)
	return m, m.Unpack(packet)
}

// A fate is the end of a connection.
type fate struct {
	once  sync.Once
	ended chan struct{}
	err   error
}

func newFate() *fate { return &fate{ended: make(chan struct{})} }

// end records the end of the connection.
func (f *fate) end(err error) { f.once.Do(func() { f.err = err; close(f.ended) }) }

// await waits for the end, and returns how the connection has ended.
func (f *fate) await(t *testing.T) string {
	t.Helper()
	select {
	case <-f.ended:
	case <-time.After(patience):
		t.Fatal("the server has not closed the connection")
	}
	return outcome(nil, f.err)
}

func (f *fate) isOpen() bool {
	select {
	case <-f.ended:
		return false
	default:
		return true
	}
}

// watched records the end of a TCP connection, which its client reads all the time.
type watched struct {
	net.Conn
	*fate
}

func (c watched) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		c.end(err)
	}
	return n, err
}

// Close is called after the end of a connection with TLS, which the client may read first.
func (c watched) Close() error {
	c.end(net.ErrClosed)
	return c.Conn.Close()
}

// outcome describes how a query has ended, or a connection: the response code, the status of HTTP
// or gRPC, the reset of a stream, or the end of the connection.
func outcome(m *mdns.Msg, err error) string {
	var application *quic.ApplicationError
	var reset *quic.StreamError
	var http httpStatus
	var h3 *http3.Error
	switch code := status.Code(err); {
	case err == nil:
		return mdns.RcodeToString[m.Rcode]
	case errors.As(err, &http):
		return fmt.Sprint(int(http))
	case errors.As(err, &application) && application.Remote:
		return fmt.Sprintf("end %#x", uint64(application.ErrorCode))
	case errors.As(err, &reset) && reset.Remote:
		return fmt.Sprintf("reset %#x", uint64(reset.ErrorCode))
	case errors.As(err, &h3) && h3.Remote:
		return fmt.Sprintf("reset %#x", uint64(h3.ErrorCode))
	case code != codes.Unknown:
		return code.String()
	}
	for _, end := range []error{io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, end) {
			return "end"
		}
	}
	return "error " + err.Error()
}

// Over TLS

func linkTLS(c *caller) link {
	c.t.Helper()
	f := newFate()
	tcp, err := net.Dial("tcp", c.address)
	if err != nil {
		c.t.Fatal(err)
	}
	conn := tls.Client(watched{tcp, f}, c.tls)
	c.t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))

	replies := make(chan []byte, 1)
	go func() {
		for messages := (mdns.Conn{Conn: conn}); ; { // its ReadMsg would verify signatures
			buf := make([]byte, 65535)
			n, err := messages.Read(buf)
			if err != nil {
				f.end(err)
				close(replies)
				return
			}
			replies <- buf[:n]
		}
	}()
	next := func(err error) (*mdns.Msg, error) {
		if err != nil {
			return nil, err
		}
		reply, ok := <-replies
		if !ok {
			return nil, f.err
		}
		return unpacked(reply, nil)
	}

	var turn sync.Mutex
	return link{
		fate: f,
		ask: func(_ context.Context, packet []byte) (*mdns.Msg, error) {
			turn.Lock()
			defer turn.Unlock()
			_, err := conn.Write(withLength(packet))
			return next(err)
		},
		begin: func(part []byte) func() error {
			_, err := conn.Write(append([]byte{0, 100}, part...))
			return func() error { _, err := next(err); return err }
		},
	}
}

// withLength returns a message preceded by its length.
func withLength(message []byte) []byte {
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(message))), message...)
}

// Over HTTP

const messageType = "application/dns-message"

// An httpStatus is the status of a response that is not 200.
type httpStatus int

func (s httpStatus) Error() string { return fmt.Sprintf("status %d", int(s)) }

// httpClient returns an HTTP client with HTTP/2 or HTTP/1.1.
func httpClient(t *testing.T, http2 bool) *http.Client {
	return watchedHTTP(t, http2, &tls.Config{InsecureSkipVerify: true}, newFate())
}

func watchedHTTP(t *testing.T, http2 bool, config *tls.Config, f *fate) *http.Client {
	transport := &http.Transport{
		TLSClientConfig: config,
		Protocols:       new(http.Protocols),
	}
	if !http2 {
		transport.MaxConnsPerHost = 1
	}
	transport.Protocols.SetHTTP1(!http2)
	transport.Protocols.SetHTTP2(http2)
	// At its limit of streams the client opens more connections, and closes some of them again.
	// Go 1.26's StrictMaxConcurrentRequests makes it wait forever after cancelled requests.
	var dialed atomic.Bool
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		if err != nil || dialed.Swap(true) {
			return conn, err
		}
		return watched{conn, f}, nil
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: patience}
}

// http3Client returns an HTTP client with HTTP/3.
func http3Client(t *testing.T) *http.Client {
	return watchedHTTP3(t, &tls.Config{InsecureSkipVerify: true}, newFate())
}

func watchedHTTP3(t *testing.T, config *tls.Config, f *fate) *http.Client {
	transport := &http3.Transport{TLSClientConfig: config, QUICConfig: patientQUIC()}
	transport.Dial = func(ctx context.Context, address string, config *tls.Config, more *quic.Config) (*quic.Conn, error) {
		conn, err := quic.DialAddrEarly(ctx, address, config, more)
		if err == nil {
			context.AfterFunc(conn.Context(), func() { f.end(context.Cause(conn.Context())) })
		}
		return conn, err
	}
	t.Cleanup(func() { _ = transport.Close() })
	return &http.Client{Transport: transport, Timeout: patience}
}

// post sends a message in a POST request and returns that of the response.
func post(ctx context.Context, client *http.Client, url, contentType string, message io.Reader) ([]byte, http.Header, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, message)
	if err != nil {
		return nil, nil, err
	}
	r.Header.Set("Content-Type", contentType)
	response, err := client.Do(r)
	if err != nil {
		return nil, nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body) // else the client would close a connection with HTTP/1.1
	if response.StatusCode != http.StatusOK {
		return nil, nil, httpStatus(response.StatusCode)
	}
	return body, response.Header, err
}

// beginPost returns the begin of a link over HTTP, and the error that a response means.
func beginPost(c *caller, client *http.Client, url, contentType string, failure func(http.Header) error) func([]byte) func() error {
	return func(part []byte) func() error {
		body, writer := io.Pipe()
		c.t.Cleanup(func() { _ = writer.Close() })
		go func() { _, _ = writer.Write(part) }()
		ended := make(chan error, 1)
		go func() {
			_, header, err := post(c.t.Context(), client, url, contentType, body)
			if err == nil {
				err = failure(header)
			}
			ended <- err
		}()
		return func() error { return <-ended }
	}
}

func linkOverHTTP(c *caller, client *http.Client, f *fate) link {
	url := "https://" + c.address + "/dns-query"
	if c.tls == nil {
		url = "http://" + c.address + "/dns-query"
	}
	return link{
		fate: f,
		ask: func(ctx context.Context, packet []byte) (*mdns.Msg, error) {
			reply, _, err := post(ctx, client, url, messageType, bytes.NewReader(packet))
			return unpacked(reply, err)
		},
		begin: beginPost(c, client, url, messageType, func(http.Header) error { return httpStatus(200) }),
	}
}

// linkHTTP1 has a client of its own for ask: that of net/http closes a connection if it notices more than 50 ms
// after the response that it has sent the request, as on a busy machine. Once the server has ended the connection,
// that client opens others.
func linkHTTP1(c *caller) link {
	f := newFate()
	l := linkOverHTTP(c, watchedHTTP(c.t, false, c.tls, newFate()), f)
	conn, err := net.Dial("tcp", c.address)
	if err != nil {
		c.t.Fatal(err)
	}
	if conn = (watched{conn, f}); c.tls != nil {
		conn = tls.Client(conn, c.tls)
	}
	c.t.Cleanup(func() { _ = conn.Close() })

	type answer struct {
		status int
		body   []byte
	}
	answers := make(chan answer)
	go func() {
		defer close(answers)
		for from := bufio.NewReader(conn); ; {
			response, err := http.ReadResponse(from, nil)
			if err != nil {
				f.end(err)
				return
			}
			body, _ := io.ReadAll(response.Body)
			if response.Close {
				f.end(io.EOF)
			}
			select {
			case answers <- answer{response.StatusCode, body}:
			case <-c.t.Context().Done():
				return
			}
		}
	}()

	var turn sync.Mutex
	again := l.ask
	l.ask = func(ctx context.Context, packet []byte) (*mdns.Msg, error) {
		turn.Lock()
		defer turn.Unlock()
		if !l.isOpen() {
			return again(ctx, packet)
		}
		r, err := http.NewRequest(http.MethodPost, "http://"+c.address+"/dns-query", bytes.NewReader(packet))
		if err != nil {
			return nil, err
		}
		r.Header.Set("Content-Type", messageType)
		writeErr := r.Write(conn)
		got, ok := <-answers
		switch {
		case !ok:
			return nil, cmp.Or(f.err, writeErr)
		case got.status != http.StatusOK:
			return nil, httpStatus(got.status)
		}
		return unpacked(got.body, nil)
	}
	return l
}

func linkHTTP2(c *caller) link {
	f := newFate()
	return linkOverHTTP(c, watchedHTTP(c.t, true, c.tls, f), f)
}

func linkHTTP3(c *caller) link {
	f := newFate()
	return linkOverHTTP(c, watchedHTTP3(c.t, c.tls, f), f)
}

// Over QUIC

// A doqClient is a connection to the server.
type doqClient struct {
	t *testing.T
	*quic.Conn
}

// dialQUIC connects to the first address of the server.
func (s *encrypted) dialQUIC(config *tls.Config) doqClient {
	s.t.Helper()
	c, err := tryQUIC(&caller{s.t, "127.0.0.1:" + s.port(0), config})
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

// patientQUIC is for a client that waits longer than a busy machine needs.
func patientQUIC() *quic.Config {
	return &quic.Config{HandshakeIdleTimeout: patience, MaxIdleTimeout: patience}
}

// tryQUIC connects to an address.
func tryQUIC(to *caller) (doqClient, error) {
	config := &tls.Config{InsecureSkipVerify: true}
	if to.tls != nil {
		config = to.tls.Clone()
	}
	if config.NextProtos == nil {
		config.NextProtos = []string{"doq"}
	}
	ctx, cancel := context.WithTimeout(to.t.Context(), patience)
	defer cancel()
	c, err := quic.DialAddr(ctx, to.address, config, patientQUIC())
	if err == nil {
		to.t.Cleanup(func() { _ = c.CloseWithError(0, "") })
	}
	return doqClient{to.t, c}, err
}

// open opens a stream and writes data.
func (c doqClient) open(ctx context.Context, data []byte) (*quic.Stream, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	s, err := c.OpenStreamSync(ctx)
	if err == nil {
		_ = s.SetDeadline(time.Now().Add(patience))
		_, err = s.Write(data)
	}
	return s, err
}

// stream opens a stream and writes data.
func (c doqClient) stream(data []byte) *quic.Stream {
	c.t.Helper()
	s, err := c.open(c.t.Context(), data)
	if err != nil {
		c.t.Fatal(err)
	}
	return s
}

// readReply reads the reply of a stream, which must end after it.
func readReply(s *quic.Stream) (*mdns.Msg, error) {
	all, err := io.ReadAll(s)
	if err != nil {
		return nil, err
	}
	if len(all) < 2 || int(binary.BigEndian.Uint16(all)) != len(all)-2 {
		return nil, fmt.Errorf("got %x, want one message with its length", all)
	}
	return unpacked(all[2:], nil)
}

// exchange sends a query on a stream of its own, which the client resets when ctx ends.
func (c doqClient) exchange(ctx context.Context, packet []byte) (*mdns.Msg, error) {
	s, err := c.open(ctx, withLength(packet))
	if err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { s.CancelRead(3) })() // DOQ_REQUEST_CANCELLED
	// It fails if the server has reset the stream already, as the reply says.
	_ = s.Close()
	return readReply(s)
}

// mustAnswer fails the test unless the server answers.
func (c doqClient) mustAnswer(name string) {
	c.t.Helper()
	m, err := c.exchange(c.t.Context(), packed(c.t, name))
	if err != nil || m.Rcode != mdns.RcodeSuccess || len(m.Answer) == 0 {
		c.t.Fatalf("%s: got reply %v, error %v; want records", name, m, err)
	}
}

// fate returns the end of the connection.
func (c doqClient) fate() *fate {
	f := newFate()
	context.AfterFunc(c.Context(), func() { f.end(context.Cause(c.Context())) })
	return f
}

func linkQUIC(to *caller) link {
	to.t.Helper()
	c, err := tryQUIC(to)
	if err != nil {
		f := newFate()
		f.end(err)
		return link{fate: f, ask: func(context.Context, []byte) (*mdns.Msg, error) { return nil, err }}
	}
	return link{
		fate: c.fate(),
		ask:  c.exchange,
		begin: func(part []byte) func() error {
			s := c.stream(append([]byte{0, 100}, part...))
			return func() error { _, err := readReply(s); return err }
		},
	}
}

// Over gRPC

const (
	grpcQuery = "/coredns.dns.DnsService/Query"
	grpcType  = "application/grpc"
)

// A packetCodec encodes a DNS message as a DnsPacket of CoreDNS's gRPC service.
type packetCodec struct{}

func (packetCodec) Name() string { return "proto" }

func (packetCodec) Marshal(v any) ([]byte, error) {
	return protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), *v.(*[]byte)), nil
}

func (packetCodec) Unmarshal(data []byte, v any) error {
	_, _, n := protowire.ConsumeTag(data)
	message, size := protowire.ConsumeBytes(data[max(n, 0):])
	if n < 0 || size < 0 {
		return fmt.Errorf("invalid DnsPacket %x", data)
	}
	*v.(*[]byte) = bytes.Clone(message)
	return nil
}

func skipVerify() credentials.TransportCredentials {
	return credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})
}

// grpcClient returns a client of the first address.
func (s *encrypted) grpcClient(t *testing.T, c credentials.TransportCredentials) *grpc.ClientConn {
	t.Helper()
	return watchedGRPC(t, "127.0.0.1:"+s.port(0), c, newFate())
}

func watchedGRPC(t *testing.T, address string, c credentials.TransportCredentials, f *fate) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:"+address, grpc.WithTransportCredentials(c),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(packetCodec{})),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
			return watched{conn, f}, err
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// askGRPC sends a query and returns the reply.
func askGRPC(ctx context.Context, conn *grpc.ClientConn, method string, packet []byte, o ...grpc.CallOption) (*mdns.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var reply []byte
	err := conn.Invoke(ctx, method, &packet, &reply, o...)
	return unpacked(reply, err)
}

func linkGRPC(c *caller) link {
	f, over := newFate(), insecure.NewCredentials()
	if c.tls != nil {
		over = credentials.NewTLS(c.tls)
	}
	conn := watchedGRPC(c.t, c.address, over, f)
	frame := func(part []byte) []byte { return append([]byte{0, 0, 0, 0, 100}, part...) }
	begin := beginPost(c, httpClient(c.t, true), "https://"+c.address+grpcQuery, grpcType, func(header http.Header) error {
		code := codes.Code(0)
		_, _ = fmt.Sscan(header.Get("Grpc-Status"), (*uint32)(&code))
		return status.Error(code, header.Get("Grpc-Message"))
	})
	return link{
		fate: f,
		ask: func(ctx context.Context, packet []byte) (*mdns.Msg, error) {
			return askGRPC(ctx, conn, grpcQuery, packet)
		},
		begin: func(part []byte) func() error { return begin(frame(part)) },
	}
}
