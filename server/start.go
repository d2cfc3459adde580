package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/transport"
	"github.com/seamark/seamark/transport/streams"
)

const (
	// maxParked is the maximum number of parked queries of one plan that have
	// goroutines; without goroutines there may be eight times as many.
	maxParked = 4096
	// parkedSize is the memory of a parked query with a goroutine, mostly its stack, and
	// of eight without, including the free memory of the heap.
	parkedSize = 24 << 10
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

// A Listener serves one address and survives reloads: see transport.Listener.
type Listener interface {
	Port() *dns.Port
	Addr() netip.AddrPort
	Readers() int
	SetLimits(transport.Limits)
	Serve()
	Stop()
}

type listenerKey struct {
	scheme config.Scheme
	tls    bool
	addr   netip.AddrPort
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
	if p.taken != nil {
		p.start.Taken, p.start.Saved = p.taken.http, p.taken.states
	}
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
			err = fmt.Errorf("%w (the old configuration listens on that port until it is stopped: restart the server for this change)", err)
		}
		if err != nil {
			if len(p.opts.Listen) == 0 { // else the address is not from the Corefile
				err = s.from.Errorf("", "%w", err)
			}
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

// listen returns the listener of an address: the old plan's if it has one.
func (p *Plan) listen(ctx context.Context, s *site) (Listener, error) {
	hasTLS := s.scheme != config.DNS && s.tls() != nil
	return config.Keep(p.start, listenerKey{s.scheme, hasTLS, s.addr}, func() (l Listener, err error) {
		o := transport.Options{
			Readers: cmp.Or(s.sockets(), p.opts.Readers), Inherited: p.opts.Inherited, Limits: s.limits(), Log: p.opts.Log, Metrics: p.opts.Metrics,
		}
		if hasTLS {
			o.TLS = new(transport.TLS)
		}
		switch more := (streams.Options{Options: o, Name: s.name(), Limits: s.streamLimits()}); {
		case p.opts.Open != nil:
			l, err = p.opts.Open(ctx, s.addr, o)
		case s.scheme == config.HTTPS:
			l, err = streams.ListenHTTPS(ctx, s.addr, more)
		case s.scheme == config.GRPC:
			l, err = streams.ListenGRPC(ctx, s.addr, more)
		case s.scheme == config.QUIC:
			l, err = streams.ListenQUIC(ctx, s.addr, more)
		case s.scheme == config.HTTPS3:
			l, err = streams.ListenHTTPS3(ctx, s.addr, more)
		default:
			l, err = transport.Listen(ctx, s.addr, o)
		}
		if err == nil {
			p.opened = append(p.opened, l)
		}
		return l, err
	})
}

func (p *Plan) listensOn(port uint16) bool {
	for _, s := range p.sites {
		if s.addr.Port() == port {
			return true
		}
	}
	return false
}

// swap makes the new plan answer. It cannot fail.
func (p *Plan) swap() {
	p.lot = dns.NewParkingLot(p.parkingRoom())
	for why := range dns.NumParkingErrors {
		p.lot.Rejected[why] = p.opts.Metrics.Counter("seamark_given_up_queries_total",
			"Queries answered with SERVFAIL because too many others were waiting.", "reason", why.Label())
	}
	p.temporaryGauge("seamark_waiting_queries", "Queries that wait, for example for an upstream.", func() float64 { return float64(p.lot.Parked()) })
	p.showVersion()
	p.setLevel()
	recovered := p.recovered()
	for i, s := range p.sites {
		mux := dns.NewMux(p.lot, recovered)
		mux.Unserved = s.unserved()
		for _, r := range s.routes {
			chain := r.block.Chain.CopyFor(s.name(), r.key.Zone.String())
			_ = mux.Route(r.key.Zone, chain) // NewPlan has checked for duplicates
		}
		if p.opts.Repeater != nil && s.proxies() == nil {
			mux.Repeat(p.opts.Repeater)
		}
		p.configure(s, p.listeners[i])
		p.listeners[i].Port().Swap(mux)
	}
	var servers []corefile.Server
	for _, b := range p.blocks {
		servers = append(servers, b.Source)
	}
	p.showUnrepeatable()
	for _, b := range p.blocks {
		for _, user := range config.Find[portUser](b) {
			user.SetPorts(p.Ports())
		}
		for _, user := range config.Find[serversUser](b) {
			user.SetServers(servers)
		}
		b.Swapped()
	}
	for _, l := range p.opened {
		if p.taken != nil && isExclusive(l) {
			p.delayed = append(p.delayed, l) // the old process reads the socket
		} else {
			l.Serve()
		}
	}
}

// showUnrepeatable logs which directives keep the Repeater from repeating replies.
func (p *Plan) showUnrepeatable() {
	if p.opts.Repeater == nil {
		return
	}
	for _, b := range p.blocks {
		if name := b.Unrepeatable(); name != "" {
			p.opts.Log.Info("Replies of a server block are not repeated by the kernel, because a directive has to see each query", "directive", name, "zones", fmt.Sprint(b.Zones))
		}
	}
}

// Ports returns the listening addresses of a started plan, in the order of the Corefile.
func (p *Plan) Ports() (ports []config.Port) {
	for i, s := range p.sites {
		ports = append(ports, config.Port{Name: s.name(), Address: p.listeners[i].Addr(), Port: p.listeners[i].Port()})
	}
	return ports
}

// parkingRoom returns how many queries may be parked: as many as fit into a quarter of
// the memory limit.
func (p *Plan) parkingRoom() int {
	if p.opts.MaxParked > 0 {
		return p.opts.MaxParked
	}
	limit := debug.SetMemoryLimit(-1)
	return int(max(64, min(maxParked, limit/4/parkedSize)))
}

// temporaryGauge adds a gauge that is removed with the plan.
func (p *Plan) temporaryGauge(name, help string, value func() float64, labels ...string) {
	p.remove = append(p.remove, p.opts.Metrics.TemporaryGauge(name, help, value, labels...))
}

// configure applies the plan's limits to a listener that may have been opened by
// an older plan.
func (p *Plan) configure(s *site, l Listener) {
	l.SetLimits(s.limits())
	if proxied, ok := l.(interface{ SetProxies(*transport.ProxyOptions) }); ok {
		proxied.SetProxies(s.proxies())
	}
	if s.scheme != config.DNS {
		p.configureStreams(s, l)
		return
	}
	if want := s.sockets(); want > 0 && want != l.Readers() {
		p.opts.Log.Warn("Ignored multisocket for an open address: restart the server to apply it",
			"address", s.name(), "sockets", l.Readers(), "wanted", want)
	}
}

// configureStreams applies the plan's certificate and limits to a listener whose scheme is
// not dns.
func (p *Plan) configureStreams(s *site, l Listener) {
	if source := s.tls(); source != nil {
		l.(interface {
			SetTLS(source func() *tls.Config)
		}).SetTLS(source)
	}
	limited, ok := l.(interface {
		SetStreamLimits(streams.Limits) (applied bool)
	})
	if ok && !limited.SetStreamLimits(s.streamLimits()) {
		p.opts.Log.Warn("Ignored max_streams for an open address: restart the server to apply it", "address", s.name())
	}
}

// setLevel enables debug messages if a block has the directive debug, else
// disables them.
func (p *Plan) setLevel() {
	if p.opts.Level == nil {
		return
	}
	level := slog.LevelInfo
	if slices.ContainsFunc(p.blocks, func(b *config.Block) bool { return len(config.Find[debugLogging](b)) > 0 }) {
		level = slog.LevelDebug
	}
	p.opts.Level.Set(level)
}

// retire stops the resources that only old uses: first the sockets, so that no new queries
// arrive, then the parked queries.
func (p *Plan) retire(ctx context.Context, old *Plan) {
	for _, l := range p.listeners {
		l.Port().WaitReaders()
	}
	for _, l := range old.listeners {
		if !slices.Contains(p.listeners, l) {
			l.Stop()
		}
	}
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
// (lameduck of health), waits until clients send no queries, stops reading, answers the queries that were read, and
// releases everything. When ctx ends, it stops waiting.
func (p *Plan) Stop(ctx context.Context) {
	config.Shutdown(ctx, p.blocks...)
	p.waitUntilQuiet(ctx)
	p.stop(ctx)
}

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
		p.opts.Log.Error("Handler panicked, at most one panic a second is logged", "error", known, "stack", string(known.Stack))
	}
}
