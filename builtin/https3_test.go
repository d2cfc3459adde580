package builtin

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	mdns "github.com/miekg/dns"
	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

// http3Client returns an HTTP client with HTTP/3.
func http3Client(t *testing.T) *http.Client {
	transport := &http3.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	t.Cleanup(func() { _ = transport.Close() })
	return &http.Client{Transport: transport, Timeout: 20 * time.Second}
}

// askHTTP sends a query with GET and returns the reply.
func askHTTP(client *http.Client, base string, packet []byte) (*mdns.Msg, error) {
	response, err := client.Get(base + "/dns-query?dns=" + base64.RawURLEncoding.EncodeToString(packet))
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	m := new(mdns.Msg)
	return m, m.Unpack(body)
}

// A connection has more requests than it may have at the same time. Its client cancels some,
// and the connection continues over a reload.
func TestHTTPS3Requests(t *testing.T) {
	block := "https3://. {\n https3 {\n  max_streams 10\n }" + answersOverHTTPS
	s := serveEncrypted(t, block)
	client, base := http3Client(t), "https://127.0.0.1:"+s.port(0)
	var requests sync.WaitGroup
	for i := range 200 {
		requests.Go(func() {
			if i%4 == 0 {
				ctx, cancel := context.WithCancel(t.Context())
				r, _ := http.NewRequestWithContext(ctx, "POST", base+"/dns-query", strings.NewReader("x"))
				time.AfterFunc(time.Duration(i)*10*time.Microsecond, cancel)
				if response, err := client.Do(r); err == nil {
					response.Body.Close()
				}
				return
			}
			m, err := askHTTP(client, base, packed(t, "a.example."))
			if err != nil || len(m.Answer) != 2 || !strings.Contains(m.Answer[0].String(), "127.0.0.1") {
				t.Errorf("request %d: got reply %v, error %v; want two records, with 127.0.0.1", i, m, err)
			}
		})
	}
	requests.Wait()
	s.load(strings.Replace(block, "max_streams 10", "max_streams 20", 1))
	if m, err := askHTTP(client, base, packed(t, "b.example.")); err != nil || len(m.Answer) != 2 {
		t.Errorf("after a reload: got reply %v, error %v; want two records", m, err)
	}
}

// A body that is not complete in time is refused, and others are answered meanwhile.
func TestHTTPS3SlowBody(t *testing.T) {
	s := serveEncrypted(t, "https3://. {\n timeouts {\n  read 1s\n }"+answersOverHTTPS)
	client, base := http3Client(t), "https://127.0.0.1:"+s.port(0)
	query := packed(t, "a.example.")
	body, writer := io.Pipe()
	defer writer.Close()
	go func() { _, _ = writer.Write(query[:10]) }()
	r, err := http.NewRequestWithContext(t.Context(), "POST", base+"/dns-query", body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", messageType)
	slow := make(chan int, 1)
	go func() {
		response, err := client.Do(r)
		if err != nil {
			slow <- 0
			return
		}
		response.Body.Close()
		slow <- response.StatusCode
	}()
	if m, err := askHTTP(client, base, query); err != nil || len(m.Answer) != 2 {
		t.Errorf("got reply %v, error %v; want two records", m, err)
	}
	select {
	case status := <-slow:
		if status != http.StatusBadRequest && status != 0 {
			t.Errorf("incomplete body: got status %d, want 400 or a reset", status)
		}
	case <-time.After(time.Minute):
		t.Error("an incomplete body was not refused")
	}
	if m, err := askHTTP(client, base, query); err != nil || len(m.Answer) != 2 {
		t.Errorf("after that: got reply %v, error %v; want two records", m, err)
	}
}

// A client that violates HTTP/3 is disconnected, and others are not.
func TestHTTPS3ProtocolErrors(t *testing.T) {
	s := serveEncrypted(t, "https3://. {"+answersOverHTTPS)
	h3 := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{http3.NextProtoH3}}
	good, base := http3Client(t), "https://127.0.0.1:"+s.port(0)
	for name, data := range map[string][]byte{
		"DATA before HEADERS":     {0, 1, 0},
		"a frame of HTTP/2":       {2, 0},
		"SETTINGS on the request": {4, 0},
	} {
		c := s.dialQUIC(h3)
		_ = c.stream(data).Close()
		var closed *quic.ApplicationError
		if err := c.closedWith(); !errors.As(err, &closed) || !closed.Remote || closed.ErrorCode == 0x100 {
			t.Errorf("%s: got %v, want that the server closes the connection with an error", name, err)
		}
	}
	c := s.dialQUIC(h3)
	for _, data := range [][]byte{nil, {1}, {1, 5, 0}, bytes.Repeat([]byte{0x21, 0}, 500)} {
		stream := c.stream(data)
		_ = stream.Close()
		_, _ = io.ReadAll(stream)
	}
	if m, err := askHTTP(good, base, packed(t, "a.example.")); err != nil || len(m.Answer) != 2 {
		t.Errorf("got reply %v, error %v; want two records", m, err)
	}
}

// The server closes connections without an error when it stops.
func TestHTTPS3Stop(t *testing.T) {
	s := serveEncrypted(t, "https3://. {"+answersOverHTTPS)
	c := s.dialQUIC(&tls.Config{InsecureSkipVerify: true, NextProtos: []string{http3.NextProtoH3}})
	stream := c.stream(nil)
	_ = stream.Close()
	_, _ = io.ReadAll(stream) // after the server's handshake
	s.load("https://. {" + answersOverHTTPS)
	if err := c.closedWith(); !isCode(err, 0x100) {
		t.Errorf("got %v, want H3_NO_ERROR", err)
	}
}
