package cache_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/directive/cache"
	"github.com/seamark/seamark/directive/forward"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/server"
	"github.com/seamark/seamark/sys/memory"
)

// upstream starts a server that answers every name with an address for a minute. It
// counts the queries.
func upstream(t *testing.T) (addr string, asked *atomic.Int64) {
	asked = new(atomic.Int64)
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	started := make(chan struct{})
	s := &mdns.Server{PacketConn: conn, NotifyStartedFunc: func() { close(started) }, Handler: mdns.HandlerFunc(func(w mdns.ResponseWriter, q *mdns.Msg) {
		asked.Add(1)
		m := new(mdns.Msg).SetReply(q)
		rr, err := mdns.NewRR(q.Question[0].Name + " 60 IN A 192.0.2.1")
		if err != nil {
			t.Error(err)
			return
		}
		m.Answer = []mdns.RR{rr}
		_ = w.WriteMsg(m) // the client reports a missing reply
	})}
	ended := make(chan error, 1)
	go func() { ended <- s.ActivateAndServe() }()
	<-started
	t.Cleanup(func() {
		_ = s.Shutdown()
		if err := <-ended; err != nil {
			t.Errorf("upstream: %v", err)
		}
	})
	return conn.LocalAddr().String(), asked
}

func start(t *testing.T, counted *metrics.Registry, old *server.Plan, text string) *server.Plan {
	t.Helper()
	return startWithin(t, nil, counted, old, text)
}

func startWithin(t *testing.T, b *memory.Budget, counted *metrics.Registry, old *server.Plan, text string) *server.Plan {
	t.Helper()
	blocks, err := corefile.Parse("Corefile", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	plan, err := server.NewPlan(blocks, server.Options{
		Memory:     b,
		Directives: []config.Directive{{Name: "cache", Setup: cache.Setup}, {Name: "forward", Setup: forward.Setup}},
		Listen:     []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0")},
		Log:        slog.New(slog.DiscardHandler), Metrics: counted,
	})
	if err == nil {
		err = plan.Start(t.Context(), old)
	}
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// Reloads under load lose no query and drop no entry: each name is sent to the
// upstream once, however many clients query it.
func TestReloadsUnderLoad(t *testing.T) {
	const clients, rounds, names, reloads = 8, 6, 300, 10
	addr, asked := upstream(t)
	counted := new(metrics.Registry)
	text := ".:53 {\n cache {\n prefetch %d\n}\n forward . " + addr + "\n}\n"
	plan := start(t, counted, nil, fmt.Sprintf(text, 1000))
	defer func() { plan.Stop(context.Background()) }()
	at := plan.Addresses()[0].String()

	var all sync.WaitGroup
	var begun atomic.Int64
	for c := range clients {
		all.Go(func() {
			client := &mdns.Client{Timeout: time.Minute}
			conn, err := client.Dial(at)
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = conn.Close() }()
			for i := range rounds * names {
				name := fmt.Sprintf("x%d.example.org.", (i+c)%names)
				r, _, err := client.ExchangeWithConn(new(mdns.Msg).SetQuestion(name, mdns.TypeA), conn)
				if err != nil || len(r.Answer) != 1 || r.Answer[0].Header().Name != name {
					t.Errorf("%s: %v %v", name, r, err)
					return
				}
				begun.Add(1)
			}
		})
	}
	for i := range reloads {
		for begun.Load() < int64(i*clients*rounds*names/reloads) && !t.Failed() {
			time.Sleep(time.Millisecond) // the clients' timeouts end the loop
		}
		plan = start(t, counted, plan, fmt.Sprintf(text, 1000+i))
	}
	all.Wait()
	if n := asked.Load(); n > names*3/2 { // forward may send a late query twice
		t.Errorf("got %d queries at the upstream for %d names, want at most %d", n, names, names*3/2)
	}
}

// A reload that removes the last cache ends the use of its memory, and its own maximum.
func TestReloadWithoutCacheReleasesMemory(t *testing.T) {
	const reloads, names = 20, 50
	addr, _ := upstream(t)
	b, counted := memory.New(64<<20, memory.FromGroup), new(metrics.Registry)
	standard := b.Part(memory.Cache).Max
	var plan *server.Plan
	defer func() { plan.Stop(context.Background()) }()

	for i := range reloads {
		plan = startWithin(t, b, counted, plan, ".:53 {\n cache {\n memory 12MB\n}\n forward . "+addr+"\n}\n")
		at, client := plan.Addresses()[0].String(), &mdns.Client{Timeout: time.Minute}
		for j := range names {
			if _, _, err := client.Exchange(new(mdns.Msg).SetQuestion(fmt.Sprintf("x%d.example.org.", j), mdns.TypeA), at); err != nil {
				t.Fatal(err)
			}
		}
		if p := b.Part(memory.Cache); p.Used == 0 || p.Max <= standard {
			t.Fatalf("reload %d: with cache %d bytes are reserved of %d, want some of more than %d", i, p.Used, p.Max, standard)
		}

		plan = startWithin(t, b, counted, plan, ".:53 {\n forward . "+addr+"\n}\n")
		if p := b.Part(memory.Cache); p.Used != 0 || p.Max != standard {
			t.Fatalf("reload %d: without cache %d bytes are reserved of %d, want 0 of %d", i, p.Used, p.Max, standard)
		}
	}
}
