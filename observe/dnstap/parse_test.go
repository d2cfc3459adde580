package dnstap

import (
	"bytes"
	"context"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	framestream "github.com/farsightsec/golang-framestream"

	"github.com/seamark/seamark/dns"
)

func sample() Message {
	at := time.Unix(1_790_000_000, 5)
	return Message{
		Kind: ClientResponse, Client: netip.MustParseAddrPort("10.1.2.3:40000"), Server: netip.MustParseAddrPort("10.96.0.10:53"),
		Proto: dns.TCP, Query: at, Response: at.Add(time.Millisecond), Packet: []byte("response"), Identity: []byte("dns-1"), Version: []byte("1"), Extra: []byte("x"),
	}
}

func TestParse(t *testing.T) {
	query := sample()
	query.Kind, query.Response, query.Proto = ClientQuery, time.Time{}, dns.UDP
	query.Client, query.Server = netip.MustParseAddrPort("[fd00::3]:40000"), netip.MustParseAddrPort("[fd00::10]:53")
	for _, want := range []Message{sample(), query} {
		var got Message
		if err := got.Parse(want.Append(nil)); err != nil || !equal(&got, &want) {
			t.Errorf("got %+v and error %v, want %+v", got, err, want)
		}
	}
}

func equal(a, b *Message) bool {
	return a.Kind == b.Kind && a.Client == b.Client && a.Server == b.Server && a.Proto == b.Proto && a.Query.Equal(b.Query) && a.Response.Equal(b.Response) &&
		bytes.Equal(a.Packet, b.Packet) && bytes.Equal(a.Identity, b.Identity) && bytes.Equal(a.Version, b.Version) && bytes.Equal(a.Extra, b.Extra)
}

// FuzzParseMessage checks that a message that can be parsed is the same after it was encoded.
func FuzzParseMessage(f *testing.F) {
	m := sample()
	f.Add(m.Append(nil))
	f.Add(m.Append(nil)[:40])
	f.Fuzz(func(t *testing.T, payload []byte) {
		var m, again Message
		if m.Parse(payload) != nil || !m.Client.IsValid() || !m.Server.IsValid() || m.Client.Addr().Is4() != m.Server.Addr().Is4() {
			return
		}
		if err := again.Parse(m.Append(nil)); err != nil || !equal(&m, &again) {
			t.Errorf("got %+v and error %v, want %+v", again, err, m)
		}
	})
}

// file returns a Frame Streams file.
func file(t *testing.T, kind string, frames ...[]byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := framestream.NewWriter(&b, &framestream.WriterOptions{ContentTypes: [][]byte{[]byte(kind)}})
	if err != nil {
		t.Fatal(err)
	}
	for _, frame := range frames {
		if _, err := w.WriteFrame(frame); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestRead(t *testing.T) {
	valid := file(t, contentType, []byte("one"), make([]byte, maxFrame+1), []byte("two"))
	for _, c := range []struct {
		name, file, want, err string
	}{
		{"valid", string(valid), "one - two", ""},
		{"without STOP", string(valid[:len(valid)-12]), "one - two", ""},
		{"cut in a frame", string(valid[:len(valid)-13]), "one -", "the stream ends within a frame"},
		{"empty", "", "", "want a Frame Streams file of dnstap messages: unexpected EOF"},
		{"text", "hello, world", "", "it does not begin with a control frame"},
		{"another content", string(file(t, "text", []byte("one"))), "", "the frames have another content type"},
	} {
		var got []string
		err := Read(strings.NewReader(c.file), func(payload []byte) bool {
			if payload == nil {
				payload = []byte("-") // too large
			}
			got = append(got, string(payload))
			return true
		})
		if strings.Join(got, " ") != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: got %q and error %v, want %q and %q", c.name, got, err, c.want, c.err)
		}
	}
}

// The receiver accepts senders that come and go, and refuses what is no stream of dnstap.
func TestReceive(t *testing.T) {
	r, err := NewReceiver(Socket{Network: "tcp", Address: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	ends := make(chan error, 100)
	r.Disconnected = func(_ string, err error) { ends <- err }
	got := make(chan string, 100)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		done <- r.Receive(ctx, func(payload []byte) bool { got <- string(payload); return true })
	}()
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", r.Address().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	for _, text := range []string{"one", "two"} {
		w, err := framestream.NewWriter(dial(), &framestream.WriterOptions{ContentTypes: [][]byte{[]byte(contentType)}, Bidirectional: true, Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.WriteFrame([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil { // waits for FINISH
			t.Fatal(err)
		}
		if message, err := <-got, <-ends; message != text || err != nil {
			t.Errorf("got %q and error %v, want %q", message, err, text)
		}
	}
	garbage := dial()
	if _, err := garbage.Write([]byte("GET / HTTP/1.1\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	if err := <-ends; err == nil || !strings.Contains(err.Error(), "no stream of dnstap messages") {
		t.Errorf("garbage: got error %v", err)
	}
	var conns []net.Conn
	for range maxSenders + 1 { // all of them idle
		conns = append(conns, dial())
	}
	if err := <-ends; err == nil || !strings.Contains(err.Error(), "16 servers are connected") {
		t.Errorf("%d connections: got error %v", len(conns), err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Receive: got error %v, want none", err)
	}
	if conn, err := net.Dial("tcp", r.Address().String()); err == nil {
		_ = conn.Close()
		t.Error("the listener is open after Receive")
	}
}
