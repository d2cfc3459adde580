package directive

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/sys/follow"
	"github.com/seamark/seamark/wire"
)

// Loop detects upstreams that send queries back to this server, and stops forwarding to them:
// the loop directive. Its reference page is docs/reference/directives/loop.md.
type Loop struct {
	zones    []wire.Name
	forwards map[forwardKey]forwarder
	log      *slog.Logger
	metrics  *metrics.Registry

	task follow.Task

	mu    sync.Mutex
	names map[wire.Name]chan<- *dns.Chain // of the outstanding probes
	found map[loopKey]loopPlace           // the upstreams that are excluded
}

// A forwardKey identifies a forwarder of the server block, also after a reload. index counts those of the
// same directive and zone.
type forwardKey struct {
	directive reflect.Type
	from      wire.Name
	index     int
}

// A loopKey identifies an upstream that is excluded: the forwarder that has it, and its name.
type loopKey struct {
	forward forwardKey
	to      string
}

// A loopPlace is the chain at which a probe came back.
type loopPlace struct{ server, zone string }

// A forwarder sends queries to upstreams. The forward directive is one.
type forwarder interface {
	// From returns the zone whose names are forwarded.
	From() wire.Name
	// Upstreams returns the current upstreams. changed is closed when the list
	// changes.
	Upstreams() (names []string, changed <-chan struct{})
	// Probe queries one upstream, even if it is excluded, and waits for a reply.
	Probe(ctx context.Context, to string, name wire.Name, t wire.Type) error
	// Exclude excludes an upstream from forwarding or includes it again.
	Exclude(to string, out bool)
}

const (
	loopRetryInterval   = time.Second      // between probes of a new upstream that does not answer
	loopRetryTime       = 30 * time.Second // after which such an upstream is no longer probed
	loopRecheckInterval = time.Minute      // between probes of an excluded upstream
)

// SetupLoop sets up the loop directive.
func SetupLoop(b *config.Block, uses []corefile.Directive) error {
	l := &Loop{
		zones: b.Zones, log: b.Log, metrics: b.Metrics,
		forwards: map[forwardKey]forwarder{},
		names:    map[wire.Name]chan<- *dns.Chain{}, found: map[loopKey]loopPlace{},
	}
	b.Handle(l)

	b.OnPlanned(func() error {
		for _, f := range config.Find[forwarder](b) {
			key := forwardKey{directive: reflect.TypeOf(f), from: f.From()}
			for l.forwards[key] != nil {
				key.index++
			}
			l.forwards[key] = f
		}
		return nil
	})
	b.OnStart(func(s *config.Start) error {
		for _, old := range config.Old[*Loop](s) {
			if slices.Equal(old.zones, l.zones) {
				l.inherit(old)
			}
		}
		_, err := config.Keep(s, l, func() (*Loop, error) { return l, nil })
		return err
	})
	b.OnSwap(func() {
		for key := range l.forwards {
			l.task.Go(func(ctx context.Context) { l.watch(ctx, key) })
		}
	})
	return config.NoArguments(uses)
}

// inherit excludes the upstreams that the Loop of the plan before excludes, until a probe is answered: they
// may be silent now.
func (l *Loop) inherit(old *Loop) {
	old.mu.Lock()
	defer old.mu.Unlock()
	for key, at := range old.found {
		if f := l.forwards[key.forward]; f != nil {
			l.found[key] = at
			f.Exclude(key.to, true)
		}
	}
}

// Stop ends all probes.
func (l *Loop) Stop() { l.task.Stop() }

// Repetition reports that only queries of its own, which no cache answers, need to be seen.
func (*Loop) Repetition() dns.Repetition { return dns.Repetition{} }

// ServeDNS answers probes that come back with NXDOMAIN, so that they do not
// circulate.
func (l *Loop) ServeDNS(q *dns.Query) dns.Verdict {
	back := l.probeOf(q)
	if back == nil {
		return dns.Next
	}

	select {
	case back <- q.Chain():
	default: // already reported
	}
	q.Fail(wire.NXDomain)
	return dns.Done
}

// probeOf returns where the return of a probe is reported; nil if the query is none.
func (l *Loop) probeOf(q *dns.Query) chan<- *dns.Chain {
	if q.Type != wire.TypeHINFO {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.names[wire.Name(q.Name())]
}

// IsProbe reports whether a query is a probe that has come back. A directive above loop that denies queries lets
// it pass, since loop would not notice the loop otherwise.
func (l *Loop) IsProbe(q *dns.Query) bool { return l.probeOf(q) != nil }

// watch starts a prober for each new upstream of a forwarder, and stops the probers of
// removed upstreams.
func (l *Loop) watch(ctx context.Context, key forwardKey) {
	f := l.forwards[key]
	probed := map[string]context.CancelFunc{}
	for {
		names, changed := f.Upstreams()
		removed := probed
		probed = map[string]context.CancelFunc{}
		for _, name := range names {
			if cancel := removed[name]; cancel != nil {
				probed[name] = cancel
				delete(removed, name)
				continue
			}
			wanted, cancel := context.WithCancel(ctx)
			probed[name] = cancel
			l.task.Go(func(context.Context) { l.probe(wanted, loopKey{key, name}) })
		}
		for _, cancel := range removed {
			cancel()
		}

		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// probe probes one upstream until it has answered without leading back.
func (l *Loop) probe(ctx context.Context, key loopKey) {
	p := &prober{loop: l, forward: l.forwards[key.forward], key: key, back: make(chan *dns.Chain, 1)}
	defer p.forget()
	l.mu.Lock()
	place, known := l.found[p.key]
	l.mu.Unlock()
	if known {
		p.exclude(place)
	}

	start := time.Now()
	for {
		at, answered := p.send(ctx)
		pause := loopRetryInterval
		switch {
		case ctx.Err() != nil:
			p.include()
			return
		case at != nil:
			p.exclude(loopPlace{at.Server, at.Zone})
			pause = loopRecheckInterval
		case answered:
			p.include()
			return
		case p.excluded():
			pause = loopRecheckInterval
		case time.Since(start) > loopRetryTime:
			return
		}

		select {
		case <-time.After(pause):
		case at := <-p.back: // after Probe had given up
			p.exclude(loopPlace{at.Server, at.Zone})
		case <-ctx.Done():
			p.include()
			return
		}
	}
}

// A prober sends probes to one upstream.
type prober struct {
	loop    *Loop
	forward forwarder
	key     loopKey
	back    chan *dns.Chain // receives the chains at which probes came back
	names   []wire.Name     // of the probes sent
	// removeGauge ends the metric; it is nil if the upstream is not excluded.
	removeGauge func()
}

func (p *prober) excluded() bool { return p.removeGauge != nil }

// send sends one probe. It returns the chain at which the probe came back, or
// nil if it did not.
func (p *prober) send(ctx context.Context) (at *dns.Chain, answered bool) {
	if p.excluded() {
		p.forget() // a late return of an old probe does not describe the present
	}

	name := p.newName()
	done := make(chan error, 1)
	p.loop.task.Go(func(context.Context) { done <- p.forward.Probe(ctx, p.key.to, name, wire.TypeHINFO) })
	select {
	case at = <-p.back:
		return at, true
	case err := <-done:
		select {
		case at = <-p.back: // the probe came back and was answered
			return at, true
		default:
			return nil, err == nil
		}
	case <-ctx.Done():
		return nil, false
	}
}

// newName returns a random name and registers it with ServeDNS.
func (p *prober) newName() wire.Name {
	zone := p.loop.zones[0]
	if from := p.forward.From(); len(from) > len(zone) {
		zone = from
	}

	var random [16]byte
	_, _ = rand.Read(random[:]) // never returns an error
	label := hex.EncodeToString(random[:])
	name := wire.Name(wire.AppendLabel(nil, label)) + zone
	if len(name) > wire.MaxName {
		name = wire.Name(wire.AppendLabel(nil, label)) + wire.Root
	}

	p.names = append(p.names, name)
	p.loop.mu.Lock()
	defer p.loop.mu.Unlock()
	p.loop.names[name] = p.back
	return name
}

// forget unregisters all names.
func (p *prober) forget() {
	p.loop.mu.Lock()
	defer p.loop.mu.Unlock()
	for _, name := range p.names {
		delete(p.loop.names, name)
	}
	p.names = nil
}

func (p *prober) exclude(at loopPlace) {
	p.forward.Exclude(p.key.to, true)
	if p.excluded() {
		return
	}
	p.loop.mu.Lock()
	p.loop.found[p.key] = at
	p.loop.mu.Unlock()
	p.removeGauge = p.loop.metrics.TemporaryGauge("seamark_loop_detected",
		"1 for each upstream that leads back to this server and is excluded.",
		func() float64 { return 1 }, "server", at.server, "zone", at.zone, "to", p.key.to)
	p.loop.log.Error("loop: Upstream sends queries back to this server, no longer forwarding to it",
		"upstream", p.key.to, "zone", at.zone, "server", at.server)
}

func (p *prober) include() {
	if !p.excluded() {
		return
	}
	p.loop.mu.Lock()
	delete(p.loop.found, p.key)
	p.loop.mu.Unlock()
	p.removeGauge()
	p.removeGauge = nil
	p.forward.Exclude(p.key.to, false)
	if p.loop.task.Context().Err() == nil {
		p.loop.log.Info("loop: Upstream no longer leads back to this server, forwarding to it again",
			"upstream", p.key.to)
	}
}
