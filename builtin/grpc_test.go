package builtin

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	mdns "github.com/miekg/dns"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
)

const grpcQuery = "/coredns.dns.DnsService/Query"

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

// grpcClient returns a client of the first address.
func (s *encrypted) grpcClient(t *testing.T, c credentials.TransportCredentials) *grpc.ClientConn {
	t.Helper()
	return s.grpcAt(t, 0, c)
}

// grpcAt returns a client of the nth address.
func (s *encrypted) grpcAt(t *testing.T, n int, c credentials.TransportCredentials) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:127.0.0.1:"+s.port(n), grpc.WithTransportCredentials(c), grpc.WithDefaultCallOptions(grpc.ForceCodec(packetCodec{})))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func skipVerify() credentials.TransportCredentials {
	return credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})
}

// askGRPC sends a query and returns the reply.
func askGRPC(t *testing.T, conn *grpc.ClientConn, method string, packet []byte, o ...grpc.CallOption) (*mdns.Msg, error) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var reply []byte
	if err := conn.Invoke(ctx, method, &packet, &reply, o...); err != nil {
		return nil, err
	}
	m := new(mdns.Msg)
	return m, m.Unpack(reply)
}

func TestGRPCClients(t *testing.T) {
	answers := "grpc://. {" + answersOverHTTPS
	for name, c := range map[string]struct {
		text        string
		credentials credentials.TransportCredentials
	}{
		"TLS":   {answers, skipVerify()},
		"plain": {strings.Replace(answers, "tls cert.pem key.pem", "", 1), insecure.NewCredentials()},
	} {
		t.Run(name, func(t *testing.T) {
			conn := serveEncrypted(t, c.text).grpcClient(t, c.credentials)
			var queries sync.WaitGroup
			for i := range 300 { // more than max_streams
				queries.Go(func() {
					m, err := askGRPC(t, conn, grpcQuery, packed(t, fmt.Sprintf("a%d.example.", i)))
					if err != nil || len(m.Answer) != 2 || !strings.Contains(m.Answer[0].String(), "127.0.0.1") {
						t.Errorf("query %d: got reply %v, error %v; want two records, with 127.0.0.1", i, m, err)
					}
				})
			}
			queries.Wait()
			m, err := askGRPC(t, conn, grpcQuery, packed(t, "missing.example."))
			if err != nil || m.Rcode != mdns.RcodeNameError {
				t.Errorf("got reply %v, error %v; want NXDOMAIN", m, err)
			}
		})
	}
}

// Each request that is no query gets its status, and the connection continues.
func TestGRPCBadRequests(t *testing.T) {
	s := serveEncrypted(t, "grpc://. {"+answersOverHTTPS)
	conn := s.grpcClient(t, skipVerify())
	query := packed(t, "a.example.")
	mx, reply := bytes.Clone(query), bytes.Clone(query)
	mx[len(mx)-3] = byte(mdns.TypeMX)
	reply[2] |= 0x80
	for _, c := range []struct {
		name, method string
		packet       []byte
		code         codes.Code
		options      []grpc.CallOption
	}{
		{"query", grpcQuery, query, codes.OK, nil},
		{"another method", "/coredns.dns.DnsService/Watch", query, codes.Unimplemented, nil},
		{"another service", "/grpc.health.v1.Health/Check", query, codes.Unimplemented, nil},
		{"compressed", grpcQuery, query, codes.Unimplemented, []grpc.CallOption{grpc.UseCompressor(gzip.Name)}},
		{"empty message", grpcQuery, nil, codes.InvalidArgument, nil},
		{"short message", grpcQuery, query[:11], codes.InvalidArgument, nil},
		{"a reply", grpcQuery, reply, codes.InvalidArgument, nil},
		{"large message", grpcQuery, make([]byte, 65536), codes.ResourceExhausted, nil},
		{"huge message", grpcQuery, make([]byte, 8<<20), codes.ResourceExhausted, nil},
		{"dropped", grpcQuery, mx, codes.Unavailable, nil},
		{"query after errors", grpcQuery, query, codes.OK, nil},
	} {
		if _, err := askGRPC(t, conn, c.method, c.packet, c.options...); status.Code(err) != c.code {
			t.Errorf("%s: got %v, want %v", c.name, err, c.code)
		}
	}
	base, client := "https://127.0.0.1:"+s.port(0), httpClient(t, true)
	for _, c := range []struct {
		name, method, contentType, body string
		status                          int
		code                            string
	}{
		{"GET", "GET", "application/grpc", "", http.StatusMethodNotAllowed, ""},
		{"another type", "POST", "application/dns-message", string(query), http.StatusUnsupportedMediaType, ""},
		{"gRPC-Web", "POST", "application/grpc-web+proto", "", http.StatusUnsupportedMediaType, ""},
		{"JSON", "POST", "application/grpc+json", "", http.StatusUnsupportedMediaType, ""},
		{"no frame", "POST", "application/grpc+proto", "", http.StatusOK, "3"},
		{"frame longer than the body", "POST", "application/grpc", "\x00\x00\x00\x00\x09abc", http.StatusOK, "3"},
	} {
		r, err := http.NewRequestWithContext(t.Context(), c.method, base+grpcQuery, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", c.contentType)
		response, err := client.Do(r)
		if err != nil {
			t.Errorf("%s: got error %v, want status %d", c.name, err, c.status)
			continue
		}
		response.Body.Close()
		if got := response.Header.Get("Grpc-Status"); response.StatusCode != c.status || got != c.code {
			t.Errorf("%s: got status %d, code %q; want %d, %q", c.name, response.StatusCode, got, c.status, c.code)
		}
	}
	if response, err := httpClient(t, false).Post(base+grpcQuery, "application/grpc", strings.NewReader("")); err == nil {
		response.Body.Close()
		t.Errorf("HTTP/1.1: got status %s, want an error of the handshake", response.Status)
	}
}

// Connections over the limit are closed, and connections continue after a reload, which
// changes the limit.
func TestGRPCLimits(t *testing.T) {
	block := "grpc://. {\n grpc_server {\n  max_connections 2\n  max_streams 1\n }" + answersOverHTTPS
	s := serveEncrypted(t, block)
	ask := func(conn *grpc.ClientConn) error {
		_, err := askGRPC(t, conn, grpcQuery, packed(t, "a.example."))
		return err
	}
	first, third := s.grpcClient(t, skipVerify()), s.grpcClient(t, skipVerify())
	idle, err := net.Dial("tcp", "127.0.0.1:"+s.port(0))
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	if err := ask(first); err != nil {
		t.Fatalf("first connection: %v", err)
	}
	if err := ask(third); status.Code(err) != codes.Unavailable {
		t.Errorf("third connection: got %v, want %v", err, codes.Unavailable)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for state := first.GetState(); state != connectivity.Ready; state = first.GetState() { // it lags behind the reply
		if !first.WaitForStateChange(ctx, state) {
			t.Fatalf("first connection: got state %v within 10s, want %v", state, connectivity.Ready)
		}
	}
	s.load(strings.Replace(block, "max_connections 2", "max_connections 3", 1))
	if err := ask(first); err != nil || first.GetState() != connectivity.Ready {
		t.Errorf("first connection after the reload: got error %v and state %v, want none and %v", err, first.GetState(), connectivity.Ready)
	}
	third.ResetConnectBackoff()
	if _, err := askGRPC(t, third, grpcQuery, packed(t, "a.example."), grpc.WaitForReady(true)); err != nil {
		t.Errorf("third connection after the reload: %v", err)
	}
}
