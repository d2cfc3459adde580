package builtin

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	mdns "github.com/miekg/dns"
	"github.com/quic-go/quic-go"
)

// answersOverQUIC is the rest of a server block that answers names below example, fails for
// others, and does not answer MX queries.
const answersOverQUIC = answersOverHTTPS

// A doqClient is a connection to the server.
type doqClient struct {
	t *testing.T
	*quic.Conn
}

// dialQUIC connects to the server.
func (s *encrypted) dialQUIC(config *tls.Config) doqClient {
	s.t.Helper()
	c, err := s.tryQUIC(config)
	if err != nil {
		s.t.Fatal(err)
	}
	return doqClient{s.t, c}
}

func (s *encrypted) tryQUIC(config *tls.Config) (*quic.Conn, error) {
	if config == nil {
		config = &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"doq"}}
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), 20*time.Second)
	defer cancel()
	c, err := quic.DialAddr(ctx, "127.0.0.1:"+s.port(0), config, nil)
	if err == nil {
		s.t.Cleanup(func() { _ = c.CloseWithError(0, "") })
	}
	return c, err
}

// stream opens a stream and writes data.
func (c doqClient) stream(data []byte) *quic.Stream {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 20*time.Second)
	defer cancel()
	s, err := c.OpenStreamSync(ctx)
	if err == nil {
		_ = s.SetDeadline(time.Now().Add(time.Minute))
		_, err = s.Write(data)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return s
}

// withLength returns a message preceded by its length.
func withLength(message []byte) []byte {
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(message))), message...)
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
	m := new(mdns.Msg)
	return m, m.Unpack(all[2:])
}

// exchange sends a query on a stream of its own.
func (c doqClient) exchange(packet []byte) (*mdns.Msg, error) {
	s := c.stream(withLength(packet))
	if err := s.Close(); err != nil {
		return nil, err
	}
	return readReply(s)
}

// mustAnswer fails the test unless the server answers.
func (c doqClient) mustAnswer(name string) {
	c.t.Helper()
	m, err := c.exchange(packed(c.t, name))
	if err != nil || m.Rcode != mdns.RcodeSuccess || len(m.Answer) == 0 {
		c.t.Fatalf("%s: got reply %v, error %v; want records", name, m, err)
	}
}

// closedWith waits until the server has closed the connection, and returns its error.
func (c doqClient) closedWith() error {
	c.t.Helper()
	select {
	case <-c.Context().Done():
	case <-time.After(time.Minute):
		c.t.Fatal("the server has not closed the connection")
	}
	return context.Cause(c.Context())
}

func isCode(err error, code quic.ApplicationErrorCode) bool {
	var closed *quic.ApplicationError
	return errors.As(err, &closed) && closed.Remote && closed.ErrorCode == code
}

// Each query of kdig has a connection of its own: with +keepopen kdig 3.2 writes the second query
// to the first stream, and fails, unless the server has acknowledged the first one completely.
func TestQUICKdig(t *testing.T) {
	s := serveEncrypted(t, "quic://. {"+answersOverQUIC)
	for _, options := range []string{"+tls-ca=ca.pem +tls-hostname=dns.example +quic", "+quic +padding=128"} {
		args := append(strings.Fields(options), "@127.0.0.1", "-p", s.port(0), "a.example", "TXT", "missing.example", "TXT")
		out := s.run("kdig", args...)
		if !strings.Contains(out, `TXT	"127.0.0.1"`) || !strings.Contains(out, "NXDOMAIN") || !strings.Contains(out, "QUIC") {
			t.Errorf("kdig %s: got\n%s\nwant a record with 127.0.0.1, and NXDOMAIN", options, out)
		}
	}
	if out := s.run("kdig", "+quic", "+padding=100", "@127.0.0.1", "-p", s.port(0), "a.example", "TXT"); !strings.Contains(out, "468 B") {
		t.Errorf("kdig +padding: got\n%s\nwant a reply of 468 bytes", out)
	}
}

// A connection has more queries at the same time than it may have streams, with the replies
// in any order.
func TestQUICManyQueries(t *testing.T) {
	s := serveEncrypted(t, "quic://. {\n quic {\n  max_streams 16\n }"+answersOverQUIC)
	c := s.dialQUIC(nil)
	var queries sync.WaitGroup
	for i := range 300 {
		queries.Go(func() {
			m, err := c.exchange(packed(t, fmt.Sprintf("a%d.example.", i)))
			if err != nil || len(m.Answer) != 2 || !strings.Contains(m.Answer[0].String(), "127.0.0.1") {
				t.Errorf("query %d: got reply %v, error %v; want two records, with 127.0.0.1", i, m, err)
			}
		})
	}
	queries.Wait()
	if p := c.ConnectionState().TLS.NegotiatedProtocol; p != "doq" {
		t.Errorf("got protocol %q, want doq", p)
	}
	mx := packed(t, "a.example.")
	mx[len(mx)-3] = byte(mdns.TypeMX)
	var reset *quic.StreamError
	if m, err := c.exchange(mx); !errors.As(err, &reset) {
		t.Errorf("dropped query: got reply %v, error %v; want a reset", m, err)
	}
	c.mustAnswer("a.example.")
}

// Messages that violate RFC 9250 close the connection.
func TestQUICProtocolErrors(t *testing.T) {
	s := serveEncrypted(t, "quic://. {"+answersOverQUIC)
	query := packed(t, "a.example.")
	withID := bytes.Clone(query)
	withID[1] = 1
	reply := bytes.Clone(query)
	reply[2] |= 0x80
	keepalive := new(mdns.Msg).SetQuestion("a.example.", mdns.TypeTXT)
	keepalive.Id = 0
	keepalive.SetEdns0(1232, false)
	keepalive.IsEdns0().Option = append(keepalive.IsEdns0().Option, &mdns.EDNS0_TCP_KEEPALIVE{Code: mdns.EDNS0TCPKEEPALIVE})
	withKeepalive, err := keepalive.Pack()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		data []byte
	}{
		{"ID", withLength(withID)},
		{"keepalive", withLength(withKeepalive)},
		{"reply", withLength(reply)},
		{"empty stream", nil},
		{"half of the length", []byte{0}},
		{"empty message", []byte{0, 0}},
		{"short message", withLength(query[:11])},
		{"incomplete message", withLength(query)[:20]},
		{"more than a message", append(withLength(query), 0)},
		{"two messages", append(withLength(query), withLength(query)...)},
		{"no length", query},
		{"incomplete large message", append([]byte{0xff, 0xff}, query...)},
		{"more than the largest message", append([]byte{0xff, 0xff}, make([]byte, 1<<16)...)},
	} {
		t.Run(c.name, func(t *testing.T) {
			client := s.dialQUIC(nil)
			client.mustAnswer("b.example.")
			_ = client.stream(c.data).Close()
			if err := client.closedWith(); !isCode(err, 2) {
				t.Errorf("got %v, want DOQ_PROTOCOL_ERROR", err)
			}
		})
	}
	s.dialQUIC(nil).mustAnswer("a.example.")
}
