package directive

import (
	"context"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/sys/linewriter"
	"github.com/seamark/seamark/wire"
)

// client is the client address of the queries in these tests.
const client = "10.0.0.1:53012"

// directives are those of builtin.
var directives []config.Directive

// SetDirectives is called by TestMain.
func SetDirectives(list []config.Directive) { directives = list }

// A syncBuffer is a buffer that is safe for concurrent use.
type syncBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (t *syncBuffer) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.Write(p)
}

func (t *syncBuffer) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.String()
}

// A testBlock is a running server block without sockets.
type testBlock struct {
	t     *testing.T
	block *config.Block
	start *config.Start
	port  *dns.Port
	query *dns.Query
	lent  []byte
	out   *syncBuffer
}

func plan(t testing.TB, text string, add ...any) (*config.Block, error) {
	t.Helper()
	servers, err := corefile.Parse("Corefile", []byte(text))
	if err != nil {
		return nil, err
	}
	b := &config.Block{Zones: []wire.Name{wire.Root}, Log: slog.New(slog.DiscardHandler), Metrics: &metrics.Registry{}, Chain: &dns.Chain{}}
	for _, h := range add {
		b.SetDirective("test")
		if as, ok := h.(interface{ directive() string }); ok {
			b.SetDirective(as.directive())
		}
		b.Handle(h)
	}
	var errs []error
	for _, d := range directives {
		var uses []corefile.Directive
		for _, use := range servers[0].Directives {
			if use.Text == d.Name {
				uses = append(uses, use)
			}
		}
		if len(uses) > 0 {
			b.SetDirective(d.Name)
			errs = append(errs, d.Setup(b, uses))
		}
	}
	errs = append(errs, b.Planned()...)
	return b, corefile.Sorted(errs...)
}

// run starts a Corefile of one block with the handlers add in front.
func run(t *testing.T, corefile string, add ...any) *testBlock {
	t.Helper()
	b, err := plan(t, corefile, add...)
	if err != nil {
		t.Fatal(err)
	}
	r := &testBlock{t: t, block: b, start: config.NewStart(context.Background(), nil), port: &dns.Port{}, query: dns.NewQuery(nil), lent: make([]byte, 65536), out: &syncBuffer{}}
	_, _ = config.Keep(r.start, nil, func() (*linewriter.Writer, error) { return newLineWriter(r.out, b.Metrics), nil })
	if err := b.Started(r.start); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.start.Stop)
	r.route()
	b.Swapped()
	return r
}

// route makes the port serve all queries with the current chain of the block.
func (r *testBlock) route() {
	r.t.Helper()
	mux := dns.NewMux(dns.NewParkingLot(1), nil)
	chain := r.block.Chain.CopyFor("dns://:53", ".")
	if err := mux.Route(wire.Root, chain); err != nil {
		r.t.Fatal(err)
	}
	r.port.Swap(mux)
}

func packet(t *testing.T, name string, qtype wire.Type) []byte {
	t.Helper()
	n, err := wire.ParseName(name)
	if err != nil {
		t.Fatal(err)
	}
	return wire.AppendRequest(nil, 4, wire.FlagRD, []byte(n), qtype)
}

// ask serves and observerFunc one query; the reply is valid until the next.
func (r *testBlock) exchange(packet []byte, proto dns.Proto, peer string) []byte {
	q, now := r.query, time.Unix(0, 0)
	q.Reset(packet, proto, now)
	q.Peer, q.Local = netip.MustParseAddrPort(peer), netip.MustParseAddrPort("10.0.0.2:53")
	outcome := r.serve()
	if outcome == dns.Answered || outcome == dns.Dropped {
		q.Observe(now.Add(102 * time.Microsecond))
	}
	return q.Reply()
}

func (r *testBlock) serve() (outcome dns.Outcome) {
	defer func() {
		if cause := recover(); cause != nil {
			outcome = r.port.Recover(r.query, r.lent, cause)
		}
	}()
	return r.port.Serve(r.query, r.lent)
}

// stop ends the block and returns its output.
func (r *testBlock) stop() string {
	next := config.NewStart(context.Background(), r.start)
	_, _ = config.Keep(next, nil, func() (*linewriter.Writer, error) { panic("the Writer was not kept") })
	next.Commit() // as in a reload, ends what belongs to the plan
	next.Stop()
	r.start = config.NewStart(context.Background(), nil)
	return r.out.String()
}

// metrics returns the lines of the registry that begin with prefix.
func (r *testBlock) metrics(prefix string) string {
	var page, lines strings.Builder
	if err := r.block.Metrics.WriteText(&page); err != nil {
		r.t.Fatal(err)
	}
	for line := range strings.Lines(page.String()) {
		if strings.HasPrefix(line, prefix) {
			lines.WriteString(line)
		}
	}
	return lines.String()
}

// wantErrors plans a Corefile and checks that the error is want.
func wantErrors(t *testing.T, corefile, want string) {
	t.Helper()
	_, err := plan(t, corefile)
	if err == nil || err.Error() != want {
		t.Errorf("%s\ngot  %v\nwant %s", corefile, err, want)
	}
}

// A fixedVerdict is a handler that returns the same verdict and error for every query.
type fixedVerdict struct {
	verdict dns.Verdict
	code    wire.RCode
	err     error
	panics  bool
}

func (s *fixedVerdict) ServeDNS(q *dns.Query) dns.Verdict {
	if s.panics {
		panic("test panic")
	}
	q.RCode, q.Err = s.code, s.err
	return s.verdict
}

// Without log, no directive that observes queries allocates, nor does whoami.
func TestAllocations(t *testing.T) {
	r := run(t, ".:53 {\ncancel\ntrace {\nevery 1000000\n}\nshed\nprometheus 127.0.0.1:0\nskydns_metrics 127.0.0.1:0\nerrors\nchaos {\nstatistics\n}\nwhoami\n}")
	p := packet(t, "example.org", wire.TypeA)
	q, now := r.query, time.Unix(0, 0)
	q.Peer = netip.MustParseAddrPort(client)
	if n := testing.AllocsPerRun(100, func() {
		q.Reset(p, dns.UDP, now)
		r.port.Serve(q, r.lent)
		q.Observe(now)
	}); n != 0 {
		t.Errorf("got %v allocations, want 0", n)
	}
}
