package transport

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"math/big"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/test/chaintest"
)

// withTLS reports whether the listeners of a test have TLS.
func withTLS(t *testing.T) bool { return strings.HasPrefix(t.Name(), "TestTLS") }

// certificate returns a self-signed certificate for dns.test.
func certificate(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "dns.test"}, DNSNames: []string{"dns.test"},
		NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// serverTLS returns a source with a new certificate.
func serverTLS(t *testing.T) *TLS {
	config := &tls.Config{Certificates: []tls.Certificate{certificate(t)}}
	source := new(TLS)
	source.Set(func() *tls.Config { return config })
	return source
}

func clientTLS() *tls.Config {
	return &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"dot"}, ClientSessionCache: tls.NewLRUClientSessionCache(1)}
}

// TestTLS runs the tests of TCP over TLS.
func TestTLS(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	for name, test := range map[string]func(*testing.T){
		"TCP": TestTCP, "Sizes": TestTCPSizes, "Pipelined": TestTCPPipelined, "OutOfOrder": TestTCPOutOfOrder,
		"HalfClosed": TestTCPHalfClosed, "Addresses": TestTCPAddresses, "Garbage": TestTCPGarbage,
		"Hostile": TestTCPHostile, "Stop": TestTCPStop, "StopLoad": TestTCPStopLoad, "StopFirstQuery": TestTCPStopFirstQuery,
		"StopLastQuery": TestTCPStopLastQuery, "StopBeforeWake": TestTCPStopBeforeWake, "Idle": TestTCPIdle,
		"SlowSender": TestTCPSlowSender, "SetLimits": TestTCPSetLimits, "MaxQueries": TestTCPMaxQueries,
		"MaxQueriesLowered": TestTCPMaxQueriesLowered, "InFlight": TestTCPInFlight, "MaxConnsPerClient": TestTCPMaxConnsPerClient,
		"MaxConns": TestTCPMaxConns, "NeverReads": TestTCPNeverReads, "NeverReadsParked": TestTCPNeverReadsParked,
		"NeverReadsLarge": TestTCPNeverReadsLarge, "SlowReader": TestTCPSlowReader, "Portable": TestTCPPortable,
	} {
		t.Run(name, test)
	}
}

// A client that does not complete the handshake is disconnected after the message timeout,
// and does not delay others.
func TestTLSHandshakeTimeout(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	s := serve(t, "127.0.0.1", Options{Limits: Limits{MessageTimeout: time.Second}})
	silent, partial, plain := dial(t, "tcp", s.at("127.0.0.1")), dial(t, "tcp", s.at("127.0.0.1")), dial(t, "tcp", s.at("127.0.0.1"))
	_, _ = partial.Write([]byte{22, 3, 1, 2, 0, 1})
	_, _ = plain.Write(framed(pack(t, newQuery("a.in.", mdns.TypeA))))
	chaintest.Eventually(t, "the handshakes have begun", func() bool {
		begun := blocked("(*conn).handshake(") + s.count(`seamark_transport_connections_closed_total{why="handshake"}`)
		return begun == 3
	})

	s.SetLimits(Limits{MessageTimeout: patience}) // for c, beside other load
	c := dialTCP(t, s, "127.0.0.1")
	c.ask(1, "a.in.", mdns.TypeA)
	wantA(t, c.next(), 1)
	for _, c := range []net.Conn{silent, partial, plain} {
		if _, err := io.ReadAll(c); err != nil && !strings.Contains(err.Error(), "reset") {
			t.Errorf("got error %v, want the end of the connection", err)
		}
	}
	chaintest.Eventually(t, "three failures are counted", func() bool { return s.count(`seamark_transport_connections_closed_total{why="handshake"}`) == 3 })
}

// A changed certificate is used for new connections. Open ones continue, and clients
// resume sessions of before.
func TestTLSSetTLS(t *testing.T) {
	s := serve(t, "127.0.0.1", Options{})
	config := clientTLS()
	connect := func() *tls.Conn {
		t.Helper()
		c := tls.Client(dial(t, "tcp", s.at("127.0.0.1")), config)
		tcpClient{c, nil, t}.ask(1, "a.in.", mdns.TypeA)
		wantA(t, tcpClient{c, nil, t}.next(), 1)
		return c
	}
	first := connect()
	if p := first.ConnectionState().NegotiatedProtocol; p != "dot" {
		t.Errorf("got protocol %q, want dot", p)
	}
	if again := connect(); !again.ConnectionState().DidResume {
		t.Error("the second connection did not resume the session")
	}
	changed := &tls.Config{Certificates: []tls.Certificate{certificate(t)}}
	s.SetTLS(func() *tls.Config { return changed })
	tcpClient{first, nil, t}.ask(2, "a.in.", mdns.TypeA)
	wantA(t, tcpClient{first, nil, t}.next(), 1)
	if again := connect(); !again.ConnectionState().DidResume {
		t.Error("after the change a connection did not resume the session")
	}
	config = clientTLS()
	if got := connect().ConnectionState().PeerCertificates[0]; !got.Equal(leaf(t, changed)) {
		t.Errorf("got certificate %v, want the changed one", got.SerialNumber)
	}
}

func leaf(t *testing.T, c *tls.Config) *x509.Certificate {
	t.Helper()
	cert, err := x509.ParseCertificate(c.Certificates[0].Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// Clients over the limit of connections replace idle ones, whether or not these have
// completed the handshake. Idle connections need no goroutine.
func TestTLSManyIdle(t *testing.T) {
	const most = 50
	s := serve(t, "127.0.0.1", Options{MaxConns: most, MaxConnsPerClient: 1000})
	for i := range 4 * most {
		c := dialTCP(t, s, "127.0.0.1")
		if i%2 == 0 {
			c.ask(1, "a.in.", mdns.TypeA)
			wantA(t, c.next(), 1)
		}
	}
	if n := len(s.conns.list()); n > most {
		t.Errorf("%d connections are open, want at most %d", n, most)
	}
	c := dialTCP(t, s, "127.0.0.1")
	c.ask(1, "a.in.", mdns.TypeA)
	wantA(t, c.next(), 1)
}

// A listener with TLS passes its socket, but no connections, and refuses connections of
// other processes.
func TestTLSHandOver(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	s := serve(t, "127.0.0.1", Options{Grace: patience})
	open := dialTCP(t, s, "127.0.0.1")
	open.ask(1, "a.in.", mdns.TypeA)
	wantA(t, open.next(), 1)
	files, err := s.Files()
	if err != nil || len(files) != 1 {
		t.Fatalf("got %d sockets, error %v; want 1", len(files), err)
	}
	in := new(Inherited)
	if err := in.Add(false, files...); err != nil {
		t.Fatal(err)
	}
	next := serve(t, netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), s.Addr().Port()).String(), Options{Inherited: in})
	err = s.HandOver(t.Context(), func(Conn) error { t.Error("a connection was passed"); return nil })
	if err != nil {
		t.Fatal(err)
	}
	c := dialTCP(t, next, "127.0.0.1")
	c.ask(1, "a.in.", mdns.TypeA)
	wantA(t, c.next(), 1)
	open.ask(2, "a.in.", mdns.TypeA) // until the old process stops
	wantA(t, open.next(), 1)
	s.Stop()
	_, file := files[0], dial(t, "tcp", s.at("127.0.0.1"))
	f, err := file.(*net.TCPConn).File()
	if err != nil {
		t.Fatal(err)
	}
	if err := next.Adopt(Conn{File: f}); err == nil {
		t.Error("a connection without TLS was adopted")
	}
}
