package directive

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/wire"
)

// A pretended forward has upstreams that do as they are told.
type pretended struct {
	loop *Loop
	port *dns.Port

	mu      sync.Mutex
	is      map[string]string // leads back, answers, or is silent
	changed chan struct{}
	asked   []wire.Name
	out     map[string]bool
}

func (p *pretended) From() wire.Name { return wire.Root }

func (p *pretended) Upstreams() (names []string, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name := range p.is {
		names = append(names, name)
	}
	return names, p.changed
}

func (p *pretended) become(name, what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if what == "" {
		delete(p.is, name)
	} else {
		p.is[name] = what
	}
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *pretended) Probe(_ context.Context, to string, name wire.Name, t wire.Type) error {
	p.mu.Lock()
	p.asked = append(p.asked, name)
	is := p.is[to]
	p.mu.Unlock()
	if is == "leads back" && p.comesIn(name, t) != dns.Answered {
		return errors.New("the question was not answered")
	}
	if is == "silent" {
		time.Sleep(time.Second)
		return errors.New("silent")
	}
	return nil
}

// comesIn is a question for name from anybody.
func (p *pretended) comesIn(name wire.Name, t wire.Type) dns.Outcome {
	packet := wire.AppendRequest(nil, 1, wire.FlagRD, []byte(name), t)
	q := dns.NewQuery(nil)
	q.Reset(append(q.Buffer(len(packet))[:0], packet...), dns.UDP, time.Now())
	return p.port.Serve(q, make([]byte, 0, 1024))
}

func (p *pretended) Exclude(to string, out bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out[to] = out
}

func (p *pretended) excluded(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out[name]
}

func (p *pretended) questions() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.asked)
}

// pretend starts a loop for one forward with these upstreams.
func pretend(t *testing.T, log *text, is map[string]string) *pretended {
	t.Helper()
	p := &pretended{is: is, changed: make(chan struct{}), out: map[string]bool{}, port: &dns.Port{}}
	p.loop = &Loop{zones: []wire.Name{wire.Root}, forwards: []forwarder{p}, log: slog.New(slog.NewTextHandler(log, nil)),
		metrics: &metrics.Registry{}, names: map[wire.Name]chan<- *dns.Chain{}}
	p.loop.ctx, p.loop.cancel = context.WithCancel(context.Background())
	chain := &dns.Chain{}
	chain.Add("loop", p.loop)
	mux := dns.NewMux(dns.NewParkingLot(1), nil)
	if err := mux.Route(wire.Root, chain.CopyFor("dns://:53", ".")); err != nil {
		t.Fatal(err)
	}
	p.port.Swap(mux)
	p.loop.running.Go(func() { p.loop.watch(p) })
	t.Cleanup(p.loop.Stop)
	return p
}

func (p *pretended) metric() string {
	var b strings.Builder
	_ = p.loop.metrics.WriteText(&b)
	return b.String()
}

// An upstream that leads back is left out, tried each minute, and asked again
// when it no longer does.
func TestLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log text
		p := pretend(t, &log, map[string]string{"192.0.2.1:53": "leads back", "192.0.2.2:53": "answers"})
		synctest.Wait()
		if !p.excluded("192.0.2.1:53") || p.excluded("192.0.2.2:53") {
			t.Errorf("left out: %v", p.out)
		}
		const series = `seamark_loop_detected{server="dns://:53",zone=".",to="192.0.2.1:53"} 1`
		if !strings.Contains(p.metric(), series) {
			t.Error(p.metric())
		}
		if s := log.String(); strings.Count(s, "level=ERROR") != 1 || !strings.Contains(s, "upstream sends queries back to this server, no longer forwarding to it\" upstream=192.0.2.1:53 zone=. server=dns://:53") {
			t.Errorf("log: got %s, want one error for 192.0.2.1:53", s)
		}
		before := p.questions()
		time.Sleep(3*loopRecheckInterval + time.Second)
		if n := p.questions() - before; n != 3 || !p.excluded("192.0.2.1:53") || strings.Count(log.String(), "level=ERROR") != 1 {
			t.Errorf("tried %d times in three minutes, want 3, and nothing said: %s", n, log.String())
		}
		p.become("192.0.2.1:53", "silent") // says nothing of where it leads
		time.Sleep(2 * loopRecheckInterval)
		if !p.excluded("192.0.2.1:53") {
			t.Error("one that is silent is asked again")
		}
		p.become("192.0.2.1:53", "answers")
		time.Sleep(2 * loopRecheckInterval)
		if p.excluded("192.0.2.1:53") || strings.Contains(p.metric(), series) {
			t.Error("it is still left out")
		}
		before = p.questions()
		time.Sleep(time.Hour)
		if n := p.questions(); n != before {
			t.Errorf("%d more questions to upstreams that are fine", n-before)
		}
	})
}

// One that is new is tried, as long as half a minute if it does not answer; one
// that goes is forgotten.
func TestLoopNewUpstream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pretend(t, &text{}, map[string]string{"192.0.2.1:53": "answers"})
		synctest.Wait()
		p.become("192.0.2.2:53", "leads back")
		synctest.Wait()
		if !p.excluded("192.0.2.2:53") {
			t.Error("a new upstream is not tried")
		}
		p.become("192.0.2.2:53", "")
		synctest.Wait()
		if p.excluded("192.0.2.2:53") || strings.Contains(p.metric(), "192.0.2.2") {
			t.Error("one that has gone is still left out")
		}
		before := p.questions()
		p.become("192.0.2.3:53", "silent")
		time.Sleep(time.Hour)
		if n := p.questions() - before; n < 10 || n > 31 {
			t.Errorf("%d questions to one that is silent", n)
		}
	})
}

// CVE-2026-26018: names that others could foresee let anybody make CoreDNS see
// a loop, and exit. Here nothing but a question that is under way, whose name
// has 128 random bits, counts, and no upstream is left out for any other.
func TestLoopCannotBeForged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log text
		p := pretend(t, &log, map[string]string{"192.0.2.1:53": "answers", "192.0.2.2:53": "answers"})
		time.Sleep(time.Minute)
		if p.questions() != 2 || p.asked[0] == p.asked[1] {
			t.Fatalf("asked %v", p.asked)
		}
		for _, name := range p.asked {
			if label := name[0]; label != 32 {
				t.Errorf("a label of %d hexadecimal digits, want 32", label)
			}
			// One that was used is worth nothing.
			if p.comesIn(name, wire.TypeHINFO) != dns.Answered {
				t.Error("no answer")
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
				p.comesIn(name, wire.TypeHINFO)
			}
		}
		synctest.Wait()
		if p.excluded("192.0.2.1:53") || p.excluded("192.0.2.2:53") || log.String() != "" {
			t.Errorf("left out: %v, %s", p.out, log.String())
		}
	})
}

func TestLoopSetup(t *testing.T) {
	for text, want := range map[string]string{
		"loop now":        "Corefile:2: loop: want no argument, got 1",
		"loop {\n now\n}": `Corefile:3: loop: takes no options, got "now"`,
		"loop\nloop":      "Corefile:3: loop: already given at Corefile:2, and can be given once in a server block",
	} {
		_, err := plan(t, ".:53 {\n"+text+"\n}\n")
		if err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}

func TestLoopAllocates(t *testing.T) {
	l := &Loop{names: map[wire.Name]chan<- *dns.Chain{}}
	for _, qtype := range []wire.Type{wire.TypeA, wire.TypeHINFO} {
		q := dns.NewQuery(nil)
		q.Reset(packet(t, "www.example.org", qtype), dns.UDP, time.Now())
		q.Parse(q.Packet())
		if n := testing.AllocsPerRun(100, func() {
			if l.ServeDNS(q) != dns.Next {
				t.Error("not ours")
			}
		}); n > 0 {
			t.Errorf("%s: %v allocations", qtype, n)
		}
	}
}
