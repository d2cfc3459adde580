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
	"os"
	"strings"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
)

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
		os.WriteFile(b.file("certificate.pem"),
			pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}), 0o644),
		os.WriteFile(b.file("key.pem"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
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
