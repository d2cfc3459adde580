package builtin

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/wire"
)

// stock is the server block that kubeadm writes, with another source of the
// cluster and free addresses.
const stock = `.:53 {
    errors
    health 127.0.0.1:0 {
       lameduck 5s
    }
    ready 127.0.0.1:0
    kubernetes cluster.local in-addr.arpa ip6.arpa {
       manifests ../examples
       pods insecure
       fallthrough in-addr.arpa ip6.arpa
       ttl 30
    }
    prometheus 127.0.0.1:0
    forward . 127.0.0.1:1 {
       max_concurrent 1000
    }
    cache 30 {
       disable success cluster.local
       disable denial cluster.local
    }
    loop
    reload
    loadbalance
}
`

// A walk serves one packet repeatedly as a UDP reader does, without a socket.
type walk struct {
	tb   testing.TB
	port dns.Port
	q    *dns.Query
	lent []byte

	learned chan struct{}
}

// Send receives the replies of parked queries. Only those of learn are parked.
func (w *walk) Send(*dns.Query) {
	select {
	case w.learned <- struct{}{}:
	default:
		w.tb.Error("the query was parked, want an answer at once")
	}
}

// learn queries a name of the upstream and waits for the answer, which the cache
// then has.
func (w *walk) learn(name string, t uint16) {
	packet, err := new(mdns.Msg).SetQuestion(name, t).Pack()
	if err != nil {
		w.tb.Fatal(err)
	}
	w.learned = make(chan struct{}, 1)
	q := dns.NewQuery(w)
	q.Reset(packet, dns.UDP, time.Now())
	if w.port.Serve(q, w.lent) != dns.Parked {
		w.tb.Fatalf("%s: got an answer at once, want the query to wait for the upstream", name)
	}
	<-w.learned
	w.learned = nil
}

// newWalk starts the server block of text without the directive named without.
func newWalk(tb testing.TB, text string, without string) *walk {
	servers, err := corefile.Parse("Corefile", []byte(text))
	if err != nil {
		tb.Fatal(err)
	}
	b := &config.Block{
		Source: servers[0], Log: slog.New(slog.DiscardHandler), Metrics: new(metrics.Registry), Chain: new(dns.Chain),
		Zones: []wire.Name{wire.Root},
	}
	for _, d := range Directives() {
		var uses []corefile.Directive
		for _, use := range servers[0].Directives {
			if use.Text == d.Name && d.Name != without {
				uses = append(uses, use)
			}
		}
		if len(uses) == 0 {
			continue
		}
		b.SetDirective(d.Name)
		if err := d.Setup(b, uses); err != nil {
			tb.Fatal(err)
		}
	}
	for _, err := range b.Planned() {
		tb.Fatal(err)
	}
	start := config.NewStart(tb.Context(), nil)
	tb.Cleanup(start.Stop)
	if err := b.Started(start); err != nil {
		tb.Fatal(err)
	}
	w := &walk{tb: tb, lent: make([]byte, 0, 1<<16)}
	shard := b.Metrics.NewShard()
	shard.Lock() // as a reader does for each batch
	w.q = dns.NewQuery(w)
	w.q.SetShard(shard)
	mux, chain := dns.NewMux(dns.NewParkingLot(1), nil), b.Chain.CopyFor("dns://:53", ".")
	if err := mux.Route(wire.Root, chain); err != nil {
		tb.Fatal(err)
	}
	w.port.Swap(mux)
	b.Swapped()
	ask := w.query("kubernetes.default.svc.cluster.local.", mdns.TypeA)
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) { // until the directory has been read
		if ask(); w.rcode() == 0 {
			return w
		}
		if time.Now().After(end) {
			tb.Fatal("timed out waiting for the cluster's data")
		}
	}
}

// rcode returns the response code of the last answer.
func (w *walk) rcode() byte { return w.q.Reply()[3] & 15 }

// query returns a function that answers a query.
func (w *walk) query(name string, t uint16) func() {
	packet, err := new(mdns.Msg).SetQuestion(name, t).Pack()
	if err != nil {
		w.tb.Fatal(err)
	}
	now := time.Now()
	return func() {
		w.q.Reset(packet, dns.UDP, now)
		if w.port.Serve(w.q, w.lent) != dns.Answered {
			w.tb.Fatalf("%s: the query was not answered at once", name)
		}
		w.q.Observe(now)
	}
}

type question struct {
	what, name string
	rcode      byte
}

var clusterQuestions = []question{
	{"A", "kubernetes.default.svc.cluster.local.", 0},
	{"NXDOMAIN", "www.example.com.default.svc.cluster.local.", 3},
}

// Answers of the cluster and of the cache allocate nothing in the chain of the
// stock Corefile.
func TestStockAllocations(t *testing.T) {
	known := strings.Replace(stock, "127.0.0.1:1 {", upstream(t)+" {", 1)
	for _, c := range append(clusterQuestions, question{"cache hit", "www.example.org.", 0}) {
		w := newWalk(t, known, "")
		if c.what == "cache hit" {
			w.learn(c.name, mdns.TypeA)
		}
		run := w.query(c.name, mdns.TypeA)
		run() // registers the counters
		if n := testing.AllocsPerRun(1000, run); n != 0 {
			t.Errorf("%s: %v allocations, want 0", c.what, n)
		}
		if got := w.rcode(); got != c.rcode {
			t.Errorf("%s: response code %d, want %d", c.what, got, c.rcode)
		}
	}
}

// Cluster answers do not allocate with ten stub domains: all forwards of a chain
// share one state key.
func TestStubDomainsAllocations(t *testing.T) {
	text := strings.TrimSuffix(stock, "}\n")
	for i := range 10 {
		text += fmt.Sprintf("    forward stub%d.example 127.0.0.1:1\n", i)
	}
	w := newWalk(t, text+"}\n", "")
	run := w.query("kubernetes.default.svc.cluster.local.", mdns.TypeA)
	run()
	if n := testing.AllocsPerRun(1000, run); n != 0 {
		t.Errorf("kubernetes.default.svc.cluster.local. A: got %v allocations per query, want 0", n)
	}
}

// BenchmarkStock measures the cost of a cluster answer with the stock Corefile,
// and without each of its directives.
func BenchmarkStock(b *testing.B) {
	for _, without := range []string{"", "cache", "loadbalance", "loop", "prometheus", "errors"} {
		for _, c := range clusterQuestions {
			name := c.what
			if without != "" {
				name += "/without " + without
			}
			b.Run(name, func(b *testing.B) {
				run := newWalk(b, stock, without).query(c.name, mdns.TypeA)
				b.ReportAllocs()
				for b.Loop() {
					run()
				}
			})
		}
	}
}
