package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/transport"
)

const (
	// parkingRoom is how many queries of one plan may wait at a time, for an
	// upstream or the like; each is a goroutine and some 4 KB.
	parkingRoom = 4096
	// grace is how long those that wait may go on when their plan ends; the
	// patience of a query itself is the same.
	grace = 10 * time.Second
)

// running is what a plan has when it has been started.
type running struct {
	start     *config.Start
	lot       *dns.ParkingLot
	listeners []*transport.Listener // one for each site; the same over reloads
	fresh     []*transport.Listener // those that no older plan had
	hide      []func()              // of gauges that end with the plan
}

type listenerKey struct{ addr netip.AddrPort }

// Start makes the plan serve in place of old, which may be nil. After an error
// old goes on as if nothing had been. ctx ends the start, and the wait for
// queries that old has not answered yet.
func (p *Plan) Start(ctx context.Context, old *Plan) error {
	var before *config.Start
	if old != nil {
		before = old.start
	}
	p.start = config.NewStart(ctx, before)
	if err := p.prepare(ctx, old); err != nil {
		p.start.Abort()
		return err
	}
	p.swap()
	if old != nil {
		p.retire(ctx, old)
	}
	p.start.Commit()
	return nil
}

// prepare does all that can fail.
func (p *Plan) prepare(ctx context.Context, old *Plan) error {
	for _, b := range p.blocks {
		if err := b.Started(p.start); err != nil {
			return err
		}
	}
	for _, s := range p.sites {
		l, err := config.Keep(p.start, listenerKey{s.addr}, func() (*transport.Listener, error) {
			l, err := transport.Listen(ctx, s.addr, transport.Options{
				Readers: s.sockets(), Limits: s.limits(), Log: p.opts.Log, Metrics: p.opts.Metrics,
			})
			if err == nil {
				p.fresh = append(p.fresh, l)
			}
			return l, err
		})
		if err != nil && old != nil && old.listensOn(s.addr.Port()) {
			err = fmt.Errorf("%w (the old configuration listens on that port until it is stopped: restart the server for this change)", err)
		}
		if err != nil {
			return err
		}
		p.listeners = append(p.listeners, l)
	}
	return ctx.Err()
}

func (p *Plan) listensOn(port uint16) bool {
	for _, s := range p.sites {
		if s.addr.Port() == port {
			return true
		}
	}
	return false
}

// swap cannot fail: from here on the new plan answers.
func (p *Plan) swap() {
	p.lot = dns.NewParkingLot(parkingRoom)
	p.lot.Rejected = p.opts.Metrics.Counter("seamark_given_up_queries_total", "Queries answered with SERVFAIL because too many others were waiting.")
	p.until("seamark_waiting_queries", "Queries that wait for an upstream or the like.", func() float64 { return float64(p.lot.Parked()) })
	p.showVersion()
	p.setLevel()
	recovered := p.recovered()
	for i, s := range p.sites {
		mux := dns.NewMux(p.lot, recovered)
		mux.Unserved = s.unserved()
		for _, r := range s.routes {
			chain := r.block.Chain.CopyFor(s.name(), r.key.Zone.String())
			_ = mux.Route(r.key.Zone, chain) // NewPlan has refused what it would
		}
		p.keep(s, p.listeners[i])
		p.listeners[i].Port().Swap(mux)
	}
	for _, b := range p.blocks {
		b.Swapped()
	}
	for _, l := range p.fresh {
		l.Serve()
	}
}

// until is a gauge that ends with the plan.
func (p *Plan) until(name, help string, value func() float64, labels ...string) {
	p.hide = append(p.hide, p.opts.Metrics.TemporaryGauge(name, help, value, labels...))
}

// keep tells a listener that an older plan may have opened what is new.
func (p *Plan) keep(s *site, l *transport.Listener) {
	l.SetLimits(s.limits())
	if want := s.sockets(); want > 0 && want != l.Readers() {
		p.opts.Log.Warn("plugin/multisocket: the number of sockets of an address that is open already stays as it is until the server is restarted",
			"address", s.name(), "sockets", l.Readers(), "asked", want)
	}
}

// setLevel shows or hides debug lines.
func (p *Plan) setLevel() {
	if p.opts.Level == nil {
		return
	}
	level := slog.LevelInfo
	if slices.ContainsFunc(p.blocks, func(b *config.Block) bool { return len(config.Find[debug](b)) > 0 }) {
		level = slog.LevelDebug
	}
	p.opts.Level.Set(level)
}

// retire ends what only old uses: first the sockets, so that nothing new comes
// in, then the queries that wait.
func (p *Plan) retire(ctx context.Context, old *Plan) {
	for _, l := range p.listeners {
		l.Port().WaitReaders()
	}
	for _, l := range old.listeners {
		if !slices.Contains(p.listeners, l) {
			l.Stop()
		}
	}
	old.settle(ctx)
	old.ended()
}

// ended takes the plan's gauges out.
func (p *Plan) ended() {
	for _, hide := range p.hide {
		hide()
	}
}

// settle waits for the queries that are parked.
func (p *Plan) settle(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	p.lot.Close(ctx)
}

// Stop ends a plan that serves: it lets directives say so to others (health's
// lameduck), stops to read, answers what it has read, and ends everything.
// When ctx ends it does not wait any more.
func (p *Plan) Stop(ctx context.Context) {
	config.Shutdown(ctx, p.blocks...)
	var all sync.WaitGroup
	for _, l := range p.listeners {
		all.Go(l.Stop)
	}
	all.Wait()
	p.settle(ctx)
	p.start.Stop()
	p.ended()
}

// recovered makes what is called for each handler that panicked: it counts, and
// logs one a second, since a panic comes with a client who may ask again.
func (p *Plan) recovered() func(q *dns.Query, cause any) {
	panics := p.opts.Metrics.Counter("coredns_panics_total", "Panics of handlers; each was answered with SERVFAIL.")
	var last atomic.Int64
	return func(q *dns.Query, cause any) {
		panics.Add(1)
		if now := time.Now().Unix(); last.Swap(now) == now {
			return
		}
		var known *dns.Panic
		if !errors.As(q.Err, &known) {
			known = &dns.Panic{Cause: cause}
		}
		p.opts.Log.Error(fmt.Sprintf("%v (one a second is shown)\n%s", known, known.Stack))
	}
}
