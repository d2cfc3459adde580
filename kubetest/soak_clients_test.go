package kubetest

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/miekg/dns"
	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/encoding/protowire"
)

// soakPatience is how long a client waits for a reply: a forward to an upstream that fails takes up
// to five seconds.
const soakPatience = 4 * replyTime

// A soakConn is a client's connection to the server.
type soakConn interface {
	exchange(ctx context.Context, m *dns.Msg) (*dns.Msg, error)
	Close() error
}

// soakTransports are the ways to send queries, by the key of the server block: "" for UDP and TCP.
var soakTransports = []struct {
	name, scheme string
	dial         func(at string) (soakConn, error)
}{
	{"udp", "", dialPlain("udp")},
	{"tcp", "", dialPlain("tcp")},
	{"udp new socket", "", dialPlain("udp")},
	{"tcp new connection", "", dialPlain("tcp")},
	{"tls", "tls", dialPlain("tcp-tls")},
	{"https", "https", dialHTTPS},
	{"https3", "https3", dialHTTPS3},
	{"quic", "quic", dialQUIC},
	{"grpc", "grpc", dialGRPC},
}

// insecure accepts the certificate of the test.
func insecure(protocols ...string) *tls.Config {
	return &tls.Config{InsecureSkipVerify: true, NextProtos: protocols}
}

// A plainConn sends queries over UDP, TCP or TLS.
type plainConn struct {
	*dns.Conn
	client *dns.Client
}

func dialPlain(network string) func(at string) (soakConn, error) {
	client := &dns.Client{Net: network, Timeout: soakPatience, TLSConfig: insecure()}
	return func(at string) (soakConn, error) {
		conn, err := client.Dial(at)
		return plainConn{conn, client}, err
	}
}

func (c plainConn) exchange(ctx context.Context, m *dns.Msg) (*dns.Msg, error) {
	reply, _, err := c.client.ExchangeWithConnContext(ctx, m, c.Conn)
	return reply, err
}

// An httpConn sends queries over HTTP/2 or HTTP/3.
type httpConn struct {
	http.RoundTripper
	url   string
	close func() error
}

func dialHTTPS(at string) (soakConn, error) {
	t := &http.Transport{TLSClientConfig: insecure(), ForceAttemptHTTP2: true}
	return httpConn{t, "https://" + at + "/dns-query", func() error { t.CloseIdleConnections(); return nil }}, nil
}

func dialHTTPS3(at string) (soakConn, error) {
	t := &http3.Transport{TLSClientConfig: insecure()}
	return httpConn{t, "https://" + at + "/dns-query", t.Close}, nil
}

func (c httpConn) exchange(ctx context.Context, m *dns.Msg) (*dns.Msg, error) {
	packet, err := m.Pack()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, soakPatience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(packet))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/dns-message")

	resp, err := c.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("status %s", resp.Status)
	}
	return unpack(io.ReadAll(resp.Body))
}

func (c httpConn) Close() error { return c.close() }

// unpack returns the message in a packet, unless there is an error.
func unpack(packet []byte, err error) (*dns.Msg, error) {
	m := new(dns.Msg)
	if err == nil {
		err = m.Unpack(packet)
	}
	return m, err
}

// A quicConn sends each query on a stream.
type quicConn struct{ *quic.Conn }

func dialQUIC(at string) (soakConn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), soakPatience)
	defer cancel()
	conn, err := quic.DialAddr(ctx, at, insecure("doq"), &quic.Config{KeepAlivePeriod: time.Second})
	return quicConn{conn}, err
}

func (c quicConn) exchange(ctx context.Context, m *dns.Msg) (*dns.Msg, error) {
	m = m.Copy()
	m.Id = 0 // RFC 9250 §4.2.1
	packet, err := m.Pack()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, soakPatience)
	defer cancel()
	s, err := c.OpenStreamSync(ctx)
	if err != nil {
		return nil, err
	}
	_ = s.SetDeadline(time.Now().Add(soakPatience))

	if _, err := s.Write(append([]byte{byte(len(packet) >> 8), byte(len(packet))}, packet...)); err != nil {
		return nil, err
	}
	_ = s.Close() // ends the direction of the query
	reply, err := io.ReadAll(s)
	if err == nil && len(reply) < 2 {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, err
	}
	return unpack(reply[2:], nil)
}

func (c quicConn) Close() error { return c.CloseWithError(0, "") }

// A grpcConn sends queries as CoreDNS's gRPC plugin does.
type grpcConn struct{ *grpc.ClientConn }

func dialGRPC(at string) (soakConn, error) {
	conn, err := grpc.NewClient("passthrough:"+at, grpc.WithTransportCredentials(credentials.NewTLS(insecure())),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(dnsPacket{})))
	return grpcConn{conn}, err
}

func (c grpcConn) exchange(ctx context.Context, m *dns.Msg) (*dns.Msg, error) {
	packet, err := m.Pack()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, soakPatience)
	defer cancel()
	var reply []byte
	err = c.Invoke(ctx, "/coredns.dns.DnsService/Query", &packet, &reply)
	return unpack(reply, err)
}

// A dnsPacket encodes a message as the DnsPacket of CoreDNS's service.
type dnsPacket struct{}

func (dnsPacket) Name() string { return "proto" }

func (dnsPacket) Marshal(v any) ([]byte, error) {
	return protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), *v.(*[]byte)), nil
}

func (dnsPacket) Unmarshal(data []byte, v any) error {
	_, _, n := protowire.ConsumeTag(data)
	message, size := protowire.ConsumeBytes(data[max(n, 0):])
	if n < 0 || size < 0 {
		return fmt.Errorf("invalid DnsPacket %x", data)
	}
	*v.(*[]byte) = bytes.Clone(message)
	return nil
}
