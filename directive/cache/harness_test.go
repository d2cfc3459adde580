package cache

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/sys/generation"
	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/wire"
)

// upstream stands for forward: it waits, and its answers are cacheable.
type upstream struct {
	answer  func(q *dns.Query, n int) error // n is the number of queries before
	queries atomic.Int64
	serve   func(q *dns.Query) dns.Verdict // if set, replaces ServeDNS
	block   chan struct{}                  // if set, answers wait until it is closed
}

func (*upstream) Repetition() dns.Repetition { return dns.Repetition{} }

func (u *upstream) ServeDNS(q *dns.Query) dns.Verdict {
	if u.serve != nil {
		return u.serve(q)
	}
	return dns.Wait
}

func (*upstream) AnyClass() dns.ClassUse { return dns.ClassAnswered }

func (u *upstream) Resolve(ctx context.Context, q *dns.Query) error {
	n := int(u.queries.Add(1)) - 1
	if u.block != nil {
		select {
		case <-u.block:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	q.RA, q.Cacheable = true, true
	return u.answer(q, n)
}

// A zoneUpstream is an upstream for the names in one zone.
type zoneUpstream struct {
	*upstream
	zone wire.Name
}

func (s zoneUpstream) ServeDNS(q *dns.Query) dns.Verdict {
	if !wire.Name(q.Name()).Within(s.zone) {
		return dns.Next
	}
	return s.upstream.ServeDNS(q)
}

// localAnswers stands for kubernetes: its answers are this server's own.
type localAnswers func(q *dns.Query) dns.Verdict

func (f localAnswers) ServeDNS(q *dns.Query) dns.Verdict { return f(q) }

// answerWith returns an answer in zone file form: the records of the answer
// section and, after a line ";", those of the authority section.
func answerWith(rcode wire.RCode, text string) func(q *dns.Query, n int) error {
	return func(q *dns.Query, _ int) error { return write(q, rcode, text) }
}

func write(q *dns.Query, rcode wire.RCode, text string) error {
	q.RCode = rcode
	section := wire.Answers
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == ";" {
			section++
			continue
		}
		rr, err := mdns.NewRR(line)
		if err != nil || rr == nil {
			return fmt.Errorf("%q: %v", line, err)
		}
		m := &mdns.Msg{Answer: []mdns.RR{rr}}
		packed, err := m.Pack()
		if err != nil {
			return err
		}
		if _, err := q.Answer.AppendRecord(section, packed, wire.HeaderLen); err != nil {
			return err
		}
	}
	return nil
}

// addressAnswer returns an A record, or a TXT record for queries of that type.
func addressAnswer(ttl uint32) func(q *dns.Query, n int) error {
	return func(q *dns.Query, n int) error {
		record := append(wire.AppendRecordHeader(nil, wire.OwnerIsQuestion, wire.TypeA, ttl, 4), 192, 0, 2, byte(n))
		if q.Type == wire.TypeTXT {
			record = append(wire.AppendRecordHeader(nil, wire.OwnerIsQuestion, wire.TypeTXT, ttl, 2), 1, byte('a'+n%26))
		}
		q.Answer.Append(wire.Answers, record, 1)
		return nil
	}
}

// delayingHandler parks queries for two seconds, by the test's clock, on their way down.
type delayingHandler struct{}

func (delayingHandler) Resolve(ctx context.Context, q *dns.Query) error {
	time.Sleep(2 * time.Second)
	q.Next(ctx)
	return nil
}

// renamingHandler stands for rewrite: it renames b.example.org to a.example.org.
type renamingHandler struct{}

func (renamingHandler) ServeDNS(q *dns.Query) dns.Verdict {
	if string(q.Name()) == "\x01b\x07example\x03org\x00" {
		q.SetQuestion([]byte("\x01a\x07example\x03org\x00"), q.Type, q.Class)
	}
	return dns.Next
}

func (renamingHandler) FinishDNS(q *dns.Query) { q.RestoreQuestion(nil) }

// keptReplies records replies that may be repeated, also those of parked queries.
type keptReplies struct {
	mu   sync.Mutex
	last dns.Repeated
	n    int
}

func (k *keptReplies) keep(q *dns.Query) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.last = q.Repeated()
	k.n++
}

// take returns the last reply, zero if there is none, and the number of replies, since the last call.
func (k *keptReplies) take() (last dns.Repeated, n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	last, n = k.last, k.n
	k.last, k.n = dns.Repeated{}, 0
	return last, n
}

// A harness is a server without sockets. It outlives reloads.
type harness struct {
	t         testing.TB
	port      dns.Port
	metrics   *metrics.Registry
	lots      []*dns.ParkingLot
	start     *config.Start
	caches    []*Cache
	chains    []*dns.Chain
	upstreams map[string]*upstream // by the argument of directive upstream
	local     localAnswers
	sent      chan *mdns.Msg
	repeats   keptReplies

	generations *generation.Cells
}

func newHarness(t testing.TB, text string) *harness {
	w := &harness{
		t: t, metrics: new(metrics.Registry), upstreams: map[string]*upstream{}, sent: make(chan *mdns.Msg, 1000),
		local: func(*dns.Query) dns.Verdict { return dns.Next }, generations: generation.New(make([]atomic.Uint64, 1<<10)),
	}
	w.load(text)
	t.Cleanup(func() {
		for _, l := range w.lots {
			ended, end := context.WithCancel(context.Background())
			end()
			l.Close(ended)
		}
		w.start.Stop()
	})
	return w
}

func (w *harness) upstream(name string) *upstream {
	if w.upstreams[name] == nil {
		w.upstreams[name] = &upstream{answer: addressAnswer(300)}
	}
	return w.upstreams[name]
}

func (w *harness) directives() []config.Directive {
	return []config.Directive{
		{Name: "delay", Setup: func(b *config.Block, _ []corefile.Directive) error {
			b.Handle(delayingHandler{})
			return nil
		}},
		{Name: "rename", Setup: func(b *config.Block, _ []corefile.Directive) error {
			b.Handle(renamingHandler{})
			return nil
		}},
		{Name: "cache", Setup: Setup},
		{Name: "local", Setup: func(b *config.Block, _ []corefile.Directive) error {
			b.Handle(localAnswers(func(q *dns.Query) dns.Verdict { return w.local(q) }))
			return nil
		}},
		{Name: "pass", Setup: func(b *config.Block, uses []corefile.Directive) error {
			b.Handle(localAnswers(func(*dns.Query) dns.Verdict { return dns.Next }))
			return nil
		}},
		{Name: "forward", Setup: func(b *config.Block, uses []corefile.Directive) error {
			for _, d := range uses {
				zone, err := wire.ParseName(d.Args[0].Text)
				if err != nil {
					return err
				}
				b.Handle(&zoneUpstream{w.upstream(d.Args[1].Text), zone})
			}
			return nil
		}},
		{Name: "upstream", Setup: func(b *config.Block, uses []corefile.Directive) error {
			for _, d := range uses {
				b.Handle(w.upstream(d.Args[0].Text))
			}
			return nil
		}},
	}
}

// blocks sets up the server blocks of text. "view NAME" sets a block's view.
func (w *harness) blocks(text string) (blocks []*config.Block, err error) {
	servers, err := corefile.Parse("Corefile", []byte(text))
	if err != nil {
		return nil, err
	}
	for _, s := range servers {
		b := &config.Block{Source: s, Log: slog.New(slog.DiscardHandler), Metrics: w.metrics, Chain: new(dns.Chain), Generations: w.generations}
		for _, k := range s.Keys {
			keys, err := config.ParseKey(k, 53)
			if err != nil {
				return nil, err
			}
			b.Zones = append(b.Zones, keys[0].Zone)
		}
		uses := map[string][]corefile.Directive{}
		for _, d := range s.Directives {
			uses[d.Text] = append(uses[d.Text], d)
		}
		if v := uses["view"]; v != nil {
			b.Chain.View = v[0].Args[0].Text
			b.Chain.Match = func(q *dns.Query) bool { return q.Interface == len(b.Chain.View) }
		}
		for _, d := range w.directives() {
			if of := uses[d.Name]; of != nil {
				b.SetDirective(d.Name)
				if err := d.Setup(b, of); err != nil {
					return nil, err
				}
			}
		}
		blocks = append(blocks, b)
	}
	for _, b := range blocks {
		if errs := b.Planned(); errs != nil {
			return nil, errs[0]
		}
	}
	return blocks, nil
}

// load replaces the configuration.
func (w *harness) load(text string) {
	w.t.Helper()
	blocks, err := w.blocks(text)
	if err != nil {
		w.t.Fatal(err)
	}
	start := config.NewStart(w.t.Context(), w.start)
	lot := dns.NewParkingLot(1000)
	mux := dns.NewMux(lot, nil)
	w.caches, w.chains = nil, nil
	for _, b := range blocks {
		if err := b.Started(start); err != nil {
			w.t.Fatal(err)
		}
		w.caches = append(w.caches, config.Find[*Cache](b)...)
		for _, z := range b.Zones {
			chain := b.Chain.CopyFor("dns://:53", z.String())
			w.chains = append(w.chains, chain)
			if err := mux.Route(z, chain); err != nil {
				w.t.Fatal(err)
			}
		}
	}
	mux.Repeat(w.repeats.keep, func() {})
	w.port.Swap(mux)
	for _, b := range blocks {
		b.Swapped()
	}
	start.Commit()
	w.start = start
	w.lots = append(w.lots, lot)
}

// Send receives the replies of parked queries.
func (w *harness) Send(q *dns.Query) {
	var m *mdns.Msg
	if len(q.Reply()) > 0 {
		m = unpack(w.t, q.Reply())
	}
	w.sent <- m
}

func unpack(t testing.TB, packet []byte) *mdns.Msg {
	t.Helper()
	m := new(mdns.Msg)
	if err := m.Unpack(packet); err != nil {
		t.Errorf("reply does not unpack: %v\n%x", err, packet)
	}
	return m
}

func newQuery(name string, t uint16) *mdns.Msg {
	return new(mdns.Msg).SetQuestion(mdns.Fqdn(name), t)
}

// send serves a packet as a reader does. The reply is nil if the query is parked.
func (w *harness) send(m *mdns.Msg, change ...func(q *dns.Query)) *mdns.Msg {
	w.t.Helper()
	packet, err := m.Pack()
	if err != nil {
		w.t.Fatal(err)
	}
	q := dns.NewQuery(w)
	q.Reset(packet, dns.UDP, time.Now())
	for _, f := range change {
		f(q)
	}
	lent := make([]byte, 0, 1<<16)
	switch w.port.Serve(q, lent) {
	case dns.Answered:
		reply := unpack(w.t, q.Reply())
		q.Observe(time.Now())
		return reply
	case dns.Parked:
		return nil
	}
	w.t.Fatal("query: got neither an answer nor Parked")
	return nil
}

// ask sends a query and waits for the reply. inline reports whether the query was
// answered without parking.
func (w *harness) ask(m *mdns.Msg, change ...func(q *dns.Query)) (reply *mdns.Msg, inline bool) {
	w.t.Helper()
	if reply = w.send(m, change...); reply != nil {
		return reply, true
	}
	if reply = <-w.sent; reply == nil {
		w.t.Fatal("got no reply, want one")
	}
	return reply, false
}

// wantQueries checks the number of queries that reached the upstream.
func (u *upstream) wantQueries(t *testing.T, n int64) {
	t.Helper()
	if got := u.queries.Load(); got != n {
		t.Errorf("the upstream was asked %d times, want %d", got, n)
	}
}

// metric returns the value of a series, given with its labels; "" if there is none.
func (w *harness) metric(name string) string { return chaintest.Metric(w.metrics, name) }
