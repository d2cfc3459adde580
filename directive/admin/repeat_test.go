package admin_test

import (
	"encoding/json"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/observe/explain"
	"github.com/seamark/seamark/observe/traffic"
	"github.com/seamark/seamark/sys/generation"
)

// A kernel stands for the kernel of a node, which repeats replies.
type kernel struct {
	cells      *generation.Cells
	unsuitable string

	mu   sync.Mutex
	last *dns.Repeated
}

func newKernel() *kernel { return &kernel{cells: generation.New(make([]atomic.Uint64, 1<<10))} }

func (k *kernel) Keep(q *dns.Query) {
	k.mu.Lock()
	defer k.mu.Unlock()
	r := q.Repeated()
	k.last = &r
}

func (k *kernel) Forget() {}

func (k *kernel) Unsuitable(*dns.Query) string { return k.unsuitable }

func (k *kernel) Generations() *generation.Cells { return k.cells }

// repeat counts n repetitions of the last reply, to queries for web.shop.svc.cluster.local.
func (k *kernel) repeat(t *testing.T, n uint64) {
	t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.last == nil {
		t.Fatal("got no reply that may be repeated")
	}
	r := *k.last
	r.Name = []byte("\x03web\x04shop\x03svc\x07cluster\x05local\x00")
	r.Count(n)
}

// sampleRate returns the rate of samples that the chain of the last reply wants.
func (k *kernel) sampleRate() dns.SampleRate {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.last.Chain.SampleRate()
}

// sample passes a sample of repetitions of the last reply, to the query of a client.
func (k *kernel) sample(t *testing.T, client string, weight float64) {
	t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	q := dns.NewQuery(nil)
	q.Reset([]byte("\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x03web\x04shop\x03svc\x07cluster\x05local\x00\x00\x01\x00\x01"),
		dns.UDP, time.Now())
	q.Peer = netip.MustParseAddrPort(client)
	k.last.Sample(q, make([]byte, 100), weight)
}

// A client of tail gets a sample of the queries that the kernel answers. Lists of clients count it, those of names
// do not. Without such a client few samples are wanted.
func TestTailKernel(t *testing.T) {
	w := newWorld(t)
	k := newKernel()
	w.repeater = k
	if err := w.load(stock); err != nil {
		t.Fatal(err)
	}
	w.query("web.shop.svc.cluster.local")
	w.eventually("/v1/top?by=names", `"key": "web.shop.svc.cluster.local."`)
	if got := k.sampleRate(); got != dns.FewSamples {
		t.Errorf("without a client: got the rate %d, want %d", got, dns.FewSamples)
	}

	tail := w.open("/v1/tail")
	if got := k.sampleRate(); got != dns.ManySamples {
		t.Errorf("with a client: got the rate %d, want %d", got, dns.ManySamples)
	}
	k.sample(t, "10.244.0.9:40000", 16)
	var got traffic.Event
	if err := json.NewDecoder(tail.Body).Decode(&got); err != nil {
		t.Fatal(err)
	}
	want := traffic.Event{
		Sequence: got.Sequence, Time: got.Time, Client: netip.MustParseAddr("10.244.0.9"), Name: "web.shop.svc.cluster.local.",
		Namespace: got.Namespace, Type: "A", Protocol: "udp", RCode: "NOERROR", Size: 100, Source: "kubernetes", Zone: got.Zone, Weight: 16, Kernel: true,
	}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for list, want := range map[string]string{"clients": `"count": 16`, "names": `"count": 1,`} {
		if _, top := w.request("GET", "/v1/top?by="+list); !strings.Contains(top, want) {
			t.Errorf("the list of %s: want %s, got:\n%s", list, want, top)
		}
	}

	_ = tail.Body.Close()
	for deadline := time.Now().Add(time.Minute); k.sampleRate() != dns.FewSamples; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("a minute after the end of the client: got a wish for many samples")
		}
	}
}

// explained returns what /v1/explain says of the kernel, nil if nothing.
func (w *world) explained(name, qtype string) *dns.RepeatExplanation {
	w.t.Helper()
	_, body := w.request("GET", "/v1/explain?"+url.Values{"name": {name}, "type": {qtype}}.Encode())
	var r explain.Result
	if err := json.Unmarshal([]byte(body), &r); err != nil {
		w.t.Fatalf("%s: %v", body, err)
	}
	return r.Kernel
}

// The explanation of a name says for how long the kernel of the node repeats the reply, or why it does not.
func TestExplainKernel(t *testing.T) {
	const zones = "kubernetes cluster.local in-addr.arpa {\n manifests OBJECTS\n}\n"
	for _, c := range []struct {
		name, directives, query, qtype string
		unsuitable                     string
		want                           time.Duration
		refused                        string
	}{
		{name: "a Service", directives: zones, query: "web.shop.svc.cluster.local", want: 10 * time.Minute},
		{name: "a search path", directives: zones, query: "x.shop.svc.cluster.local", want: 2 * time.Minute},
		{name: "a miss", directives: "cache\nforward . UPSTREAM\n", query: "example.org", want: time.Minute},
		{name: "a reverse name", directives: zones, query: "10.0.96.10.in-addr.arpa", qtype: "PTR", refused: "a reverse name depends"},
		{name: "an apex", directives: zones, query: "cluster.local", qtype: "SOA", refused: "own records depend on all objects"},
		{name: "prefetch", directives: "cache {\n prefetch 5\n}\nforward . UPSTREAM\n", query: "example.org", refused: "prefetch counts the hits"},
		{name: "no cache", directives: "forward . UPSTREAM\n", query: "example.org", refused: "forward does not allow it"},
		{name: "log", directives: zones + "log\n", query: "web.shop.svc.cluster.local", refused: "the directive log has to see each query"},
		{name: "view", directives: zones + "view a {\n expr true\n}\n", query: "web.shop.svc.cluster.local", refused: "the directive view has to"},
		{name: "too long", directives: zones, query: "web.shop.svc.cluster.local", unsuitable: "too long", refused: "too long"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			k := newKernel()
			k.unsuitable, w.repeater = c.unsuitable, k
			if err := w.load(". {\nadmin ADMIN\n" + c.directives + "}\n"); err != nil {
				t.Fatal(err)
			}
			got := w.explained(c.query, c.qtype)
			switch {
			case got == nil:
				t.Fatal("got nothing about the kernel")
			case (got.Refused != "") != (c.refused != "") || !strings.Contains(got.Refused, c.refused):
				t.Errorf("got the reason %q, want %q", got.Refused, c.refused)
			case got.For > c.want || got.For < c.want-time.Minute:
				t.Errorf("got %s, want %s less the time that has passed", got.For, c.want)
			}
		})
	}
}

// The status has the share of the queries that the kernel answers, and the directives that prevent it. Without
// a kernel that repeats replies neither page mentions it.
func TestStatusKernel(t *testing.T) {
	w := newWorld(t)
	k := newKernel()
	w.repeater = k
	if err := w.load(stock + "log.example {\nadmin ADMIN\nlog\nwhoami\n}\n"); err != nil {
		t.Fatal(err)
	}
	w.query("web.shop.svc.cluster.local")
	w.eventually("/v1/top?by=names", `"key": "web.shop.svc.cluster.local."`)
	k.repeat(t, 3)
	state := func() *traffic.Kernel {
		_, body := w.request("GET", "/v1/status")
		var s struct{ Kernel *traffic.Kernel }
		if err := json.Unmarshal([]byte(body), &s); err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		return s.Kernel
	}
	got := state()
	if got == nil || got.Share != 0.75 || got.Queries <= 0 {
		t.Fatalf("got %+v, want three of four queries", got)
	}
	if len(got.Prevented) != 1 || got.Prevented[0] != (traffic.Prevention{Zones: "log.example.", Directive: "log"}) {
		t.Errorf("got %+v, want the directive log in log.example.", got.Prevented)
	}
	w.eventually("/", "The kernel of the node has repeated 75.0 % of all replies")
	w.eventually("/", "none of log.example., because of log")
	w.eventually("/v1/history", `"kernel": 3`)
	w.eventually("/v1/top?by=names", `"count": 4`)

	w.repeater = nil
	if err := w.load(stock); err != nil {
		t.Fatal(err)
	}
	if got := state(); got != nil {
		t.Errorf("without a kernel: got %+v", got)
	}
	if got := w.explained("web.shop.svc.cluster.local", "A"); got != nil {
		t.Errorf("without a kernel: got %+v", got)
	}
}
