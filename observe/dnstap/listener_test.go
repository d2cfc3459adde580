package dnstap

import (
	"bytes"
	"log/slog"
	"net"
	"testing"
	"time"

	framestream "github.com/farsightsec/golang-framestream"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/sys/memory"
	"github.com/seamark/seamark/test/chaintest"
)

func listen(t *testing.T, b *memory.Budget) *Listener {
	t.Helper()
	s := Socket{Text: "tcp://127.0.0.1:0", Network: "tcp", Address: "127.0.0.1:0"}
	count := new(metrics.Registry).Counter("lost", "help")
	l, err := NewListener(config.NewStart(t.Context(), nil), s, NewLost(count, slog.New(slog.DiscardHandler), s), b)
	if err != nil {
		t.Fatal(err)
	}
	l.Serve(0, nil)
	t.Cleanup(l.Stop)
	return l
}

// connect connects from an address of this machine, without a handshake.
func connect(t *testing.T, l *Listener, from string) (net.Conn, error) {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	conn, err := d.Dial("tcp", l.socket.Addr().String())
	if err == nil {
		t.Cleanup(func() { _ = conn.Close() })
	}
	return conn, err
}

// receive connects a receiver.
func receive(t *testing.T, l *Listener, from string) (net.Conn, error) {
	t.Helper()
	conn, err := connect(t, l, from)
	if err == nil {
		_, err = framestream.NewReader(conn, &framestream.ReaderOptions{
			ContentTypes: [][]byte{[]byte(contentType)}, Bidirectional: true, Timeout: time.Minute,
		})
	}
	return conn, err
}

// Receivers of one client do not keep those of another away.
func TestListenerHasPlacesForEachClient(t *testing.T) {
	l := listen(t, nil)
	var first net.Conn
	for i := range maxReceivers {
		conn, err := receive(t, l, "127.0.0.1")
		if err != nil {
			t.Fatalf("receiver %d: got %v", i+1, err)
		}
		if i == 0 {
			first = conn
		}
	}

	if _, err := receive(t, l, "127.0.0.2"); err != nil {
		t.Errorf("receiver of another client: got %v, want a place", err)
	}
	_ = first.SetReadDeadline(time.Now().Add(time.Minute))
	l.Send([]byte("message"))
	if _, err := first.Read(make([]byte, 1)); err != nil {
		t.Errorf("first receiver: got %v, want a message", err)
	}
}

// Connections without a handshake keep half of the places from receivers of another client at most.
func TestListenerIdleConnections(t *testing.T) {
	l := listen(t, nil)
	for range 2 * maxReceivers {
		if _, err := connect(t, l, "127.0.0.2"); err != nil {
			t.Logf("idle connection: %v", err) // another one has its place
		}
	}
	for i := range maxReceivers / 2 {
		if _, err := receive(t, l, "127.0.0.1"); err != nil {
			t.Errorf("receiver %d beside idle connections: got %v", i+1, err)
		}
	}
}

// Messages for receivers that do not read are bounded by the memory of the process.
func TestListenerBoundsMemory(t *testing.T) {
	b := memory.New(64<<20, memory.FromMachine)
	l := listen(t, b)
	message := bytes.Repeat([]byte("x"), 32<<10)
	var conns []net.Conn
	for range maxReceivers {
		conn, err := receive(t, l, "127.0.0.1")
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
	}

	for range 1000 {
		l.Send(message)
	}
	p := b.Part(memory.Replies)
	if p.Used == 0 || p.Used > p.Max/2 || p.Refused == 0 {
		t.Errorf("for one client: got %d bytes of at most %d, refused %d times, want at most half", p.Used, p.Max, p.Refused)
	}

	for _, conn := range conns {
		_ = conn.Close()
	}
	chaintest.Eventually(t, "no memory is in use", func() bool {
		l.Send([]byte("x")) // the next messages show that the receivers have gone
		return b.Part(memory.Replies).Used == 0
	})
}
