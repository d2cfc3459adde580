package directive

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/wire"
)

// A Loop finds upstreams that send our own questions back to us, and has
// forward leave them out: the loop directive.
//
//	loop
//
// A resolv.conf that names the machine's own stub resolver, which in turn asks
// this server, makes each question go around until something gives way. loop
// sends a question for HINFO of a random name in the server block's zone to
// each upstream of its forwards, when the server starts or reloads and when an
// upstream is new. If that question comes in here, the upstream leads back. It
// is not asked any more; the log and a metric say so:
//
//	[ERROR] plugin/loop: upstream 127.0.0.53:53 sends the questions for zone . back to dns://:53: it is not asked any more until that ends.
//
// The process goes on, and so does /ready. The other upstreams serve; if there
// are none, queries that would be forwarded are SERVFAIL. The upstream is
// tried again each minute, and asked again once the question does not come
// back. One that does not answer when it is new is tried for 30 seconds.
//
// The names are random, of 128 bits, one for each question, and count for half
// a minute or until the next: nobody can make a loop seem to be there by asking
// for them.
//
// Metric: seamark_loop_detected{server,zone,to}, 1 while the upstream to is
// left out.
//
//	.:1053 {
//	    loop
//	    forward . 192.0.2.53
//	}
//
// Differs from CoreDNS: the process does not exit, and each upstream is tried.
type Loop struct {
	zones    []wire.Name
	forwards []forwarder
	log      *slog.Logger
	metrics  *metrics.Registry

	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu    sync.Mutex
	names map[wire.Name]chan<- *dns.Chain // of the questions that are under way
}

// A forwarder sends questions to upstreams: forward does.
type forwarder interface {
	// From is the zone of whose names the upstreams are asked.
	From() wire.Name
	// Upstreams names them; changed is closed when there are others.
	Upstreams() (names []string, changed <-chan struct{})
	// Probe asks one of them, even if it is excluded, and waits for a reply.
	Probe(ctx context.Context, to string, name wire.Name, t wire.Type) error
	// Exclude says that one is not to be asked, or is to be asked again.
	Exclude(to string, out bool)
}

const (
	loopPause = time.Second      // before an upstream that has not answered is tried again
	loopTrial = 30 * time.Second // how long that is done
	loopAgain = time.Minute      // how often one that is left out is tried
)

type loopKey struct {
	plan *config.Start
	loop *Loop
}

// SetupLoop is the Setup of loop.
func SetupLoop(b *config.Block, uses []corefile.Directive) error {
	l := &Loop{zones: b.Zones, log: b.Log, metrics: b.Metrics, names: map[wire.Name]chan<- *dns.Chain{}}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	b.Handle(l)
	b.OnPlanned(func() error {
		l.forwards = config.Find[forwarder](b)
		return nil
	})
	b.OnStart(func(s *config.Start) error {
		_, err := config.Keep(s, loopKey{s, l}, func() (*Loop, error) { return l, nil })
		return err
	})
	b.OnSwap(func() {
		for _, f := range l.forwards {
			l.running.Go(func() { l.watch(f) })
		}
	})
	return errors.Join(config.Once(uses), uses[0].Arity(0, 0), uses[0].Options())
}

// Stop ends all trials.
func (l *Loop) Stop() {
	l.cancel()
	l.running.Wait()
}

// ServeDNS ends the way of our own questions.
func (l *Loop) ServeDNS(q *dns.Query) dns.Verdict {
	if q.Type != wire.TypeHINFO {
		return dns.Next
	}
	l.mu.Lock()
	back := l.names[wire.Name(q.Name())]
	l.mu.Unlock()
	if back == nil {
		return dns.Next
	}
	select {
	case back <- q.Chain():
	default: // it has been told
	}
	q.Fail(wire.NXDomain)
	return dns.Done
}

// watch tries each upstream of f that is new.
func (l *Loop) watch(f forwarder) {
	tried := map[string]context.CancelFunc{}
	for {
		names, changed := f.Upstreams()
		left := tried
		tried = map[string]context.CancelFunc{}
		for _, name := range names {
			if cancel := left[name]; cancel != nil {
				tried[name] = cancel
				delete(left, name)
				continue
			}
			ctx, cancel := context.WithCancel(l.ctx)
			tried[name] = cancel
			l.running.Go(func() { l.try(ctx, f, name) })
		}
		for _, cancel := range left {
			cancel()
		}
		select {
		case <-changed:
		case <-l.ctx.Done():
			for _, cancel := range tried {
				cancel()
			}
			return
		}
	}
}

// try tries one upstream until it is known not to lead back.
func (l *Loop) try(ctx context.Context, f forwarder, to string) {
	t := &trial{loop: l, forward: f, to: to, back: make(chan *dns.Chain, 1)}
	defer t.forget()
	begun := time.Now()
	for {
		at, answered := t.ask(ctx)
		pause := loopPause
		switch {
		case ctx.Err() != nil:
			t.admit()
			return
		case at != nil:
			t.exclude(at)
			pause = loopAgain
		case answered:
			t.admit()
			return
		case t.drop != nil:
			pause = loopAgain
		case time.Since(begun) > loopTrial:
			return
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case at := <-t.back: // the question has taken its time
			timer.Stop()
			t.exclude(at)
		case <-ctx.Done():
			timer.Stop()
			t.admit()
			return
		}
	}
}

// A trial is the questions to one upstream.
type trial struct {
	loop    *Loop
	forward forwarder
	to      string
	back    chan *dns.Chain // the chains that our questions came back to
	names   []wire.Name
	drop    func() // ends the metric; nil if it is not left out
}

// ask sends one question. at is where it came back to, nil if it has not.
func (t *trial) ask(ctx context.Context) (at *dns.Chain, answered bool) {
	if t.drop != nil {
		t.forget() // an answer that comes late says nothing of today
	}
	name := t.name()
	done := make(chan error, 1)
	t.loop.running.Go(func() { done <- t.forward.Probe(ctx, t.to, name, wire.TypeHINFO) })
	select {
	case at = <-t.back:
		return at, true
	case err := <-done:
		select {
		case at = <-t.back: // both have happened
			return at, true
		default:
			return nil, err == nil
		}
	case <-ctx.Done():
		return nil, false
	}
}

// name makes a name that nobody can guess, and recognizes it from now on.
func (t *trial) name() wire.Name {
	zone := t.loop.zones[0]
	if from := t.forward.From(); len(from) > len(zone) {
		zone = from
	}
	var random [16]byte
	_, _ = rand.Read(random[:]) // it never fails
	label := hex.EncodeToString(random[:])
	name := wire.Name(wire.AppendLabel(nil, label)) + zone
	if len(name) > wire.MaxName {
		name = wire.Name(wire.AppendLabel(nil, label)) + wire.Root
	}
	t.names = append(t.names, name)
	t.loop.mu.Lock()
	defer t.loop.mu.Unlock()
	t.loop.names[name] = t.back
	return name
}

// forget recognizes none of the names any more.
func (t *trial) forget() {
	t.loop.mu.Lock()
	defer t.loop.mu.Unlock()
	for _, name := range t.names {
		delete(t.loop.names, name)
	}
	t.names = nil
}

func (t *trial) exclude(at *dns.Chain) {
	t.forward.Exclude(t.to, true)
	if t.drop != nil {
		return
	}
	t.drop = t.loop.metrics.TemporaryGauge("seamark_loop_detected", "Upstreams that lead back to this server and are left out.",
		func() float64 { return 1 }, "server", at.Server, "zone", at.Zone, "to", t.to)
	t.loop.log.Error(fmt.Sprintf("plugin/loop: upstream %s sends the questions for zone %s back to %s: it is not asked any more until that ends. "+
		"Give forward the address of a server that does not ask this one; a resolv.conf must not name the machine's own stub resolver", t.to, at.Zone, at.Server))
}

func (t *trial) admit() {
	if t.drop == nil {
		return
	}
	t.drop()
	t.drop = nil
	t.forward.Exclude(t.to, false)
	if t.loop.ctx.Err() == nil {
		t.loop.log.Info(fmt.Sprintf("plugin/loop: upstream %s does not lead back any more", t.to))
	}
}
