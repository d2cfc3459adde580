//go:build linux

package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
)

// encrypted compares encrypted transports on persistent connections. Unbound has
// DoT and DoH, NSD has DoT; DoQ is compared with our DoH.
func (b *bench) encrypted(ctx context.Context) error {
	defer b.stopServers()
	if err := b.writeCertificate(); err != nil {
		return err
	}

	type listener struct {
		scenario, transport string
		address             func(encryptedPorts) netip.AddrPort
	}

	listeners := []listener{
		{"dot", overTLS, func(p encryptedPorts) netip.AddrPort { return p.tls }},
		{"doh", overHTTPS, func(p encryptedPorts) netip.AddrPort { return p.https }},
		{"doq", overQUIC, func(p encryptedPorts) netip.AddrPort { return p.quic }},
	}

	contenders := map[string][]contender{}
	for _, peer := range []struct {
		name       string
		start      func(encryptedPorts) (*server, error)
		transports int // the first ones of listeners
	}{
		{"seamark", b.seamarkEncrypted, 3},
		{"unbound", b.unboundEncrypted, 2},
		{"nsd", b.nsdEncrypted, 1},
	} {
		if peer.name != "seamark" && b.paths[peer.name] == "" {
			continue
		}

		ports, err := newEncryptedPorts()
		if err != nil {
			return err
		}

		s, err := peer.start(ports)
		if err != nil {
			return err
		}

		if err := s.await(ctx, b.pop.last()); err != nil {
			if ctx.Err() != nil || peer.name == "seamark" {
				return err
			}
			b.miss("%v", err) // the run continues without a peer that does not start
			continue
		}

		for _, l := range listeners[:peer.transports] {
			for _, clients := range []struct {
				scenario        string
				sockets, window int
			}{{l.scenario + " 16x1", 16, 16}, {l.scenario + " 16x6", 16, 16 * 6}, {l.scenario + " 1x100", 1, 100}} {
				load := b.load(s, "A")
				load.to, load.transport = l.address(ports), l.transport
				load.sockets, load.window, load.rate = clients.sockets, clients.window, 0
				contenders[clients.scenario] = append(contenders[clients.scenario], contender{peer.name, s, load})
			}
		}
	}

	for _, scenario := range []string{"dot 16x1", "dot 16x6", "dot 1x100", "doh 16x1", "doh 16x6", "doh 1x100",
		"doq 16x1", "doq 16x6", "doq 1x100"} {
		if err := b.compare(ctx, scenario, "ClusterIP, A, "+scenario, contenders[scenario]); err != nil {
			return err
		}
	}
	return nil
}

// encryptedPorts are the addresses of one server.
type encryptedPorts struct{ plain, tls, https, quic netip.AddrPort }

func newEncryptedPorts() (p encryptedPorts, err error) {
	for _, address := range []*netip.AddrPort{&p.plain, &p.tls, &p.https, &p.quic} {
		if *address, err = freeAddress(); err != nil {
			return p, err
		}
	}
	return p, nil
}

// seamarkEncrypted starts our server with DoT, DoH and DoQ.
func (b *bench) seamarkEncrypted(p encryptedPorts) (*server, error) {
	return b.configured("seamark", p.plain, lines(`
.:%d tls://.:%d https://.:%d quic://.:%d {
    bind 127.0.0.1
    tls %s %s
    errors
    kubernetes cluster.local in-addr.arpa ip6.arpa {
       %s
       ttl 30
    }
    cache 30 {
       disable success cluster.local
       disable denial cluster.local
    }
}
`, p.plain.Port(), p.tls.Port(), p.https.Port(), p.quic.Port(), b.certificateFile(), b.keyFile(), b.source()),
		b.binary, "serve", "--conf")
}

// unboundEncrypted starts Unbound with DoT and DoH.
func (b *bench) unboundEncrypted(p encryptedPorts) (*server, error) {
	return b.startUnbound(p.plain, lines(`
    num-threads: 1
    interface: 127.0.0.1@%d
    interface: 127.0.0.1@%d
    interface: 127.0.0.1@%d
    tls-port: %d
    https-port: %d
    tls-service-key: "%s"
    tls-service-pem: "%s"
    incoming-num-tcp: 100
`, p.plain.Port(), p.tls.Port(), p.https.Port(), p.tls.Port(), p.https.Port(), b.keyFile(), b.certificateFile()))
}

// nsdEncrypted starts NSD with DoT.
func (b *bench) nsdEncrypted(p encryptedPorts) (*server, error) {
	return b.configured("nsd", p.plain, lines(`
server:
    server-count: 1
    ip-address: 127.0.0.1@%d
    ip-address: 127.0.0.1@%d
    tls-port: %d
    tls-service-key: "%s"
    tls-service-pem: "%s"
    tcp-count: 100
    username: ""
    chroot: ""
    database: ""
    zonesdir: "%s"
    pidfile: ""
    xfrdfile: ""
    zonelistfile: "%s"
    verbosity: 0
remote-control:
    control-enable: no
zone:
    name: "%s"
    zonefile: cluster.zone
zone:
    name: "%s"
    zonefile: reverse.zone
`, p.plain.Port(), p.tls.Port(), p.tls.Port(), b.keyFile(), b.certificateFile(), b.dir,
		filepath.Join(b.dir, "nsd-zones"), forwardZone, reverseZone), b.paths["nsd"], "-d", "-c")
}

func (b *bench) certificateFile() string { return filepath.Join(b.dir, "certificate.pem") }
func (b *bench) keyFile() string         { return filepath.Join(b.dir, "key.pem") }

// writeCertificate writes a self-signed pair with an ECDSA P-256 key.
func (b *bench) writeCertificate() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(24 * time.Hour), DNSNames: []string{"bench.example"}}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(b.certificateFile(), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}),
			0o644),
		os.WriteFile(b.keyFile(), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
}

// clientTLS accepts any certificate: the servers are our own processes.
func clientTLS(protocols ...string) *tls.Config {
	return &tls.Config{InsecureSkipVerify: true, ServerName: "bench.example", NextProtos: protocols}
}

// requests keeps the client's share of the window outstanding on one HTTP/2
// connection.
func (l load) requests(ctx context.Context, client int, t *tally) error {
	transport := &http.Transport{
		TLSClientConfig:   clientTLS(),
		ForceAttemptHTTP2: true,
		MaxConnsPerHost:   1,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, l.to.String())
		},
	}
	defer transport.CloseIdleConnections()
	https := http.Client{Transport: transport, Timeout: patience}
	return l.outstanding(ctx, client, t, func(q *lookup) ([]byte, error) { return l.post(&https, q) })
}

// quicStreams keeps the client's share of the window outstanding on one QUIC connection.
func (l load) quicStreams(ctx context.Context, client int, t *tally) error {
	// The end of the load does not cancel the dial: the last answers are awaited.
	dialing, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	conn, err := quic.DialAddr(dialing, l.to.String(), clientTLS("doq"), &quic.Config{MaxIdleTimeout: patience})
	if err != nil {
		return err
	}
	defer conn.CloseWithError(0, "") // DOQ_NO_ERROR
	return l.outstanding(ctx, client, t, func(q *lookup) ([]byte, error) { return askQUIC(conn, q) })
}

// askQUIC sends a query on a stream of its own (RFC 9250 §4.2).
func askQUIC(conn *quic.Conn, q *lookup) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s, err := conn.OpenStreamSync(ctx)
	if err != nil {
		return nil, err
	}
	defer s.CancelRead(0)

	deadline, _ := ctx.Deadline()
	_ = s.SetDeadline(deadline)
	message := append(binary.BigEndian.AppendUint16(nil, uint16(len(q.packet))), q.packet...)
	message[2], message[3] = 0, 0 // the ID
	if _, err := s.Write(message); err != nil {
		return nil, err
	}
	if err := s.Close(); err != nil {
		return nil, err
	}

	reply, err := io.ReadAll(s)
	if err == nil && (len(reply) < 2 || int(binary.BigEndian.Uint16(reply)) != len(reply)-2) {
		err = errors.New("a stream that is not one message")
	}
	if err != nil {
		return nil, err
	}
	return reply[2:], nil
}

// outstanding keeps the client's share of the window outstanding by calls of ask.
func (l load) outstanding(ctx context.Context, client int, t *tally, ask func(*lookup) ([]byte, error)) error {
	var mu sync.Mutex
	var queries sync.WaitGroup
	var failed error
	window := l.window / l.sockets
	for i := range window {
		queries.Go(func() {
			at := (client*window + i) * len(l.lookups) / (l.sockets * window)
			for n := 0; ctx.Err() == nil; n++ {
				q := l.lookups[(at+n)%len(l.lookups)]
				packet, err := ask(q)
				mu.Lock()
				t.sent++
				var late net.Error
				switch {
				case err == nil:
					t.got(q, packet)
				case errors.As(err, &late) && late.Timeout():
					t.lost++
				default:
					failed = err
				}

				stop := failed != nil
				mu.Unlock()
				if stop {
					return
				}
			}
		})
	}

	queries.Wait()
	return failed
}

// post sends a query in a request of its own.
func (l load) post(https *http.Client, q *lookup) ([]byte, error) {
	reply, err := https.Post("https://"+l.to.String()+"/dns-query", "application/dns-message",
		bytes.NewReader(q.packet))
	if err != nil {
		return nil, err
	}
	defer reply.Body.Close()
	packet, err := io.ReadAll(reply.Body)
	if err == nil && (reply.StatusCode != http.StatusOK || !strings.HasPrefix(reply.Proto, "HTTP/2")) {
		err = fmt.Errorf("%s %s", reply.Proto, reply.Status)
	}
	return packet, err
}
