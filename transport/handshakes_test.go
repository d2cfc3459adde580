package transport

import (
	"context"
	"crypto"
	"crypto/tls"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seamark/seamark/sys/slots"
	"github.com/seamark/seamark/test/chaintest"
)

// A pipeSocket is a socket without a kernel.
type pipeSocket struct{ net.Conn }

func (pipeSocket) tryRead([]byte) (int, error) { return 0, errWouldBlock }
func (pipeSocket) tryWrite([]byte) int         { return 0 }
func (pipeSocket) cork()                       {}
func (pipeSocket) CloseRead() error            { return nil }
func (pipeSocket) CloseWrite() error           { return nil }
func (pipeSocket) SetLinger(int) error         { return nil }

// A countedKey counts its signatures.
type countedKey struct {
	crypto.Signer
	n atomic.Int64
}

func (k *countedKey) Sign(rand io.Reader, digest []byte, opts crypto.SignerOpts) ([]byte, error) {
	k.n.Add(1)
	return k.Signer.Sign(rand, digest, opts)
}

// countedTLS returns a source with a counted key, for handshakes with slots of a pool.
func countedTLS(t *testing.T, pool *slots.Pool, curves ...tls.CurveID) (*TLS, *countedKey) {
	pair := certificate(t)
	key := &countedKey{Signer: pair.PrivateKey.(crypto.Signer)}
	pair.PrivateKey = key
	source := &TLS{Crypto: pool}
	source.Set(func() *tls.Config {
		return &tls.Config{Certificates: []tls.Certificate{pair}, CurvePreferences: curves}
	})
	return source, key
}

// The handshake of a connection that is closed or evicted while it waits for its turn ends at
// once, with every listener, and nothing is signed for it.
// See CVE-2026-12245 in docs/reference/advisories.md.
func TestHandshakeEndsWithConnection(t *testing.T) {
	other := netip.MustParseAddr("192.0.2.1")
	for name, begin := range map[string]func(source *TLS, server net.Conn) (handshake, end func()){
		"DNS over TLS, cut": func(source *TLS, server net.Conn) (handshake, end func()) {
			o := Options{TLS: source}.OrDefaults()
			l := &Listener{o: o, counts: newCounters(o.Metrics), tls: source.Config(), start: time.Now(), stopping: make(chan struct{})}
			l.limits.Store(&o.Limits)
			c := newConn(l, pipeSocket{server}, netip.AddrPortFrom(other.Next(), 1), netip.AddrPort{})
			return func() { c.handshake() }, c.cut
		},
		"other protocols, evicted": func(source *TLS, server net.Conn) (handshake, end func()) {
			c := limitedPipe(server)
			return func() { _ = tls.Server(c, source.Config()).Handshake() }, func() { c.l.table.evict() }
		},
		"other protocols, closed": func(source *TLS, server net.Conn) (handshake, end func()) {
			c := limitedPipe(server)
			return func() { _ = tls.Server(c, source.Config()).Handshake() }, func() { _ = c.Close() }
		},
		"after a PROXY header, evicted": func(source *TLS, server net.Conn) (handshake, end func()) {
			c := limitedPipe(server)
			p := &proxiedConn{Conn: c, l: c.l}
			p.once.Do(func() {})
			p.client = proxiedClient{addr: netip.AddrPortFrom(other.Next(), 1)}
			return func() { _ = tls.Server(p, source.Config()).Handshake() }, func() { c.l.table.evict() }
		},
	} {
		for kind, curves := range map[string][]tls.CurveID{"": nil, ", HelloRetryRequest": {tls.CurveP256}} {
			t.Run(name+kind, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					pool := slots.New(1, 1)
					source, key := countedTLS(t, pool, curves...)
					if err := pool.Acquire(t.Context(), other); err != nil {
						t.Fatal(err)
					}
					client, server := net.Pipe()
					handshake, end := begin(source, server)
					var running sync.WaitGroup
					running.Go(func() { _ = tls.Client(client, clientTLS()).Handshake() })
					before := time.Now()
					took := time.Duration(-1)
					running.Go(func() {
						handshake()
						took = time.Since(before)
						_ = server.Close()
					})
					synctest.Wait()
					if took >= 0 {
						t.Fatal("the handshake does not wait for its turn")
					}
					end()
					_ = client.Close()
					running.Wait()
					pool.Release(other)
					if took != 0 || key.n.Load() != 0 {
						t.Errorf("got an end after %v and %d signatures, want it at once and none", took, key.n.Load())
					}
					if !pool.TryAcquire(other) {
						t.Error("a slot is held after the end")
					}
				})
			})
		}
	}
}

// limitedPipe returns a connection of a table that has no others.
func limitedPipe(server net.Conn) *limitedConn {
	table := NewConnTable(ConnLimits{Replace: true})
	c := &limitedConn{Conn: server, l: &LimitedListener{table: table}}
	c.touch()
	table.add(c)
	return c
}

// A handshake that has its turn when its connection is closed signs nothing any more.
func TestNothingSignedAfterClose(t *testing.T) {
	pool := slots.New(1, 1)
	key := &countedKey{}
	s := &slotSigner{Signer: key, ctx: context.Background(), pool: pool, slot: new(handshakeSlot)}
	if err := s.acquire(); err != nil {
		t.Fatal(err)
	}
	s.slot.hold(pool, s.client)
	s.slot.end()
	if _, err := s.Sign(nil, nil, nil); err == nil || key.n.Load() != 0 {
		t.Errorf("got error %v and %d signatures, want an error and none", err, key.n.Load())
	}
	if s.slot.release(); pool.Used() != 0 {
		t.Errorf("got %d slots held, want 0", pool.Used())
	}
}

// Of the handshakes of a client a bounded number waits, whatever other work has the pool.
func TestWaitingHandshakesBoundedByClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := slots.New(1, 1)
		client := netip.MustParseAddr("192.0.2.1")
		ctx, cancel := context.WithCancel(t.Context())
		if !pool.TryAcquire(client) {
			t.Fatal("the first slot is not given")
		}
		errs := make(chan error, maxHandshakes+10)
		for range cap(errs) {
			go func() { errs <- (&slotSigner{ctx: ctx, pool: pool, client: client}).acquire() }()
		}
		synctest.Wait()
		if len(errs) != 10 {
			t.Errorf("of %d handshakes %d did not wait, want 10", cap(errs), len(errs))
		}
		cancel()
		pool.Release(client)
		synctest.Wait()
	})
}

// A flood of ClientHellos at the limit of connections leaves no more waiting handshakes than
// connections.
func TestWaitingHandshakesBoundedByConnections(t *testing.T) {
	const most, clients = 4, 40
	pool := slots.New(1, 1)
	other := netip.MustParseAddr("192.0.2.1")
	if !pool.TryAcquire(other) {
		t.Fatal("the first slot is not given")
	}
	source, key := countedTLS(t, pool)
	s := serve(t, "127.0.0.1", Options{TLS: source, MaxConns: most, MaxConnsPerClient: clients})
	for range clients {
		c := dial(t, "tcp", s.at("127.0.0.1"))
		go func() { _ = tls.Client(c, clientTLS()).Handshake() }()
	}
	chaintest.Eventually(t, "evicted handshakes have ended", func() bool {
		return s.count(`seamark_transport_connections_closed_total{why="handshake"}`) >= clients-most
	})
	pool.Release(other)
	chaintest.Eventually(t, "the others have ended", func() bool { return pool.Used() == 0 })
	if n := key.n.Load(); n > most {
		t.Errorf("got %d signatures, want at most %d", n, most)
	}
}

// Each configuration of TLS for clients limits their handshakes.
func TestConfigurationsLimitHandshakes(t *testing.T) {
	found := 0
	for _, pattern := range []string{"../*/*.go", "../*/*/*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil || strings.HasSuffix(file, "_test.go") {
				continue
			}
			for line := range strings.Lines(string(text)) {
				sets := strings.Contains(line, "GetConfigForClient:") || strings.Contains(line, "GetConfigForClient =")
				if !sets || strings.Contains(line, "quic.Config") { // whose TLS is a Config of this package
					continue
				}
				if found++; !strings.Contains(line, "LimitHandshakes(") {
					t.Errorf("%s: got %s without LimitHandshakes", file, strings.TrimSpace(line))
				}
			}
		}
	}
	if found < 3 {
		t.Errorf("got %d configurations, want those of transport, web and dnstap at least", found)
	}
}
