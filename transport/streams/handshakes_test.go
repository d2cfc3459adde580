package streams

import (
	"context"
	"crypto"
	"crypto/tls"
	"io"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/seamark/seamark/sys/slots"
	"github.com/seamark/seamark/test/bound"
	"github.com/seamark/seamark/transport"
)

// A countingKey counts its signatures, and the most at the same time.
type countingKey struct {
	crypto.Signer
	count, now, most atomic.Int64
}

func (k *countingKey) Sign(rand io.Reader, digest []byte, opts crypto.SignerOpts) ([]byte, error) {
	k.count.Add(1)
	now := k.now.Add(1)
	defer k.now.Add(-1)
	for most := k.most.Load(); now > most && !k.most.CompareAndSwap(most, now); most = k.most.Load() {
	}
	for range 100 { // lets others begin, if they may
		runtime.Gosched()
	}
	return k.Signer.Sign(rand, digest, opts)
}

// Handshakes of all transports together use as many processors as their pool has slots, also
// those that begin with a HelloRetryRequest, and end all the same.
func TestHandshakesShareProcessors(t *testing.T) {
	for name, curves := range map[string][]tls.CurveID{"": nil, "HelloRetryRequest": {tls.CurveP256}} {
		t.Run(name, func(t *testing.T) {
			pair := certificate(t)
			key := &countingKey{Signer: pair.PrivateKey.(crypto.Signer)}
			pair.PrivateKey = key
			pool := slots.New(1, 1)
			options := func() Options {
				o := Options{Options: transport.Options{TLS: &transport.TLS{Crypto: pool}, Limits: transport.Limits{MessageTimeout: time.Minute}}, Name: "test", Limits: Limits{Streams: 10, Workers: 10}}
				o.TLS.Set(func() *tls.Config {
					return &tls.Config{Certificates: []tls.Certificate{pair}, CurvePreferences: curves}
				})
				o = Options{Options: o.Options.OrDefaults(), Name: o.Name, Limits: o.Limits}
				return o
			}

			at := netip.MustParseAddrPort("127.0.0.1:0")
			dot, err := transport.Listen(t.Context(), at, options().Options)
			if err != nil {
				t.Fatal(err)
			}
			https, err := ListenHTTPS(t.Context(), at, options())
			if err != nil {
				t.Fatal(err)
			}
			doq, err := ListenQUIC(t.Context(), at, options())
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range []interface {
				Serve()
				Stop()
			}{dot, https, doq} {
				l.Serve()
				defer l.Stop()
			}

			over := func(protocol string) *tls.Config {
				return &tls.Config{InsecureSkipVerify: true, NextProtos: []string{protocol}}
			}
			const clients = 16 // fewer in all than may wait
			var running sync.WaitGroup
			handshake := func(network string, dial func() (io.Closer, error)) {
				running.Go(func() {
					c, err := dial()
					if err != nil {
						t.Errorf("handshake over %s: %v", network, err)
						return
					}
					_ = c.Close()
				})
			}
			for range clients {
				handshake("TLS", func() (io.Closer, error) { return tls.Dial("tcp", dot.Addr().String(), over("dot")) })
				handshake("HTTPS", func() (io.Closer, error) { return tls.Dial("tcp", https.Addr().String(), over("h2")) })
				handshake("QUIC", func() (io.Closer, error) {
					c, err := quic.DialAddr(t.Context(), doq.Addr().String(), over("doq"), &quic.Config{HandshakeIdleTimeout: time.Minute})
					return closer{c}, err
				})
			}
			running.Wait()
			if n := key.count.Load(); n != 3*clients {
				t.Errorf("got %d signatures, want %d", n, 3*clients)
			}
			if n := key.most.Load(); n != 1 {
				t.Errorf("got %d signatures at the same time, want 1", n)
			}
			for deadline := time.Now().Add(time.Minute); !pool.TryAcquire(at.Addr()); {
				if time.Now().After(deadline) {
					t.Fatal("no slot is free after the handshakes")
				}
			}
		})
	}
}

// A listener that stops, or whose socket another process takes over, does not wait until a handshake has
// its turn.
func TestStopEndsWaitingHandshakes(t *testing.T) {
	pair := certificate(t)
	pool, other := slots.New(1, 1), netip.MustParseAddr("192.0.2.1")
	if !pool.TryAcquire(other) {
		t.Fatal("the first slot is not given")
	}
	o := Options{Options: transport.Options{TLS: &transport.TLS{Crypto: pool}, Limits: transport.Limits{MessageTimeout: time.Minute}}, Name: "test", Limits: Limits{Streams: 10, Workers: 10}}
	hello := make(chan struct{}, 1)
	o.TLS.Set(func() *tls.Config {
		hello <- struct{}{}
		return &tls.Config{Certificates: []tls.Certificate{pair}}
	})
	o.Options = o.Options.OrDefaults()
	l, err := ListenQUIC(t.Context(), netip.MustParseAddrPort("127.0.0.1:0"), o)
	if err != nil {
		t.Fatal(err)
	}

	l.Serve()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		over := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"doq"}}
		if c, err := quic.DialAddr(ctx, l.Addr().String(), over, &quic.Config{HandshakeIdleTimeout: time.Minute}); err == nil {
			t.Error("the handshake is complete")
			_ = c.CloseWithError(0, "")
		}
	})
	<-hello
	began := time.Now()
	l.Stop()
	bound.AtMost(t, "Stop with a handshake that waits", time.Since(began), time.Second)
	if pool.Release(other); pool.Used() != 0 {
		t.Error("a slot is held after the end")
	}
	cancel()
	running.Wait()
}

// A closer closes a QUIC connection.
type closer struct{ *quic.Conn }

func (c closer) Close() error {
	if c.Conn == nil {
		return nil
	}
	return c.CloseWithError(0, "")
}
