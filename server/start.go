package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/sys/memory"
)

const (
	// maxParked is the maximum number of parked queries of one plan that have
	// goroutines; without goroutines there may be eight times as many.
	maxParked = 4096
	// parkedSize is the memory of a parked query with a goroutine, mostly its stack, and
	// of eight without, including the free memory of the heap.
	parkedSize  = 24 << 10
	parkedPlace = parkedSize / 8
	// grace is how long parked queries may continue after their plan was replaced
	// or stopped. The timeout of a single query is the same.
	grace = 10 * time.Second
)

// running is the state of a started plan.
type running struct {
	start     *config.Start
	lot       *dns.ParkingLot
	listeners []Listener // one for each site; reloads keep them
	opened    []Listener // listeners that the old plan did not have
	delayed   []Listener // opened listeners that serve only after a hand-over
	remove    []func()   // functions that remove the plan's gauges
}

// Start makes the plan serve in place of old, which may be nil. After an error
// old continues to serve. If ctx ends, Start stops waiting, both for the new
// plan's data and for the parked queries of old.
func (p *Plan) Start(ctx context.Context, old *Plan) error {
	var before *config.Start
	if old != nil {
		before = old.start
	}
	p.start = config.NewStart(ctx, before)
	p.start.Metrics, p.start.ListenTCP, p.start.Observes = p.opts.Metrics, p.opts.ListenTCP, p.opts.Observes
	if p.taken != nil {
		p.start.Taken, p.start.Saved = p.taken.http, p.taken.states
	}

	if err := p.prepare(ctx, old); err != nil {
		p.start.Abort()
		p.discard()
		return err
	}
	if p.keep != nil {
		p.keep(p) // first: if the process ends after an answer, the socket that sent it stays open
	}
	p.swap()
	if old != nil {
		p.retire(ctx, old)
	}
	p.start.Commit()
	return nil
}

// prepare runs the steps of the start that can fail.
func (p *Plan) prepare(ctx context.Context, old *Plan) error {
	for _, b := range p.blocks {
		if err := b.Started(p.start); err != nil {
			return err
		}
	}

	for _, s := range p.sites {
		l, err := p.listen(ctx, s)
		if err != nil && old != nil && old.listensOn(s.addr.Port()) {
			err = fmt.Errorf("%w (the old configuration listens on that port until it is stopped: "+
				"restart the server for this change)", err)
		}
		if err != nil && len(p.opts.Listen) == 0 { // else the address is not from the Corefile
			err = s.from.Errorf("", "%w", err)
		}
		if err != nil {
			return err
		}
		p.listeners = append(p.listeners, l)
	}
	p.refuseUnused(ctx)

	p.taken.loadStates(p)
	if old == nil && p.opts.Inherited != nil {
		if err := p.WaitUntilReady(ctx); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// swap makes the new plan answer. It cannot fail.
func (p *Plan) swap() {
	p.openLot()
	p.showVersion()
	p.setLevel()

	// A handler of several addresses is bound to each before it answers at one of them.
	recovered := p.recovered()
	var muxes []*dns.Mux
	for _, s := range p.sites {
		muxes = append(muxes, p.mux(s, recovered))
	}

	for i, s := range p.sites {
		p.configure(s, p.listeners[i])
		p.listeners[i].Port().Swap(muxes[i])
	}

	p.setUnrepeated()
	p.showDefault()
	p.tellDirectives()
	p.serveOpened()
}

// openLot makes the parking lot of the plan, and its metrics.
func (p *Plan) openLot() {
	p.lot = dns.NewParkingLot(p.parkingRoom())
	p.lot.Room = func(places int64) int64 {
		return p.opts.Memory.Room(memory.Waiting, places*parkedPlace) / parkedPlace
	}
	p.opts.Memory.Measure(memory.Waiting, func() int64 { return p.lot.Places() * parkedPlace })
	showMemory(p.opts.Metrics, p.opts.Memory)
	for why := range dns.NumParkingErrors {
		p.lot.Rejected[why] = p.opts.Metrics.Counter("seamark_given_up_queries_total",
			"Queries answered with SERVFAIL because too many others were waiting.", "reason", why.Label())
	}
	p.temporaryGauge("seamark_waiting_queries", "Queries that wait, for example for an upstream.",
		func() float64 { return float64(p.lot.Parked()) })
}

// parkingRoom returns how many queries may be parked: as many as fit into their part of the
// memory.
func (p *Plan) parkingRoom() int {
	if p.opts.MaxParked > 0 {
		return p.opts.MaxParked
	}
	return int(max(64, min(maxParked, p.opts.Memory.Max(memory.Waiting)/parkedSize)))
}

// mux returns the chains of an address. recovered is called after a panic of a handler.
func (p *Plan) mux(s *site, recovered func(*dns.Query, any)) *dns.Mux {
	mux := dns.NewMux(p.lot, recovered)
	mux.Unserved = s.unserved()
	for _, r := range s.routes {
		chain := r.block.Chain.CopyFor(s.name(), r.key.Zone.String())
		chain.Unrepeated = p.unrepeated(s, r.block)
		_ = mux.Route(r.key.Zone, chain) // NewPlan has checked for duplicates
	}

	if p.opts.Repeater != nil && s.proxies() == nil {
		mux.Repeat(p.opts.Repeater.Keep, p.opts.Repeater.Forget)
		mux.Unsuitable = p.opts.Repeater.Unsuitable
	}
	return mux
}

// tellDirectives passes the addresses and the server blocks to the directives that use them,
// and calls the functions passed to OnSwap.
func (p *Plan) tellDirectives() {
	var servers []corefile.Server
	for _, b := range p.blocks {
		servers = append(servers, b.Source)
	}

	for _, b := range p.blocks {
		for _, user := range config.Find[portUser](b) {
			user.SetPorts(p.Ports())
		}
		for _, user := range config.Find[serversUser](b) {
			user.SetServers(servers)
		}
		b.Swapped()
	}
}

// serveOpened makes the listeners serve that the plan has opened.
func (p *Plan) serveOpened() {
	for _, l := range p.opened {
		if p.taken != nil && isExclusive(l) {
			p.delayed = append(p.delayed, l) // the old process reads the socket
		} else {
			l.Serve()
		}
	}
}

// showDefault logs that the Corefile has the directive for which a flag stands, and not the flag.
func (p *Plan) showDefault() {
	if p.opts.Default == nil {
		return
	}
	for _, b := range p.blocks {
		i := corefile.IndexOf(b.Source.Directives, p.opts.Default.Text)
		if i >= 0 && !b.Source.Directives[i].OfFlag() {
			d := b.Source.Directives[i]
			p.opts.Log.Info("Ignored a flag: the Corefile has its directive", "reason", p.opts.Default.File,
				"file", d.File, "line", d.Line)
			return
		}
	}
}

// temporaryGauge adds a gauge that is removed with the plan.
func (p *Plan) temporaryGauge(name, help string, value func() float64, labels ...string) {
	p.remove = append(p.remove, p.opts.Metrics.TemporaryGauge(name, help, value, labels...))
}

// setLevel enables debug messages if a block has the directive debug, else
// disables them.
func (p *Plan) setLevel() {
	switch {
	case p.opts.Level == nil:
	case len(Find[debugLogging](p)) > 0:
		p.opts.Level.Set(slog.LevelDebug)
	default:
		p.opts.Level.Set(slog.LevelInfo)
	}
}

// retire stops the resources that only old uses: first the sockets, so that no new queries
// arrive, then the parked queries.
func (p *Plan) retire(ctx context.Context, old *Plan) {
	for _, l := range p.listeners {
		l.Port().WaitReaders()
	}
	var stops sync.WaitGroup
	for _, l := range old.listeners {
		if !slices.Contains(p.listeners, l) {
			stops.Go(l.Stop)
		}
	}
	stops.Wait()
	old.closeLot(ctx)
	old.removeGauges()
}

// removeGauges removes the plan's gauges.
func (p *Plan) removeGauges() {
	for _, remove := range p.remove {
		remove()
	}
}

// closeLot waits for the parked queries, at most for the grace period.
func (p *Plan) closeLot(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	p.lot.Close(ctx)
}

// Stop stops a plan that serves: it runs the functions passed to OnShutdown
// (lameduck of health), waits until clients send no queries, stops reading, answers the
// queries that were read, and releases everything. When ctx ends, it stops waiting.
func (p *Plan) Stop(ctx context.Context) {
	config.Shutdown(ctx, p.blocks...)
	p.waitUntilQuiet(ctx)
	p.stop(ctx)
}

// Leave stops a plan that another process has replaced.
func (p *Plan) Leave(ctx context.Context) { p.stop(ctx) }

func (p *Plan) stop(ctx context.Context) {
	var stops sync.WaitGroup
	for _, l := range p.listeners {
		stops.Go(l.Stop)
	}
	stops.Wait()
	p.closeLot(ctx)
	p.start.Stop()
	p.removeGauges()
}

// recovered returns a function to call after a panic of a handler. It counts the
// panic and logs at most one a second, since clients may repeat the query.
func (p *Plan) recovered() func(q *dns.Query, cause any) {
	panics := p.opts.Metrics.Counter("coredns_panics_total",
		"Panics of handlers; each was answered with SERVFAIL.")
	var last atomic.Int64
	return func(q *dns.Query, cause any) {
		panics.Add(1)
		if now := time.Now().Unix(); last.Swap(now) == now {
			return
		}
		known, ok := errors.AsType[*dns.Panic](q.Err)
		if !ok {
			known = &dns.Panic{Cause: cause}
		}
		p.opts.Log.Error("Handler panicked, at most one panic a second is logged",
			"error", known, "stack", string(known.Stack))
	}
}
