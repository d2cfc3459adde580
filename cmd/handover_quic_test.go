package cmd_test

import (
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
	"path/filepath"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/quic-go/quic-go"
	"github.com/seamark/seamark/test/freeport"
)

// writeCertificate writes a certificate and its key to cert.pem and key.pem.
func writeCertificate(t *testing.T, dir string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "cert.pem"), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})))
	write(t, filepath.Join(dir, "key.pem"), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})))
}

// A quicClient sends queries over one connection after the other.
type quicClient struct {
	at          string
	conn        *quic.Conn
	connections int
}

// ask sends a query, again if the server closes the connection with DOQ_NO_ERROR.
func (c *quicClient) ask(ctx context.Context) error {
	for {
		err := c.try(ctx)
		var closed *quic.ApplicationError
		if !errors.As(err, &closed) || !closed.Remote || closed.ErrorCode != 0 {
			return err
		}
		c.conn = nil
	}
}

func (c *quicClient) try(ctx context.Context) (err error) {
	if c.conn == nil {
		c.connections++
		if c.conn, err = quic.DialAddr(ctx, c.at, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"doq"}}, &quic.Config{HandshakeIdleTimeout: time.Minute}); err != nil {
			return err
		}
	}
	q := new(dns.Msg).SetQuestion(serviceName, dns.TypeA)
	q.Id = 0
	packet, err := q.Pack()
	if err != nil {
		return err
	}
	s, err := c.conn.OpenStreamSync(ctx)
	if err != nil {
		return err
	}
	deadline, _ := ctx.Deadline()
	_ = s.SetDeadline(deadline)
	if _, err = s.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(packet))), packet...)); err != nil {
		return err
	}
	_ = s.Close()
	reply, err := io.ReadAll(s)
	if err != nil {
		return err
	}
	m := new(dns.Msg)
	if err := m.Unpack(reply[2:]); err != nil || len(m.Answer) != 1 {
		return fmt.Errorf("got %v, error %v; want one address", m, err)
	}
	return nil
}

// Process after process takes over from the one before. Clients of DNS over QUIC see that their
// connection is closed without an error, and connect to the next process.
func TestHandoverQUIC(t *testing.T) {
	long(t)
	t.Parallel()
	dir, port, quicPort := t.TempDir(), freeport.Reserve(t), freeport.Reserve(t)
	writeCertificate(t, dir)
	write(t, filepath.Join(dir, "Corefile"), fmt.Sprintf(".:%s quic://.:%s {\n bind 127.0.0.1\n tls cert.pem key.pem\n handover seamark.sock\n hosts {\n 192.0.2.1 %s\n }\n}\n", port, quicPort, serviceName))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	c := &quicClient{at: "127.0.0.1:" + quicPort}
	p := serve(t, dir, "", "-conf", "Corefile")
	for restart := range 5 {
		asking := make(chan error)
		stop, end := context.WithCancel(t.Context())
		go func() {
			var err error
			for n := 0; err == nil && (n < 10 || stop.Err() == nil); n++ {
				err = c.ask(ctx)
			}
			asking <- err
		}()
		next := serve(t, dir, "", "-conf", "Corefile")
		if code := p.exit(); code != 0 {
			t.Errorf("exit status of the old process: got %d, want 0", code)
		}
		end()
		if err := <-asking; err != nil {
			t.Fatalf("restart %d: %v", restart, err)
		}
		p = next
	}
	if err := c.ask(ctx); err != nil {
		t.Fatal(err)
	}
	if c.connections > 11 {
		t.Errorf("got %d connections for 5 restarts, want at most 11", c.connections)
	}
	p.stop()
	_ = c.conn.CloseWithError(0, "")
}
