package server

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/server/handover"
	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/transport"
)

// handOverPair returns the ends of a connection between two processes.
func handOverPair(t *testing.T) (running, starting *handover.Conn) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "socket")
	l, err := handover.Listen(path, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	accepted := make(chan *handover.Conn)
	go func() {
		c := <-l.Requests
		if err := c.Accept(); err != nil {
			t.Error(err)
		}
		accepted <- c
	}()
	if starting, err = handover.Dial(path); err != nil {
		t.Fatal(err)
	}
	running = <-accepted
	t.Cleanup(func() { running.Close(); starting.Close() })
	return running, starting
}

// While a query of one address waits, the connections of other addresses are passed.
func TestHandOverWithParkedQueryPassesOtherAddresses(t *testing.T) {
	waits := newSlow()
	opts := onPortZero()
	opts.Directives = append(opts.Directives, config.Directive{Name: "waits", Setup: func(b *config.Block, _ []corefile.Directive) error {
		b.Handle(waits)
		return nil
	}})
	p := start(t, "a {\n bind 127.0.0.1\n waits\n}\nb {\n bind 127.0.0.2\n code 3\n}\n", opts, nil)
	defer p.Stop(t.Context())
	waiting, other := p.listeners[0].Addr(), p.listeners[1].Addr()

	var asking sync.WaitGroup
	defer asking.Wait()
	asking.Go(func() { ask("tcp", waiting, "a.") })
	<-waits.entered
	idle, err := net.Dial("tcp", other.String())
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	chaintest.Eventually(t, "both connections are open", func() bool {
		return len(shown(t, opts.Metrics, "seamark_transport_connections{")) == 2 &&
			len(shown(t, opts.Metrics, "seamark_transport_connections{address=\""+other.String()+"\"} 1")) == 1
	})

	running, starting := handOverPair(t)
	asking.Go(func() {
		defer running.Close()
		if passed, err := p.sendConnections(running, nil); passed != 2 || err != nil {
			t.Errorf("got %d connections passed and error %v, want 2 and none", passed, err)
		}
	})
	for _, want := range []netip.AddrPort{other, waiting} {
		m, err := starting.Receive(time.Minute, handover.Connection)
		if err != nil || m.Address != want {
			t.Errorf("got a connection of %s and error %v, want one of %s", m.Address, err, want)
		}
		if err == nil {
			_ = m.File.Close()
		}
		if want == other {
			close(waits.release)
		}
	}
}

// A fellow is a listener that stops once all of its number stop.
type fellow struct {
	Listener
	t    *testing.T
	all  *sync.WaitGroup
	once sync.Once
}

func (f *fellow) Stop() { f.once.Do(f.stop) }

func (f *fellow) stop() {
	f.all.Done()
	stopping := make(chan struct{})
	go func() { f.all.Wait(); close(stopping) }()
	select {
	case <-stopping:
	case <-time.After(time.Minute):
		f.t.Error("the listeners stop one after the other, want them to stop at once")
	}
	f.Listener.Stop()
}

// Listeners that a reload closes stop together: each may wait for its connections.
func TestReloadStopsListenersTogether(t *testing.T) {
	var all sync.WaitGroup
	all.Add(2)
	opts := onPortZero()
	opts.Open = func(ctx context.Context, addr netip.AddrPort, o transport.Options) (Listener, error) {
		l, err := transport.Listen(ctx, addr, o)
		if addr.Addr().String() == "127.0.0.3" {
			return l, err
		}
		return &fellow{Listener: l, t: t, all: &all}, err
	}
	p := start(t, "a {\n bind 127.0.0.1\n code 3\n}\nb {\n bind 127.0.0.2\n code 3\n}\n", opts, nil)
	start(t, "a {\n bind 127.0.0.3\n code 3\n}\n", opts, p).Stop(t.Context())
}

// A certificates offers a certificate, as the directive tls does.
type certificates struct{}

func (certificates) TLSFiles() any          { return "files" }
func (certificates) ServerTLS() *tls.Config { return new(tls.Config) }

// A reload that changes the timeouts of HTTP or gRPC, which an open address keeps, says so. Other timeouts change,
// and equal ones are no change.
func TestReloadWarnsOfTimeouts(t *testing.T) {
	for _, c := range []struct {
		scheme, first, second string
		want                  int
	}{
		{"https", "long", "brief", 1},
		{"https", "long", "long", 0},
		{"https", "long", "", 1},
		{"https", "", "standard", 0},
		{"https", "long", "counted", 0}, // the number of queries is not used
		{"grpc", "", "brief", 1},
		{"grpc", "brief", "brief", 0},
		{"tls", "long", "brief", 0},
		{"dns", "long", "brief", 0},
		{"quic", "long", "brief", 0},
		{"https3", "long", "brief", 0},
	} {
		var log journal
		opts := onPortZero()
		opts.Log = NewLog(&log, slog.LevelInfo)
		offers := func(name string, v any) config.Directive {
			return config.Directive{Name: name, Setup: func(b *config.Block, _ []corefile.Directive) error { b.Offer(v); return nil }}
		}
		opts.Directives = append(opts.Directives, offers("certificates", certificates{}), offers("long", limit{time.Hour, 0}),
			offers("brief", limit{time.Second, 0}), offers("counted", limit{time.Hour, 5}), offers("standard", limit{new(transport.Limits).OrDefaults().IdleTimeout, 0}))

		text := func(timeouts string) string {
			return c.scheme + "://. {\n bind 127.0.0.1\n code 3\n certificates\n " + timeouts + "\n}\n"
		}
		p := start(t, text(c.first), opts, nil)
		p = start(t, text(c.second), opts, p)
		p.Stop(t.Context())
		if got := log.count("[WARNING] Ignored timeouts for an open address: restart the server to apply it address=" + c.scheme); got != c.want {
			t.Errorf("%s, timeouts %q, then %q: got %d warnings, want %d\n%s", c.scheme, c.first, c.second, got, c.want, log.String())
		}
	}
}
