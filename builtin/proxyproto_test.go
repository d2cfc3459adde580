//go:build linux

package builtin

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	mdns "github.com/miekg/dns"
	"google.golang.org/grpc"

	"github.com/seamark/seamark/test/debian"
)

// proxied returns a server block that answers with the client's address, for each scheme,
// with the lines of proxyproto.
func proxied(options string) string {
	return "dns://. tls://. https://. grpc://. {\n proxyproto {\n" + options + "\n }\n forward wait.test 127.0.0.1:1 {\n  max_fails 0\n }\n" + answersExample[1:]
}

// proxyV2 returns a PROXY header of version 2 for a client.
func proxyV2(client string) []byte {
	at := netip.MustParseAddrPort(client)
	body := append(at.Addr().AsSlice(), make([]byte, at.Addr().BitLen()/8)...)
	body = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(body, at.Port()), 53)
	family := byte(0x11)
	if at.Addr().Is6() {
		family = 0x21
	}
	return append(binary.BigEndian.AppendUint16(append([]byte("\r\n\r\n\x00\r\nQUIT\n\x21"), family), uint16(len(body))), body...)
}

const proxyV1 = "PROXY TCP4 192.0.2.9 127.0.0.1 4711 53\r\n"

// askUDP sends packets, and returns the reply to the last.
func (s *encrypted) askUDP(packets ...[]byte) (*mdns.Msg, error) {
	s.t.Helper()
	c, err := net.Dial("udp", s.address("dns"))
	if err != nil {
		s.t.Fatal(err)
	}
	defer c.Close()
	for _, p := range packets {
		if _, err := c.Write(p); err != nil {
			s.t.Fatal(err)
		}
	}
	_ = c.SetReadDeadline(time.Now().Add(patience))
	return (&mdns.Conn{Conn: c}).ReadMsg()
}

// askTCP sends pieces of data in segments of their own, and returns the reply. With TLS only
// the first is sent in front of it.
func (s *encrypted) askTCP(withTLS bool, pieces ...[]byte) (*mdns.Msg, error) {
	s.t.Helper()
	scheme := "dns"
	if withTLS {
		scheme = "tls"
	}
	c, err := net.Dial("tcp", s.address(scheme))
	if err != nil {
		s.t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	for i, p := range pieces {
		if i == 1 && withTLS {
			c = tls.Client(c, &tls.Config{InsecureSkipVerify: true})
		}
		if _, err := c.Write(p); err != nil {
			return nil, err
		}
	}
	return (&mdns.Conn{Conn: c}).ReadMsg()
}

func framed(packet []byte) []byte {
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(packet))), packet...)
}

// The client address comes from the header, for each transport.
func TestProxyprotoUse(t *testing.T) {
	s := serveEncrypted(t, proxied("allow 127.0.0.0/8"))
	query := packed(t, "a.example.")
	v4, v6 := proxyV2("192.0.2.7:4711"), proxyV2("[2001:db8::7]:4711")
	for _, c := range []struct {
		name, want string
		ask        func() (*mdns.Msg, error)
	}{
		{"UDP", "192.0.2.7", func() (*mdns.Msg, error) { return s.askUDP(append(bytes.Clone(v4), query...)) }},
		{"UDP, IPv6", "2001:db8::7", func() (*mdns.Msg, error) { return s.askUDP(append(bytes.Clone(v6), query...)) }},
		{"UDP without a header", "127.0.0.1", func() (*mdns.Msg, error) { return s.askUDP(query) }},
		{"TCP", "192.0.2.7", func() (*mdns.Msg, error) { return s.askTCP(false, append(bytes.Clone(v4), framed(query)...)) }},
		{"TCP in pieces", "2001:db8::7", func() (*mdns.Msg, error) {
			return s.askTCP(false, v6[:3], v6[3:20], append(bytes.Clone(v6[20:]), framed(query)[:5]...), framed(query)[5:])
		}},
		{"TCP, version 1", "192.0.2.9", func() (*mdns.Msg, error) { return s.askTCP(false, []byte(proxyV1), framed(query)) }},
		{"TCP without a header", "127.0.0.1", func() (*mdns.Msg, error) { return s.askTCP(false, framed(query)) }},
		{"TLS", "192.0.2.7", func() (*mdns.Msg, error) { return s.askTCP(true, v4, framed(query)) }},
		{"TLS, version 1", "192.0.2.9", func() (*mdns.Msg, error) { return s.askTCP(true, []byte(proxyV1), framed(query)) }},
		{"TLS without a header", "127.0.0.1", func() (*mdns.Msg, error) { return s.askTCP(true, nil, framed(query)) }},
		{"HTTPS", "192.0.2.7", func() (*mdns.Msg, error) { return s.askHTTPS(v4, query) }},
		{"HTTPS, version 1", "192.0.2.9", func() (*mdns.Msg, error) { return s.askHTTPS([]byte(proxyV1), query) }},
		{"HTTPS without a header", "127.0.0.1", func() (*mdns.Msg, error) { return s.askHTTPS(nil, query) }},
		{"gRPC", "192.0.2.7", func() (*mdns.Msg, error) { return s.askGRPCFrom(v4, query) }},
		{"gRPC without a header", "127.0.0.1", func() (*mdns.Msg, error) { return s.askGRPCFrom(nil, query) }},
	} {
		if got := remote(c.ask()); got != c.want {
			t.Errorf("%s: got client %s, want %s", c.name, got, c.want)
		}
	}
	// The reply to a parked query goes to the proxy, too.
	if got := remote(s.askUDP(append(bytes.Clone(v4), packed(t, "wait.test.")...))); got != "SERVFAIL" {
		t.Errorf("UDP, parked: got %s, want SERVFAIL", got)
	}
	s.load("dns://. tls://. https://. grpc://. {" + answersExample)
	if got := remote(s.askUDP(query)); got != "127.0.0.1" {
		t.Errorf("UDP after a reload without proxyproto: got client %s, want 127.0.0.1", got)
	}
}

// askHTTPS sends a header, and then a query.
func (s *encrypted) askHTTPS(header, query []byte) (*mdns.Msg, error) {
	dial := func(ctx context.Context, network, _ string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, s.address("https"))
		if err == nil && header != nil {
			_, err = c.Write(header)
		}
		return c, err
	}
	client := &http.Client{Timeout: patience, Transport: &http.Transport{
		DialContext: dial, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true, DisableKeepAlives: true,
	}}
	reply, _, err := post(s.t.Context(), client, "https://dns.example/dns-query", messageType, bytes.NewReader(query))
	return unpacked(reply, err)
}

// askGRPCFrom sends a header, and then a query over gRPC.
func (s *encrypted) askGRPCFrom(header, query []byte) (*mdns.Msg, error) {
	dial := func(ctx context.Context, at string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", at)
		if err == nil && header != nil {
			_, err = c.Write(header)
		}
		return c, err
	}
	conn, err := grpc.NewClient("passthrough:"+s.address("grpc"), grpc.WithTransportCredentials(skipVerify()), grpc.WithContextDialer(dial), grpc.WithDefaultCallOptions(grpc.ForceCodec(packetCodec{})))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return askGRPC(s.t.Context(), conn, grpcQuery, query)
}

// The effect of the policies on peers that are not proxies, with a header and without one.
func TestProxyprotoPolicies(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	query, header := packed(t, "a.example."), proxyV2("192.0.2.7:4711")
	for _, c := range []struct {
		options, udp, tcp, https, without string // the client, or an error
	}{
		{"", "192.0.2.7", "192.0.2.7", "192.0.2.7", "127.0.0.1"},
		{"allow 10.0.0.0/8", "127.0.0.1", "127.0.0.1", "127.0.0.1", "127.0.0.1"},
		{"allow 10.0.0.0/8\n default use", "192.0.2.7", "192.0.2.7", "192.0.2.7", "127.0.0.1"},
		{"default ignore", "127.0.0.1", "127.0.0.1", "127.0.0.1", "127.0.0.1"},
		{"allow 10.0.0.0/8\n default reject", "error", "error", "error", "127.0.0.1"},
		{"default skip", "NOTIMP", "error", "error", "127.0.0.1"},
	} {
		t.Run(c.options, func(t *testing.T) {
			s := serveEncrypted(t, proxied(c.options))
			for _, r := range []struct{ name, got, want string }{
				{"UDP", remote(s.askUDP(append(bytes.Clone(header), query...), query)), "127.0.0.1"},
				{"TCP", remote(s.askTCP(false, header, framed(query))), c.tcp},
				{"HTTPS", remote(s.askHTTPS(header, query)), c.https},
				{"UDP without a header", remote(s.askUDP(query)), c.without},
				{"TCP without a header", remote(s.askTCP(false, framed(query))), c.without},
				{"HTTPS without a header", remote(s.askHTTPS(nil, query)), c.without},
			} {
				if r.name == "UDP" && c.udp != "error" { // one packet rejected, and one answered; otherwise the reply is to the first
					r.want = c.udp
				}
				if got, isError := strings.CutPrefix(r.got, "error"); r.got != r.want && !(isError && r.want == "error" && got != "") {
					t.Errorf("%s: got client %s, want %s", r.name, r.got, r.want)
				}
			}
		})
	}
}

// Malformed headers are rejected and counted, and other clients are answered.
// See NSD 4.15 in docs/reference/advisories.md.
func TestProxyprotoMalformed(t *testing.T) {
	s := serveEncrypted(t, proxied("allow 127.0.0.1"))
	query := packed(t, "a.example.")
	bad := bytes.Clone(proxyV2("192.0.2.7:4711"))
	bad[12] = 0x22
	for i, header := range [][]byte{bad, []byte("PROXY TCP9 a b c d\r\n"), []byte("PROXY " + strings.Repeat("x", 200)), proxyV2("192.0.2.7:1")[:20]} {
		want := "127.0.0.1"
		if i == 3 {
			want = "FORMERR" // the query completes the header, and its rest has no question
		}
		if got := remote(s.askUDP(append(bytes.Clone(header), query...), query)); got != want {
			t.Errorf("header %d over UDP, then a query: got client %s, want %s", i, got, want)
		}
		if i == 3 {
			continue // over TCP the rest would complete it
		}
		for _, withTLS := range []bool{false, true} {
			if got := remote(s.askTCP(withTLS, header, framed(query))); !strings.HasPrefix(got, "error") {
				t.Errorf("header %d over TCP, TLS %v: got client %s, want an error", i, withTLS, got)
			}
		}
		if got := remote(s.askHTTPS(header, query)); !strings.HasPrefix(got, "error") {
			t.Errorf("header %d over HTTPS: got client %s, want an error", i, got)
		}
	}
	if got := remote(s.askUDP(append([]byte(proxyV1), query...), query)); got != "127.0.0.1" {
		t.Errorf("version 1 over UDP, then a query: got client %s, want 127.0.0.1", got)
	}
	var text strings.Builder
	if err := s.metrics.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`rejected_total{proto="udp"} 4`, `rejected_total{proto="tcp"} 9`} {
		if !strings.Contains(text.String(), "seamark_transport_proxy_headers_"+want) {
			t.Errorf("the metrics lack %s; got\n%s", want, linesWith(text.String(), "proxy_headers"))
		}
	}
	if !s.log.contains("Rejected PROXY header") {
		t.Error("the log lacks a message about a rejected header")
	}
}

// A packet with a header alone names the client of the following packets.
func TestProxyprotoSessions(t *testing.T) {
	header, query := proxyV2("192.0.2.7:4711"), packed(t, "a.example.")
	for options, want := range map[string]string{"udp_session_tracking 28s": "192.0.2.7", "udp_session_tracking 28s 1": "192.0.2.7", "default use": "127.0.0.1"} {
		t.Run(options, func(t *testing.T) {
			s := serveEncrypted(t, proxied(options))
			for range 3 { // each client has another port
				if got := remote(s.askUDP(header, query)); got != want {
					t.Errorf("got client %s, want %s", got, want)
				}
			}
		})
	}
}

// The connections of a proxy count for its clients.
// See CVE-2026-54478 in docs/reference/advisories.md.
func TestProxyprotoLimits(t *testing.T) {
	s := serveEncrypted(t, proxied("allow 127.0.0.0/8"))
	query := packed(t, "a.example.")
	open := func(client string) (*mdns.Msg, error) {
		c, err := net.Dial("tcp", s.address("dns"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		if _, err := c.Write(append(proxyV2(client), framed(query)...)); err != nil {
			return nil, err
		}
		return (&mdns.Conn{Conn: c}).ReadMsg()
	}
	const perClient = 100
	for i := range perClient + 20 {
		if got, want := remote(open(fmt.Sprintf("10.0.%d.1:4711", i))), fmt.Sprintf("10.0.%d.1", i); got != want {
			t.Fatalf("connection %d of the proxy: got client %s, want %s", i, got, want)
		}
	}
	for i := range perClient {
		if got := remote(open("10.1.0.1:4711")); got != "10.1.0.1" {
			t.Fatalf("connection %d of a client: got %s, want 10.1.0.1", i, got)
		}
	}
	if got := remote(open("10.1.0.1:4711")); !strings.HasPrefix(got, "error") {
		t.Errorf("connection %d of a client: got %s, want an error", perClient, got)
	}
}

// freeTCPPort returns a port that nothing listens on.
func freeTCPPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

// startProxy starts a load balancer, and waits until it listens on a port.
func startProxy(t *testing.T, port, name string, args ...string) {
	t.Helper()
	c := exec.Command(name, args...)
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	t.Cleanup(func() {
		_ = c.Process.Kill()
		<-ended
	})
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		conn, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err == nil {
			conn.Close()
			return
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("%s ended: %v\n%s", name, err, &out)
		default:
		}
		if time.Now().After(end) {
			t.Fatalf("%s does not listen on port %s", name, port)
		}
	}
}

// HAProxy forwards TCP connections with headers of both versions.
func TestProxyprotoHAProxy(t *testing.T) {
	debian.Program(t, "haproxy")
	s := serveEncrypted(t, proxied("allow 127.0.0.1"))
	for _, c := range []struct {
		send, scheme, net string
	}{{"send-proxy", "dns", "tcp"}, {"send-proxy-v2", "dns", "tcp"}, {"send-proxy-v2 proxy-v2-options crc32c,unique-id", "dns", "tcp"}, {"send-proxy", "tls", "tcp-tls"}, {"send-proxy-v2", "tls", "tcp-tls"}} {
		port := freeTCPPort(t)
		text := fmt.Sprintf("defaults\n  mode tcp\n  timeout connect 5s\n  timeout client 20s\n  timeout server 20s\nlisten dns\n  bind 127.0.0.1:%s\n  unique-id-format %%pid\n  server seamark %s %s\n", port, s.address(c.scheme), c.send)
		if err := os.WriteFile("haproxy.cfg", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		startProxy(t, port, "haproxy", "-f", "haproxy.cfg", "-db")
		client := &mdns.Client{Net: c.net, TLSConfig: &tls.Config{InsecureSkipVerify: true}, Timeout: patience,
			Dialer: &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 77)}}}
		r, _, err := client.Exchange(new(mdns.Msg).SetQuestion("a.example.", mdns.TypeTXT), "127.0.0.1:"+port)
		if got := remote(r, err); got != "127.0.0.77" {
			t.Errorf("%s, %s: got client %s, want 127.0.0.77", c.send, c.net, got)
		}
	}
}

// dnsdist forwards queries over UDP and TCP with headers.
func TestProxyprotoDnsdist(t *testing.T) {
	debian.Program(t, "dnsdist")
	s := serveEncrypted(t, proxied("allow 127.0.0.1"))
	port := freeTCPPort(t)
	text := fmt.Sprintf("setLocal('127.0.0.1:%s')\nsetACL('127.0.0.0/8')\nnewServer({address='%s', useProxyProtocol=true}):setUp()\n", port, s.address("dns"))
	if err := os.WriteFile("dnsdist.conf", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	startProxy(t, port, "dnsdist", "-C", "dnsdist.conf", "--supervised", "--disable-syslog")
	for _, network := range []string{"udp", "tcp"} {
		client := &mdns.Client{Net: network, Timeout: patience, Dialer: &net.Dialer{}}
		client.Dialer.LocalAddr = &net.UDPAddr{IP: net.IPv4(127, 0, 0, 78)}
		if network == "tcp" {
			client.Dialer.LocalAddr = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 78)}
		}
		r, _, err := client.Exchange(new(mdns.Msg).SetQuestion("a.example.", mdns.TypeTXT), "127.0.0.1:"+port)
		if got := remote(r, err); got != "127.0.0.78" {
			t.Errorf("over %s: got client %s, want 127.0.0.78", network, got)
		}
	}
}

// linesWith returns the lines of text that contain a word.
func linesWith(text, word string) (lines string) {
	for line := range strings.Lines(text) {
		if strings.Contains(line, word) {
			lines += line
		}
	}
	return lines
}
