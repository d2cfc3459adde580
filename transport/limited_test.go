package transport

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/seamark/seamark/metrics"
)

// A client with many connections does not keep others from theirs: at the limit its last one
// is closed for a client that has fewer, if all have requests.
func TestLimitedListener(t *testing.T) {
	var most atomic.Int64
	most.Store(4)
	registry := new(metrics.Registry)
	l, err := ListenTCP(t.Context(), netip.MustParseAddrPort("127.0.0.1:0"), Options{Metrics: registry}, func() int { return int(most.Load()) })
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	accepted := make(chan net.Conn)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()
	dial := func(from string) (net.Conn, error) {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: 10 * time.Second}
		c, err := d.Dial("tcp", l.Address.String())
		if err == nil {
			t.Cleanup(func() { c.Close() })
		}
		return c, err
	}
	open := func(from string) (client, server net.Conn) {
		t.Helper()
		client, err := dial(from)
		if err != nil {
			t.Fatal(err)
		}
		select {
		case server = <-accepted:
		case <-time.After(time.Minute):
			t.Fatalf("the connection of %s was not accepted within a minute", from)
		}
		t.Cleanup(func() { server.Close() })
		SetBusy(server, true)
		return client, server
	}
	closed := func(what string, c net.Conn) {
		t.Helper()
		_ = c.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) || isTimeout(err) {
			t.Errorf("%s: got error %v, want a reset connection", what, err)
		}
	}
	refused := func(what, from string) {
		t.Helper()
		c, err := dial(from)
		if err == nil {
			closed(what, c)
		} else if !errors.Is(err, syscall.ECONNRESET) { // it is reset before dial returns
			t.Errorf("%s: got error %v, want a reset connection", what, err)
		}
	}
	var greedy []net.Conn
	for range 4 {
		c, _ := open("127.0.0.1")
		greedy = append(greedy, c)
	}
	refused("the client's fifth connection", "127.0.0.1")
	_, second := open("127.0.0.2")
	closed("the client's fourth connection", greedy[3])
	_, third := open("127.0.0.3")
	closed("the client's third connection", greedy[2])
	refused("another client's second connection", "127.0.0.2")
	// Now there are 2, 1 and 1.
	_, _ = open("127.0.0.4")
	closed("the client's second connection", greedy[1])
	refused("a client beyond a connection for each", "127.0.0.5")
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	_ = second.Close() // counts once
	_, _ = open("127.0.0.5")
	refused("a client beyond a connection for each", "127.0.0.6")
	_ = greedy[0].SetReadDeadline(time.Now().Add(-time.Second))
	if _, err := greedy[0].Read(make([]byte, 1)); !isTimeout(err) {
		t.Errorf("the client's first connection: got error %v, want that it is open", err)
	}
	most.Store(0)
	_, _ = open("127.0.0.6")
	_ = third.Close()
	l.table.mu.Lock()
	defer l.table.mu.Unlock()
	if l.table.open != 4 || len(l.table.clients) != 4 {
		t.Errorf("got %d connections of %d clients, want 4 of 4", l.table.open, len(l.table.clients))
	}
}

func isTimeout(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}

// A connection that is closed while it waits for a turn leaves the turn to the client's others.
func TestTurnOfClosedConnection(t *testing.T) {
	l, err := ListenTCP(t.Context(), netip.MustParseAddrPort("127.0.0.1:0"), Options{Metrics: new(metrics.Registry)}, func() int { return 4 })
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.DialTimeout("tcp", l.Address.String(), 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	c := server.(*limitedConn)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if c.takeTurn(); len(c.turns) != 0 {
		t.Errorf("turns of the client that a closed connection has: got %d, want 0", len(c.turns))
	}
}

// Accept ends with the listener, not with an error of the system. A shortage is logged once, also if some connections
// are accepted during it.
func TestLimitedListenerAcceptsAfterError(t *testing.T) {
	out := new(logBuffer)
	o := Options{Metrics: new(metrics.Registry), Log: slog.New(slog.NewTextHandler(out, nil))}
	l, err := ListenTCP(t.Context(), netip.MustParseAddrPort("127.0.0.1:0"), o, func() int { return 4 })
	if err != nil {
		t.Fatal(err)
	}
	failing := &failingListener{Listener: l.Listener}
	l.Listener = failing
	for range 3 {
		failing.left.Store(1)
		client, err := net.DialTimeout("tcp", l.Address.String(), patience)
		if err != nil {
			t.Fatal(err)
		}
		c, err := l.Accept()
		if err != nil {
			t.Fatalf("got error %v, want a connection", err)
		}
		_, _ = c.Close(), client.Close()
	}
	if n := out.count("Accepting TCP connections failed"); n != 1 {
		t.Errorf("three errors were logged %d times, want once", n)
	}

	_ = l.Close()
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after Close: got error %v, want that the listener is closed", err)
	}
}
