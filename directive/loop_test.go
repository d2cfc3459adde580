package directive

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/wire"
)

// A probedForward stands for a forward directive. Tests set how its upstreams behave.
type probedForward struct {
	loop *Loop
	port *dns.Port

	mu                sync.Mutex
	behaviour         map[string]string // by upstream: "loops", "answers" or "silent"
	changed           chan struct{}
	probes            []wire.Name
	excludedUpstreams map[string]bool
}

func (p *probedForward) ServeDNS(*dns.Query) dns.Verdict { return dns.Next }

func (p *probedForward) From() wire.Name { return wire.Root }

func (p *probedForward) Upstreams() (names []string, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name := range p.behaviour {
		names = append(names, name)
	}
	return names, p.changed
}

func (p *probedForward) setUpstream(name, behaviour string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if behaviour == "" {
		delete(p.behaviour, name)
	} else {
		p.behaviour[name] = behaviour
	}
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *probedForward) Probe(_ context.Context, to string, name wire.Name, t wire.Type) error {
	p.mu.Lock()
	p.probes = append(p.probes, name)
	behaviour := p.behaviour[to]
	p.mu.Unlock()
	if behaviour == "loops" && p.receive(name, t) != dns.Answered {
		return errors.New("the query was not answered")
	}
	if behaviour == "silent" {
		time.Sleep(time.Second)
		return errors.New("silent")
	}
	return nil
}

// receive serves a query for name from a client.
func (p *probedForward) receive(name wire.Name, t wire.Type) dns.Outcome {
	packet := wire.AppendRequest(nil, 1, wire.FlagRD, []byte(name), t)
	q := dns.NewQuery(nil)
	q.Reset(packet, dns.UDP, time.Now())
	return p.port.Serve(q, make([]byte, 0, 1024))
}

func (p *probedForward) Exclude(to string, exclude bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.excludedUpstreams[to] = exclude
}

func (p *probedForward) excluded(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.excludedUpstreams[name]
}

func (p *probedForward) probeCount() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.probes)
}

// startLoop starts a loop directive for one forward with these upstreams.
func startLoop(t *testing.T, log *syncBuffer, behaviour map[string]string) *probedForward {
	t.Helper()
	p := &probedForward{behaviour: behaviour, changed: make(chan struct{}), excludedUpstreams: map[string]bool{}, port: &dns.Port{}}
	key := forwardKey{directive: reflect.TypeOf(p), from: wire.Root}
	p.loop = &Loop{zones: []wire.Name{wire.Root}, forwards: map[forwardKey]forwarder{key: p}, log: slog.New(slog.NewTextHandler(log, nil)),
		metrics: &metrics.Registry{}, names: map[wire.Name]chan<- *dns.Chain{}, found: map[loopKey]loopPlace{}}
	chain := &dns.Chain{}
	chain.Add("loop", p.loop)
	mux := dns.NewMux(dns.NewParkingLot(1), nil)
	if err := mux.Route(wire.Root, chain.CopyFor("dns://:53", ".")); err != nil {
		t.Fatal(err)
	}
	p.port.Swap(mux)
	p.loop.task.Go(func(ctx context.Context) { p.loop.watch(ctx, key) })
	t.Cleanup(p.loop.Stop)
	return p
}

func (p *probedForward) metric() string {
	var b strings.Builder
	_ = p.loop.metrics.WriteText(&b)
	return b.String()
}

// An upstream that sends queries back is excluded and probed every minute, and used
// again when it answers.
func TestLoopExcludesUpstream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log syncBuffer
		p := startLoop(t, &log, map[string]string{"192.0.2.1:53": "loops", "192.0.2.2:53": "answers"})
		synctest.Wait()
		if !p.excluded("192.0.2.1:53") || p.excluded("192.0.2.2:53") {
			t.Errorf("got excluded upstreams %v, want 192.0.2.1:53", p.excludedUpstreams)
		}
		const series = `seamark_loop_detected{server="dns://:53",zone=".",to="192.0.2.1:53"} 1`
		if !strings.Contains(p.metric(), series) {
			t.Errorf("got metrics\n%s\nwant %s", p.metric(), series)
		}
		if s := log.String(); strings.Count(s, "level=ERROR") != 1 || !strings.Contains(s, "Upstream sends queries back to this server, no longer forwarding to it\" upstream=192.0.2.1:53 zone=. server=dns://:53") {
			t.Errorf("log: got %s, want one error for 192.0.2.1:53", s)
		}
		before := p.probeCount()
		time.Sleep(3*loopRecheckInterval + time.Second)
		if n := p.probeCount() - before; n != 3 || !p.excluded("192.0.2.1:53") || strings.Count(log.String(), "level=ERROR") != 1 {
			t.Errorf("got %d probes in three minutes, excluded %v, log\n%s\nwant 3 probes, excluded, and one error", n, p.excluded("192.0.2.1:53"), log.String())
		}
		p.setUpstream("192.0.2.1:53", "silent") // may still loop
		time.Sleep(2 * loopRecheckInterval)
		if !p.excluded("192.0.2.1:53") {
			t.Error("silent upstream 192.0.2.1:53: got not excluded, want excluded")
		}
		p.setUpstream("192.0.2.1:53", "answers")
		time.Sleep(2 * loopRecheckInterval)
		if p.excluded("192.0.2.1:53") || strings.Contains(p.metric(), series) {
			t.Errorf("upstream 192.0.2.1:53 that answers again: got excluded %v and metrics\n%s\nwant neither", p.excludedUpstreams, p.metric())
		}
		before = p.probeCount()
		time.Sleep(time.Hour)
		if n := p.probeCount(); n != before {
			t.Errorf("got %d probes of upstreams that answer in one hour, want 0", n-before)
		}
	})
}

// A new upstream is probed, for up to half a minute if it does not answer. A removed
// upstream is forgotten.
func TestLoopNewUpstream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startLoop(t, &syncBuffer{}, map[string]string{"192.0.2.1:53": "answers"})
		synctest.Wait()
		p.setUpstream("192.0.2.2:53", "loops")
		synctest.Wait()
		if !p.excluded("192.0.2.2:53") {
			t.Error("new upstream 192.0.2.2:53 that loops: got not excluded, want excluded")
		}
		p.setUpstream("192.0.2.2:53", "")
		synctest.Wait()
		if p.excluded("192.0.2.2:53") || strings.Contains(p.metric(), "192.0.2.2") {
			t.Errorf("removed upstream 192.0.2.2:53: got excluded %v and metrics\n%s\nwant neither", p.excludedUpstreams, p.metric())
		}
		before := p.probeCount()
		p.setUpstream("192.0.2.3:53", "silent")
		time.Sleep(time.Hour)
		if n := p.probeCount() - before; n < 10 || n > 31 {
			t.Errorf("silent upstream: got %d probes in one hour, want 10..31", n)
		}
	})
}

// CVE-2026-26018: CoreDNS used predictable names for its probes, so an attacker could
// fake a loop and make CoreDNS exit. Here only a running probe counts, whose name has
// 128 random bits. Other queries do not exclude an upstream.
func TestLoopForgedQueries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log syncBuffer
		p := startLoop(t, &log, map[string]string{"192.0.2.1:53": "answers", "192.0.2.2:53": "answers"})
		time.Sleep(time.Minute)
		if p.probeCount() != 2 || p.probes[0] == p.probes[1] {
			t.Fatalf("got probes %v, want 2 with different names", p.probes)
		}
		for _, name := range p.probes {
			if label := name[0]; label != 32 {
				t.Errorf("probe %s: got a label of %d hexadecimal digits, want 32", name, label)
			}
			// The name of a finished probe has no effect.
			if p.receive(name, wire.TypeHINFO) != dns.Answered {
				t.Errorf("query for the finished probe %s: got no answer, want one", name)
			}
		}
		for _, s := range []string{"", "hinfo.", "1.2.", "5577006791947779410.8674665223082153551.", "loop.", strings.Repeat("0", 32) + "."} {
			name, err := wire.ParseName(s + ".")
			if s != "" {
				name, err = wire.ParseName(s)
			}
			if err != nil {
				t.Fatal(err)
			}
			for range 100 {
				p.receive(name, wire.TypeHINFO)
			}
		}
		synctest.Wait()
		if p.excluded("192.0.2.1:53") || p.excluded("192.0.2.2:53") || log.String() != "" {
			t.Errorf("got excluded upstreams %v and log %q, want neither", p.excludedUpstreams, log.String())
		}
	})
}

// A reload keeps an upstream excluded that is silent meanwhile, and its metric, as does the next reload. The upstream is
// included once it answers.
func TestLoopReloadKeepsExcluded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const to, other = "192.0.2.1:53", "192.0.2.2:53"
		const series = `seamark_loop_detected{server="dns://:53",zone=".",to="192.0.2.1:53"} 1`
		p := startLoop(t, &syncBuffer{}, map[string]string{to: "loops", other: "answers"})
		synctest.Wait()
		start := config.NewStart(t.Context(), nil)
		_, _ = config.Keep(start, p.loop, func() (*Loop, error) { return p.loop, nil })
		defer func() { start.Stop() }()

		var r *testBlock
		for range 2 {
			p = &probedForward{behaviour: map[string]string{to: "silent", other: "silent"}, changed: make(chan struct{}), excludedUpstreams: map[string]bool{}}
			b, err := plan(t, ".:53 {\nloop\n}", p)
			if err != nil {
				t.Fatal(err)
			}
			start = config.NewStart(t.Context(), start)
			if err := b.Started(start); err != nil {
				t.Fatal(err)
			}
			if !p.excluded(to) {
				t.Errorf("before the new plan serves: got %s not excluded, want excluded", to)
			}
			b.Swapped()
			start.Commit()
			time.Sleep(2 * loopRecheckInterval)
			r = &testBlock{t: t, block: b}
			if got := r.metrics("seamark_loop_detected"); !p.excluded(to) || p.excluded(other) || got != series+"\n" {
				t.Errorf("silent upstreams: got excluded %v and metrics\n%s\nwant %s", p.excludedUpstreams, got, series)
			}
		}

		p.setUpstream(to, "answers")
		time.Sleep(2 * loopRecheckInterval)
		if got := r.metrics("seamark_loop_detected"); p.excluded(to) || got != "" {
			t.Errorf("%s answers again: got excluded %v and metrics\n%s\nwant neither", to, p.excludedUpstreams, got)
		}
	})
}

// An upstream is excluded from the forward whose probe came back, also by a reload, and not from another one of the zone
// that has it later.
func TestLoopReloadTwoForwards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const to = "192.0.2.1:53"
		p := startLoop(t, &syncBuffer{}, map[string]string{to: "loops"})
		synctest.Wait()
		start := config.NewStart(t.Context(), nil)
		_, _ = config.Keep(start, p.loop, func() (*Loop, error) { return p.loop, nil })

		p = &probedForward{behaviour: map[string]string{to: "silent"}, changed: make(chan struct{}), excludedUpstreams: map[string]bool{}}
		other := &probedForward{behaviour: map[string]string{}, changed: make(chan struct{}), excludedUpstreams: map[string]bool{}}
		b, err := plan(t, ".:53 {\nloop\n}", p, other)
		if err != nil {
			t.Fatal(err)
		}
		start = config.NewStart(t.Context(), start)
		defer func() { start.Stop() }()
		if err := b.Started(start); err != nil {
			t.Fatal(err)
		}
		b.Swapped()
		start.Commit()
		synctest.Wait()
		if !p.excluded(to) {
			t.Errorf("after the reload: got %s not excluded, want excluded", to)
		}

		p.setUpstream(to, "answers")
		time.Sleep(2 * loopRecheckInterval)
		other.setUpstream(to, "answers")
		time.Sleep(2 * loopRecheckInterval)
		if p.excluded(to) || other.excluded(to) {
			t.Errorf("%s answers: got excluded %v from the first forward and %v from the second, want neither", to, p.excluded(to), other.excluded(to))
		}
	})
}

func TestLoopErrors(t *testing.T) {
	for text, want := range map[string]string{
		"loop now":        "Corefile:2: loop: want no argument, got 1",
		"loop {\n now\n}": `Corefile:3: loop: takes no options, got "now"`,
		"loop\nloop":      "Corefile:3: loop: already given at Corefile:2, and can be given once in a server block",
	} {
		wantErrors(t, ".:53 {\n"+text+"\n}\n", want)
	}
}

func TestLoopAllocations(t *testing.T) {
	l := &Loop{names: map[wire.Name]chan<- *dns.Chain{}, found: map[loopKey]loopPlace{}}
	for _, qtype := range []wire.Type{wire.TypeA, wire.TypeHINFO} {
		q := dns.NewQuery(nil)
		q.Reset(packet(t, "www.example.org", qtype), dns.UDP, time.Now())
		q.Parse(q.Packet())
		if n := testing.AllocsPerRun(100, func() {
			if l.ServeDNS(q) != dns.Next {
				t.Errorf("www.example.org %s: got another verdict than Next", qtype)
			}
		}); n > 0 {
			t.Errorf("www.example.org %s: got %v allocations, want 0", qtype, n)
		}
	}
}
