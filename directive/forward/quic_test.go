package forward

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seamark/seamark/test/bound"

	mdns "github.com/miekg/dns"
	"github.com/quic-go/quic-go"

	"github.com/seamark/seamark/dns"
)

// A quicUpstream is an upstream over QUIC.
type quicUpstream struct {
	t       *testing.T
	addr    string
	config  *tls.Config
	answer  func(q *mdns.Msg, s *quic.Stream)
	socket  *net.UDPConn
	opened  atomic.Int32 // connections
	ended   chan error   // the reasons why connections ended
	running sync.WaitGroup
}

// newQUICUpstream starts an upstream at a free port. answer is called for each stream; the
// default is an answer with the address 192.0.2.1.
func newQUICUpstream(t *testing.T, c *tls.Config, answer func(q *mdns.Msg, s *quic.Stream)) *quicUpstream {
	t.Helper()
	u := &quicUpstream{t: t, addr: "127.0.0.1:0", config: c.Clone(), answer: answer, ended: make(chan error, 100)}
	u.config.NextProtos = []string{"doq"}
	if answer == nil {
		u.answer = func(q *mdns.Msg, s *quic.Stream) { sendReplies(s, pack(answerOf(q, "1"))) }
	}
	u.start()
	t.Cleanup(func() { u.kill(); u.running.Wait() })
	return u
}

// start serves at the upstream's address.
func (u *quicUpstream) start() {
	u.t.Helper()
	at, err := net.ResolveUDPAddr("udp", u.addr)
	if err != nil {
		u.t.Fatal(err)
	}
	if u.socket, err = net.ListenUDP("udp", at); err != nil {
		u.t.Fatal(err)
	}
	u.addr = u.socket.LocalAddr().String()
	l, err := (&quic.Transport{Conn: u.socket}).Listen(u.config, &quic.Config{MaxIncomingStreams: 100})
	if err != nil {
		u.t.Fatal(err)
	}
	u.running.Go(func() {
		for {
			c, err := l.Accept(context.Background())
			if err != nil {
				return
			}
			u.opened.Add(1)
			u.running.Go(func() { u.serve(c) })
		}
	})
}

// kill ends the upstream without closing its connections, as the end of a process does.
func (u *quicUpstream) kill() { _ = u.socket.Close() }

func (u *quicUpstream) serve(c *quic.Conn) {
	defer func() {
		<-c.Context().Done()
		u.ended <- context.Cause(c.Context())
	}()
	for {
		s, err := c.AcceptStream(context.Background())
		if err != nil {
			return
		}
		u.running.Go(func() {
			_ = s.SetReadDeadline(time.Now().Add(time.Minute))
			packet, err := io.ReadAll(s)
			if err != nil {
				return
			}
			q := new(mdns.Msg)
			if len(packet) < 2 || int(binary.BigEndian.Uint16(packet)) != len(packet)-2 || q.Unpack(packet[2:]) != nil || q.Id != 0 || (len(packet)-2)%128 != 0 {
				u.t.Errorf("got %x, want one query of a multiple of 128 bytes, with the ID 0 and its length", packet)
			}
			if q.Question[0].Qtype == mdns.TypeNS { // a health check
				sendReplies(s, pack(answerOf(q, "0")))
				return
			}
			u.answer(q, s)
		})
	}
}

// sendReplies writes messages with their lengths, and ends the stream.
func sendReplies(s *quic.Stream, messages ...[]byte) {
	for _, m := range messages {
		_, _ = s.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(m))), m...))
	}
	_ = s.Close()
}

func TestQUICUpstream(t *testing.T) {
	ca := newTestCA(t)
	up := newQUICUpstream(t, ca.config(false), nil)
	pem := ca.file("ca.pem")
	for _, c := range []struct{ server, options, want string }{
		{"", "tls " + pem, "192.0.2.1"}, // by the address
		{"%dns.example", "tls " + pem, "192.0.2.1"},
		{"", "tls " + pem + "\n tls_servername dns.example", "192.0.2.1"},
		{"%other.example", "tls " + pem, "SERVFAIL"},
		{"", "tls " + pem + "\n tls_servername other.example", "SERVFAIL"},
		{"", "", "SERVFAIL"}, // the machine does not know the authority
	} {
		host, port, _ := net.SplitHostPort(up.addr)
		r := newHarness(t, "forward . quic://"+host+c.server+":"+port+" {\n "+c.options+"\n}")
		for _, proto := range []dns.Proto{dns.UDP, dns.TCP} {
			m, err := r.ask(query("a.example.", mdns.TypeA), proto)
			if brief(m) != c.want || (err != nil) != (c.want == "SERVFAIL") {
				t.Errorf("%s %q: %v, got %s, want %s", c.server, c.options, err, brief(m), c.want)
			}
		}
	}
}

// Queries share one connection, also more than the upstream allows streams, with the replies in
// any order. It is closed when it has not been used for the time of expire.
func TestQUICUpstreamConnection(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	ca := newTestCA(t)
	var waiting atomic.Int32
	gate := make(chan struct{})
	up := newQUICUpstream(t, ca.config(false), func(q *mdns.Msg, s *quic.Stream) {
		if waiting.Add(1) == 50 {
			close(gate)
		}
		<-gate
		sendReplies(s, pack(answerOf(q, "1")))
	})
	r := newHarness(t, "forward . quic://"+up.addr+" {\n tls "+ca.file("ca.pem")+"\n expire 3s\n read_timeout 4s\n}")
	r.forward[0].set.minSilence = 2 * time.Second // a busy machine acknowledges late
	r.sendOnce()
	var asking sync.WaitGroup
	for i := range 250 { // less than the share of one client
		asking.Go(func() { r.wantAnswer(fmt.Sprintf("n%d.example.", i), mdns.TypeA, "192.0.2.1") })
	}
	asking.Wait()
	if n := up.opened.Load(); n != 1 {
		t.Errorf("got %d connections, want 1", n)
	}
	if got := r.metric(`coredns_proxy_conn_cache_misses_total{proxy_name="forward",to="` + up.addr + `",proto="quic"}`); got != "1" {
		t.Errorf("misses of the connection cache: got %q, want 1", got)
	}
	select {
	case err := <-up.ended:
		var closed *quic.ApplicationError
		if !errors.As(err, &closed) || !closed.Remote || closed.ErrorCode != 0 {
			t.Errorf("the connection ended with %v, want DOQ_NO_ERROR", err)
		}
	case <-time.After(time.Minute):
		t.Error("the connection has not expired after a minute, want 3s")
	}
	r.wantAnswer("later.example.", mdns.TypeA, "192.0.2.1")
}

// Replies that violate the protocol are not used, and queries that follow are answered.
func TestQUICUpstreamInvalidReplies(t *testing.T) {
	ca := newTestCA(t)
	up := newQUICUpstream(t, ca.config(false), func(q *mdns.Msg, s *quic.Stream) {
		good := pack(answerOf(q, "1"))
		switch name, _, _ := strings.Cut(q.Question[0].Name, "."); name {
		case "reset":
			s.CancelWrite(5)
		case "empty":
			_ = s.Close()
		case "incomplete":
			_, _ = s.Write([]byte{0, 100, 0, 0})
			_ = s.Close()
		case "two":
			sendReplies(s, good, good)
		case "id":
			sendReplies(s, packForged(q, func(m *mdns.Msg) { m.Id = 7 }))
		case "question":
			sendReplies(s, packForged(q, func(m *mdns.Msg) { m.Question[0].Name = "b.example." }))
		case "garbage":
			sendReplies(s, []byte{0, 0, 1})
		case "endless": // without the end of the stream
			_, _ = s.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(good))), good...))
		default:
			sendReplies(s, good)
		}
	})
	r := newHarness(t, "forward . quic://"+up.addr+" {\n tls "+ca.file("ca.pem")+"\n max_connect_attempts 2\n max_fails 0\n}")
	for _, name := range []string{"reset", "empty", "incomplete", "two", "id", "question", "garbage"} {
		r.wantAnswer(name+".example.", mdns.TypeA, "SERVFAIL")
		r.wantAnswer("after-"+name+".example.", mdns.TypeA, "192.0.2.1")
	}
	r.wantAnswer("endless.example.", mdns.TypeA, "192.0.2.1")
}

// After the upstream has restarted without closing its connections, or while it is away, queries
// do not wait for the connection that was open.
func TestQUICUpstreamRestart(t *testing.T) {
	const soon = exchangeTimeout - time.Second
	ca := newTestCA(t)
	up := newQUICUpstream(t, ca.config(false), nil)
	r := newHarness(t, "forward . quic://"+up.addr+" {\n tls "+ca.file("ca.pem")+"\n read_timeout 10s\n max_fails 0\n}")
	r.sendOnce() // so that no query is sent again because of its time alone
	for i := range 3 {
		r.wantAnswer(fmt.Sprintf("before%d.example.", i), mdns.TypeA, "192.0.2.1")
		up.kill()
		up.start()
		start := time.Now()
		r.wantAnswer(fmt.Sprintf("after%d.example.", i), mdns.TypeA, "192.0.2.1")
		bound.AtMost(t, "a query after a restart", time.Since(start), soon)
		up.kill()
		start = time.Now()
		r.wantAnswer(fmt.Sprintf("away%d.example.", i), mdns.TypeA, "SERVFAIL")
		bound.AtMost(t, "a query without an upstream", time.Since(start), soon)
		up.start()
	}
}
