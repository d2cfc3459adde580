package builtin

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	framestream "github.com/farsightsec/golang-framestream"
	mdns "github.com/miekg/dns"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/server"
	"github.com/seamark/seamark/test/debian"
	"github.com/seamark/seamark/test/freeport"
)

// query sends a query to the nth address and returns the reply.
func (s *encrypted) query(n int, name string) *mdns.Msg {
	s.t.Helper()
	q := new(mdns.Msg)
	q.SetQuestion(name, mdns.TypeA)
	reply, _, err := (&mdns.Client{Timeout: patience}).Exchange(q, "127.0.0.1:"+s.port(n))
	if err != nil {
		s.t.Fatal(err)
	}
	return reply
}

// stop stops the server before the end of the test.
func (s *encrypted) stop() {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	s.plan.Stop(ended)
}

// lost returns the number of lost messages by the metric.
func (s *encrypted) lost() (n int) {
	s.t.Helper()
	var text bytes.Buffer
	if err := s.metrics.WriteText(&text); err != nil {
		s.t.Fatal(err)
	}
	for line := range strings.Lines(text.String()) {
		if _, text, ok := strings.Cut(line, "} "); ok && strings.HasPrefix(line, "seamark_dnstap_lost_messages_total{") {
			value := 0
			_, _ = fmt.Sscan(text, &value)
			n += value
		}
	}
	return n
}

// dnsUpstream starts a server that answers every query with 192.0.2.7.
func dnsUpstream(t *testing.T) (at string) {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &mdns.Server{PacketConn: conn, Handler: mdns.HandlerFunc(func(w mdns.ResponseWriter, q *mdns.Msg) {
		reply := new(mdns.Msg).SetReply(q)
		reply.Answer = []mdns.RR{&mdns.A{Hdr: mdns.RR_Header{Name: q.Question[0].Name, Rrtype: mdns.TypeA, Class: mdns.ClassINET, Ttl: 60}, A: net.IPv4(192, 0, 2, 7)}}
		_ = w.WriteMsg(reply)
	})}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = s.ActivateAndServe() }()
	t.Cleanup(func() { _ = s.Shutdown(); <-ended })
	return conn.LocalAddr().String()
}

// The messages are read by fstrm_capture and printed by dnstap-ldns, two programs that
// others have written.
func TestDnstapCapture(t *testing.T) {
	for _, name := range []string{"fstrm_capture", "dnstap-ldns"} {
		debian.Program(t, name)
	}
	upstream := dnsUpstream(t)
	s := serveEncrypted(t, fmt.Sprintf(`. {
    dnstap unix://tap.sock full {
        identity ns1.example
        version "Test 1"
    }
    forward . %s
}`, upstream))
	// The server has started first: it connects once there is a receiver.
	s.query(0, "www.example.")
	capture := exec.Command("fstrm_capture", "-t", "protobuf:dnstap.Dnstap", "-u", "tap.sock", "-w", "tap.fstrm")
	capture.Stderr = os.Stderr
	if err := capture.Start(); err != nil {
		t.Fatal(err)
	}
	s.eventually("fstrm_capture has a file", func() bool { _, err := os.Stat("tap.fstrm"); return err == nil })
	s.eventually("the server is connected", func() bool { return s.log.contains("Connected to receiver") })
	s.stop() // sends everything
	_ = capture.Process.Signal(os.Interrupt)
	if err := capture.Wait(); err != nil {
		t.Fatalf("fstrm_capture: %v", err)
	}
	out := s.run("dnstap-ldns", "-y", "-r", "tap.fstrm")
	host, port, _ := net.SplitHostPort(upstream)
	for text, want := range map[string]int{
		"type: CLIENT_QUERY": 1, "type: CLIENT_RESPONSE": 1, "type: FORWARDER_QUERY": 1, "type: FORWARDER_RESPONSE": 1,
		`identity: "ns1.example"`: 4, `version: "Test 1"`: 4,
		"socket_family: INET": 4, "socket_protocol: UDP": 4,
		`response_address: "` + host: 4, "response_port: " + port: 2, "response_port: " + s.port(0): 2,
		"www.example.\t60\tIN\tA\t192.0.2.7": 2, ";; QUESTION SECTION": 4,
	} {
		if got := strings.Count(out, text); got != want {
			t.Errorf("dnstap-ldns: got %q %d times, want %d, in\n%s", text, got, want, out)
		}
	}
	if n := s.lost(); n != 0 {
		t.Errorf("got %d lost messages, want none", n)
	}
}

// A receiver is a dnstap receiver that connects to the server.
type receiver struct {
	t      *testing.T
	conn   net.Conn
	frames *framestream.Reader
}

func newReceiver(t *testing.T, at string, config *tls.Config) *receiver {
	t.Helper()
	var conn net.Conn
	var err error
	if config == nil {
		conn, err = net.Dial("tcp", at)
	} else {
		conn, err = tls.Dial("tcp", at, config)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	r := &receiver{t: t, conn: conn}
	r.frames, err = framestream.NewReader(conn, &framestream.ReaderOptions{
		ContentTypes: [][]byte{[]byte("protobuf:dnstap.Dnstap")}, Bidirectional: true, Timeout: patience,
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// next returns the types of the next n messages, and the text extra of the last.
func (r *receiver) next(n int) string {
	r.t.Helper()
	var kinds []uint64
	extra := ""
	buf := make([]byte, 1<<20)
	for range n {
		size, err := r.frames.ReadFrame(buf)
		if err != nil {
			r.t.Fatalf("after messages of types %v: %v", kinds, err)
		}
		kinds = append(kinds, varint(r.t, field(r.t, buf[:size], 14), 1))
		extra = string(field(r.t, buf[:size], 3))
	}
	return fmt.Sprint(kinds, " ", extra)
}

// field returns a field of a message, which must have it.
func field(t *testing.T, message []byte, number protowire.Number) (value []byte) {
	t.Helper()
	for rest := message; len(rest) > 0; {
		n, kind, length := protowire.ConsumeTag(rest)
		if length < 0 {
			t.Fatalf("invalid message %x", message)
		}
		rest = rest[length:]
		size := protowire.ConsumeFieldValue(n, kind, rest)
		if size < 0 {
			t.Fatalf("invalid message %x", message)
		}
		if n == number {
			value = rest[:size]
			if kind == protowire.BytesType {
				value, _ = protowire.ConsumeBytes(value)
			}
			return value
		}
		rest = rest[size:]
	}
	t.Fatalf("message %x: no field %d", message, number)
	return nil
}

func varint(t *testing.T, message []byte, number protowire.Number) uint64 {
	t.Helper()
	n, _ := protowire.ConsumeVarint(field(t, message, number))
	return n
}

func freeAddress(t *testing.T) string {
	t.Helper()
	return "127.0.0.1:" + freeport.Reserve(t)
}

func TestDnstapListen(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	plain, encrypted := freeAddress(t), freeAddress(t)
	upstream := dnsUpstream(t)
	text := fmt.Sprintf(`. {
    metadata
    dnstap listen tcp://%s {
        extra "{name} via {/forward/upstream}"
    }
    forward . %s
}
`, plain, upstream)
	s := serveEncrypted(t, strings.Replace(text, "    forward", fmt.Sprintf(`    dnstap listen tls://%s full {
        extra "{name} via {/forward/upstream}"
        tls cert.pem key.pem
    }
    forward`, encrypted), 1))
	receivers := []*receiver{newReceiver(t, plain, nil), newReceiver(t, plain, nil), newReceiver(t, encrypted, &tls.Config{InsecureSkipVerify: true})}
	s.query(0, "www.example.")
	want := "[7 8 5 6] www.example. via " + upstream
	for i, r := range receivers {
		if got := r.next(4); got != want {
			t.Errorf("receiver %d: got messages %s, want %s", i, got, want)
		}
	}
	// A reload keeps the connections.
	s.load(text)
	s.query(0, "www.example.")
	if got := receivers[0].next(4); got != want {
		t.Errorf("after a reload: got messages %s, want %s", got, want)
	}
	if n := s.lost(); n != 0 {
		t.Errorf("got %d lost messages, want none", n)
	}
	// At most 8 receivers.
	for range 6 {
		newReceiver(t, plain, nil)
	}
	conn, err := net.Dial("tcp", plain)
	if err != nil {
		return // it has been reset already
	}
	defer conn.Close()
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	if n, err := conn.Read(make([]byte, 1)); err == nil {
		t.Errorf("ninth receiver: got %d bytes, want a closed connection", n)
	}
}

// A listener takes the place of the socket of a process that was killed, and a reload changes the files of an open one,
// whose receivers have to connect again.
func TestDnstapListenAgain(t *testing.T) {
	stale, encrypted := filepath.Join(t.TempDir(), "tap.sock"), freeAddress(t)
	killed, err := net.ListenUnix("unix", &net.UnixAddr{Name: stale, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	killed.SetUnlinkOnClose(false)
	_ = killed.Close()

	text := fmt.Sprintf(". {\n dnstap listen unix://%s\n dnstap listen tls://%s {\n extra x\n tls cert.pem key.pem\n }\n whoami\n}", stale, encrypted)
	s := serveEncrypted(t, text)
	first := newReceiver(t, encrypted, &tls.Config{InsecureSkipVerify: true})
	for _, name := range []string{"cert.pem", "key.pem"} {
		pem, err := os.ReadFile(name)
		if err == nil {
			err = os.WriteFile("renewed-"+name, pem, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	s.load(strings.Replace(text, "tls cert.pem key.pem", "tls renewed-cert.pem renewed-key.pem", 1))

	second := newReceiver(t, encrypted, &tls.Config{InsecureSkipVerify: true})
	s.query(0, "www.example.")
	if got := second.next(2); got != "[5 6] x" {
		t.Errorf("got messages %q, want those of a query and its response", got)
	}
	if n, err := first.frames.ReadFrame(make([]byte, 1<<10)); err == nil {
		t.Errorf("receiver that has connected on other terms: got %d bytes, want the end", n)
	}
}

// A receiver that reads nothing, and one that is absent, cost no query.
func TestDnstapSilentReceiver(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s := serveEncrypted(t, fmt.Sprintf(". {\n dnstap tcp://%s full\n dnstap absent.sock\n whoami\n}", l.Addr()))
	conn, err := net.Dial("udp", "127.0.0.1:"+s.port(0))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	buf := make([]byte, 512)
	query := new(mdns.Msg).SetQuestion("www.example.", mdns.TypeA)
	packet, err := query.Pack()
	if err != nil {
		t.Fatal(err)
	}
	for i := range 25_000 {
		if _, err := conn.Write(packet); err != nil {
			t.Fatal(err)
		}
		_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := conn.Read(buf); err != nil {
			t.Fatalf("query %d: %v", i, err)
		}
	}
	if n := s.lost(); n < 60_000 {
		t.Errorf("got %d lost messages, want most of 100,000 less the 20,000 that wait", n)
	}
	if !s.log.contains("dnstap: Lost messages") {
		t.Error("want a line of the log about lost messages")
	}
}

func TestDnstapErrors(t *testing.T) {
	t.Chdir(folder(t))
	for text, want := range map[string]string{
		"dnstap":                                       "want the socket of the receivers",
		"dnstap listen":                                "want the socket of the receivers",
		"dnstap udp://127.0.0.1:6000":                  `want a path, unix://, tcp:// or tls://, got "udp://127.0.0.1:6000"`,
		"dnstap tcp://127.0.0.1":                       "want tcp://HOST:PORT",
		"dnstap tap.sock all":                          `want full, got "all"`,
		"dnstap tap.sock full 0":                       `WRITEBUFFER: want 1 to 1024, got "0"`,
		"dnstap tap.sock full 1 5000":                  `QUEUE: want 1 to 4096, got "5000"`,
		"dnstap tap.sock full 1 1 1":                   `unexpected argument "1"`,
		"dnstap listen tap.sock full 1":                `unexpected argument "1"`,
		"dnstap tap.sock {\n skipverify\n }":           "skipverify is for tls://HOST:PORT",
		"dnstap tap.sock {\n tls cert.pem key.pem\n }": "the option tls is for listen tls://HOST:PORT",
		"dnstap listen tls://127.0.0.1:6000":           "needs the option tls CERT KEY [CA]",
		"dnstap listen tls://127.0.0.1:6000 {\n tls cert.pem nosuch.pem\n }": "nosuch.pem: no such file or directory",
		"dnstap tap.sock {\n extra {nosuch}\n }":                             "unknown placeholder {nosuch}",
		"dnstap tap.sock {\n nosuch\n }":                                     `nosuch`,
	} {
		blocks, err := corefile.Parse("Corefile", []byte(". {\n "+text+"\n whoami\n}"))
		if err == nil {
			_, err = server.NewPlan(blocks, server.Options{Directives: Directives(), Listen: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0")}})
		}
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "Corefile:") {
			t.Errorf("%s: got error %v, want %s", text, err, want)
		}
	}
}
