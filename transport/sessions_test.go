package transport

import (
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seamark/seamark/sys/memory"
	"github.com/seamark/seamark/sys/slots"
	"github.com/seamark/seamark/test/chaintest"
)

// handshakeQUIC runs the handshake of a server over QUIC until it ends.
func handshakeQUIC(t *testing.T, ctx context.Context, source *TLS, peer net.Conn) (err error) {
	t.Helper()
	config := source.Config("doq")
	limited := config.GetConfigForClient
	config.MinVersion = tls.VersionTLS13
	config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		hello.Conn = peer // as the library does
		return limited(hello)
	}
	client := tls.QUICClient(&tls.QUICConfig{TLSConfig: &tls.Config{
		InsecureSkipVerify: true, NextProtos: []string{"doq"}, MinVersion: tls.VersionTLS13,
	}})
	server := tls.QUICServer(&tls.QUICConfig{TLSConfig: config})
	defer func() { _, _ = client.Close(), server.Close() }()

	for _, q := range []*tls.QUICConn{client, server} {
		q.SetTransportParameters(nil)
		if err := q.Start(ctx); err != nil {
			t.Fatal(err)
		}
	}
	for from, to := client, server; ; from, to = to, from {
		for e := from.NextEvent(); e.Kind != tls.QUICNoEvent; e = from.NextEvent() {
			switch {
			case e.Kind == tls.QUICHandshakeDone && from == server:
				return nil
			case e.Kind != tls.QUICWriteData:
			default:
				if err := to.HandleData(e.Level, e.Data); err != nil {
					return err
				}
			}
		}
	}
}

// A handshake over QUIC that waits for its turn ends with its time, which may have passed in part, or
// when the server stops reading the socket, and nothing is signed for it.
func TestQUICHandshakeEndsWhileItWaits(t *testing.T) {
	const within = 3 * time.Second
	for name, c := range map[string]struct {
		later time.Duration // the ClientHello
		end   func(*Sessions)
		want  time.Duration // it waits
	}{
		"its turn comes":           {0, nil, 0},
		"time is over":             {0, func(*Sessions) {}, within},
		"time is over, slow hello": {within - time.Second, func(*Sessions) {}, time.Second},
		"suspended":                {0, (*Sessions).Suspend, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pool := slots.New(1, 1)
				other := netip.MustParseAddr("192.0.2.1")
				source, key := countedTLS(t, pool)
				if err := pool.Acquire(t.Context(), other); err != nil {
					t.Fatal(err)
				}
				client, peer := net.Pipe()
				defer func() { _, _ = client.Close(), peer.Close() }()

				s := NewSessions(NewMessages(Options{}.OrDefaults()))
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				ctx, err := s.Begin(ctx, peer.RemoteAddr(), within)
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(c.later)

				before, ended := time.Now(), make(chan error, 1)
				go func() { ended <- handshakeQUIC(t, ctx, source, peer) }()
				synctest.Wait()
				if len(ended) > 0 {
					t.Fatalf("the handshake does not wait for its turn: %v", <-ended)
				}

				signed := 0
				if c.end != nil {
					c.end(s)
				} else {
					signed = 1
					pool.Release(other)
				}
				err = <-ended
				took := time.Since(before)
				if took != c.want || key.n.Load() != int64(signed) || (err == nil) != (signed == 1) {
					t.Errorf("got an end after %v, %d signatures and error %v, want %v and %d", took, key.n.Load(), err, c.want, signed)
				}
				if c.end != nil {
					pool.Release(other)
				}
				if pool.Used() != 0 {
					t.Error("a slot is held after the end")
				}
			})
		})
	}
}

// The time of a handshake over QUIC is for those that wait: one that need not is complete also later, as on
// a busy machine.
func TestQUICHandshakeLateWithFreeSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := slots.New(1, 1)
		source, key := countedTLS(t, pool)
		client, peer := net.Pipe()
		defer func() { _, _ = client.Close(), peer.Close() }()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s := NewSessions(NewMessages(Options{}.OrDefaults()))
		ctx, err := s.Begin(ctx, peer.RemoteAddr(), time.Second)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if err := handshakeQUIC(t, ctx, source, peer); err != nil || key.n.Load() != 1 || pool.Used() != 0 {
			t.Errorf("got error %v, %d signatures and %d slots held, want one signature", err, key.n.Load(), pool.Used())
		}
	})
}

// Without a limit of connections the memory is one: the incomplete handshakes of a client leave room for those of
// another one, and replace no connection.
func TestQUICHandshakesLeaveMemory(t *testing.T) {
	s := NewSessions(NewMessages(Options{MaxConns: 1 << 20, Memory: memory.New(64<<20, "the test")}.OrDefaults()))
	most, closed := s.memory.room(), 0
	if most < 20 || most > s.o.MaxConnsPerClient+20 {
		t.Fatalf("%d connections have room: the test needs as many as a client may have", most)
	}
	begin := func(last byte, tries int, complete bool) (n int) {
		peer := &net.UDPAddr{IP: net.IPv4(192, 0, 2, last), Port: 53}
		for range tries {
			if c, err := s.Begin(t.Context(), peer, time.Hour); err == nil {
				n++
				if complete {
					s.Add(c, peer, func() { closed++ })
				}
			}
		}
		return n
	}

	begin(1, 10, true)
	incomplete := begin(2, s.o.MaxConnsPerClient, false)
	if incomplete > most*3/4 || !s.NeedsVerification() {
		t.Errorf("got %d incomplete handshakes of one client, want three quarters of %d at most", incomplete, most)
	}
	if got := begin(3, 2, false); got != 2 || closed != 0 {
		t.Errorf("beside them: got %d handshakes of another client and %d closed connections, want 2 and none", got, closed)
	}
}

// Once clients have to be verified, half of the connections may be incomplete, of which a client has at
// most as many as are free. Complete ones do not count.
func TestQUICHandshakeShares(t *testing.T) {
	s := NewSessions(NewMessages(Options{MaxConns: 60}.OrDefaults()))
	ctx, cancel := context.WithCancel(t.Context())
	begin := func(last byte, tries int, complete bool) (n int) {
		peer := &net.UDPAddr{IP: net.IPv4(192, 0, 2, last), Port: 53}
		for range tries {
			c, err := s.Begin(ctx, peer, time.Hour)
			if err != nil {
				continue
			}
			n++
			if complete {
				s.Add(c, peer, func() {}).StartQuery()
			}
		}
		return n
	}

	if got := begin(200, 15, false); got != 15 || !s.NeedsVerification() {
		t.Errorf("without verification: got %d handshakes, want 15", got)
	}
	if got := begin(100, 10, true); got != 10 {
		t.Errorf("got %d complete handshakes of one client, want 10", got)
	}
	for i, want := range []int{15, 8, 4, 2, 1, 0} {
		if got := begin(byte(i), 20, false); got != want {
			t.Errorf("client %d: got %d incomplete handshakes, want %d", i, got, want)
		}
	}

	// One that waits for its turn is replaced, of the client that has most.
	ended := map[netip.Addr]int{}
	for slot := range s.pending {
		slot.wait(func() { ended[slot.client]++ })
	}
	for i := range 4 {
		if got := begin(byte(10+i), 20, false); got != 1 {
			t.Errorf("where others wait: got %d handshakes of client %d, want 1", got, i)
		}
	}
	if most := netip.MustParseAddr("192.0.2.0"); len(ended) != 1 || ended[most] != 4 {
		t.Errorf("got ended handshakes %v, want 4 of %s", ended, most)
	}

	s.Suspend()
	if got := begin(101, 20, true); got != 0 {
		t.Errorf("suspended: got %d handshakes, want none", got)
	}
	s.Resume()
	cancel()
	chaintest.Eventually(t, "all connections have ended", func() bool { return s.Count() == 0 })
	if n := s.shares.Used(); n != 0 || len(s.pending) != 0 {
		t.Errorf("after the end: got %d shares, %d handshakes, want none", n, len(s.pending))
	}
}

// Many clients that begin handshakes all the time, and end none, leave some to one that has not tried often.
func TestQUICHandshakesOfManyClients(t *testing.T) {
	s := NewSessions(NewMessages(Options{MaxConns: 60}.OrDefaults()))
	begin := func(ctx context.Context, last byte) error {
		_, err := s.Begin(ctx, &net.UDPAddr{IP: net.IPv4(192, 0, 2, last), Port: 53}, time.Hour)
		return err
	}
	flood := func(ctx context.Context) {
		for i := range 20 * (freeOpenings + 5) {
			_ = begin(ctx, byte(i%20))
		}
	}

	ctx, cancel := context.WithCancel(t.Context())
	flood(ctx)
	cancel()
	chaintest.Eventually(t, "the first handshakes have ended", func() bool { return s.Count() == 0 })
	flood(t.Context())
	if begin(t.Context(), 0) == nil {
		t.Error("a client with many handshakes has another one, want none")
	}
	for range 3 {
		if err := begin(t.Context(), 100); err != nil {
			t.Errorf("another client: got error %v, want a handshake", err)
		}
	}
}

// A client whose connections all have queries, or streams that never end, does not keep others out: its
// connection without activity for the longest time is replaced, as long as it has two more.
func TestQUICBusyConnectionsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSessions(NewMessages(Options{MaxConns: 4}.OrDefaults()))
		var closed []string
		connect := func(last byte, name string) bool {
			time.Sleep(time.Second)
			peer := &net.UDPAddr{IP: net.IPv4(192, 0, 2, last), Port: 53}
			ctx, cancel := context.WithCancel(t.Context())
			ctx, err := s.Begin(ctx, peer, time.Hour)
			if err != nil {
				cancel()
				return false
			}
			s.Add(ctx, peer, func() { closed = append(closed, name); cancel() }).StartQuery()
			return true
		}

		for _, name := range []string{"1a", "1b", "1c", "1d"} {
			if !connect(1, name) {
				t.Fatalf("connection %s is refused, want four of one client", name)
			}
		}
		if connect(1, "1e") {
			t.Error("a fifth connection of the client was accepted, want the limit of all")
		}
		for i, name := range []string{"2a", "3a", "4a"} {
			if !connect(byte(2+i), name) {
				t.Errorf("connection %s of another client is refused", name)
			}
			synctest.Wait()
		}
		if connect(5, "5a") {
			t.Error("a connection was accepted though each client has one")
		}
		if want := []string{"1a", "1b", "1c"}; !slices.Equal(closed, want) {
			t.Errorf("closed %v, want %v", closed, want)
		}
	})
}
