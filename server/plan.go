// Package server runs a server from the blocks of a Corefile: it plans, starts,
// replaces and stops them. Package cmd calls it. It knows directives only from
// the list that the caller passes to it.
package server

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/sys/generation"
	"github.com/seamark/seamark/sys/memory"
	"github.com/seamark/seamark/transport"
	"github.com/seamark/seamark/wire"
)

// Options are the inputs of a plan besides the Corefile.
type Options struct {
	Directives []config.Directive
	// Default, if not nil, is a directive that each server block has, unless a block of the
	// Corefile has a directive of this name.
	Default *corefile.Directive
	// Port is the port of keys without a port.
	Port uint16
	// Listen replaces the addresses and ports of the Corefile unless it is empty.
	Listen []netip.AddrPort
	// Inherited holds sockets to use instead of opening new ones; it may be nil.
	Inherited *transport.Inherited
	// Open, Dial and ListenTCP replace the operating system's network, for simulations: Open
	// for queries, Dial for connections to API servers and upstreams, ListenTCP for status pages. If
	// Open is nil, transport.Listen opens the addresses. NoFileEvents turns the system's file events
	// off, whose reader would stop a virtual clock.
	Open         func(context.Context, netip.AddrPort, transport.Options) (Listener, error)
	Dial         func(ctx context.Context, network, address string) (net.Conn, error)
	ListenTCP    func(ctx context.Context, network, address string) (net.Listener, error)
	NoFileEvents bool
	// Observes is set for a command beside the server, which writes no files: see config.Start.
	Observes bool
	// Repeater, if not nil, repeats replies to equal queries.
	Repeater Repeater
	// MaxParked is the number of queries with goroutines that may be parked; zero
	// depends on the memory limit.
	MaxParked int
	// Readers is the number of UDP readers of an address for which the directive
	// multisocket sets none; zero is one for each processor.
	Readers int
	// Grace is how long queries are answered after their address is closed; zero is 5 s.
	Grace time.Duration

	// Memory is divided among the parts of the server that others can fill. nil has no total.
	Memory *memory.Budget
	// Shared is what all plans of the server share during their setup; nil makes one for the plan.
	Shared *config.Shared

	Log *slog.Logger
	// JSONLog makes the directives log and errors write JSON objects, as the Log of NewJSONLog does.
	JSONLog bool
	// Level, if not nil, is the level of Log. Starting a plan sets it to debug or
	// info.
	Level   *slog.LevelVar
	Metrics *metrics.Registry
}

// A Repeater repeats replies: see [dns.Mux.Repeat].
type Repeater interface {
	Keep(q *dns.Query)
	Forget()
	// Unsuitable returns why Keep does not make it repeat q's reply, or "".
	Unsuitable(q *dns.Query) string
	// Generations returns the counters of the Stamps of repeated replies.
	Generations() *generation.Cells
}

// A Plan is a checked Corefile: chains, zones and addresses. NewPlan opens no
// socket or file; Start does.
type Plan struct {
	opts   Options
	sum    corefile.Sum // of its Corefile; zero if it was not read by a Run
	text   []byte       // the Corefile, until it is accepted
	blocks []*config.Block
	sites  []*site
	siteAt map[siteKey]*site
	taken  *takeover   // from the process that this one replaces; nil if there is none
	keep   func(*Plan) // is called when all sockets are open, before a query is answered; may be nil

	handover string // the path of the directive handover, or ""
	remain   bool   // wait for a signal after a hand-over
	running
}

// A site is one address to listen on and the zones served there.
type site struct {
	scheme config.Scheme
	addr   netip.AddrPort
	from   corefile.Token // the key or bind address in the Corefile
	routes []route
	first  map[routeKey]int // index in routes of the first with the key
}

type siteKey struct {
	scheme config.Scheme
	addr   netip.AddrPort
}

type route struct {
	key   config.Key
	block *config.Block
}

// A routeKey is the zone of a route and the name of its view, if it has one.
type routeKey struct {
	zone    config.Key // with nothing but the zone
	hasView bool
	view    string
}

// keys returns the keys of the routes before this one that answer all of its queries: the one
// of its zone without a view, and that with its view.
func (r route) keys() (zone, view routeKey) {
	zone = routeKey{zone: config.Key{Zone: r.key.Zone}}
	if r.block.Chain.Match == nil {
		return zone, zone
	}
	return zone, routeKey{zone.zone, true, r.block.Chain.View}
}

// NewPlan sets up the directives of every block, in the order of opts.Directives.
// It opens nothing, and returns every error with its file and line.
func NewPlan(servers []corefile.Server, opts Options) (*Plan, error) {
	if opts.Shared == nil {
		opts.Shared = new(config.Shared)
	}
	p := &Plan{opts: opts, siteAt: map[siteKey]*site{}}
	var errs []error
	for _, s := range withDefault(servers, opts.Default) {
		errs = append(errs, p.block(s)...)
	}
	errs = append(errs, p.tlsErrors()...)
	errs = append(errs, p.overlaps()...)
	overlaps, ofFlag := p.httpOverlaps()
	errs = append(errs, overlaps...)
	errs = append(errs, p.setHandover()...)

	if ofFlag != nil && len(errs) == 0 {
		// The flag is a default of installations: it must not keep a valid Corefile from being served.
		p.discard()
		opts.Default = nil
		without, err := NewPlan(servers, opts)
		if err == nil {
			without.blocks[0].Warn(ofFlag)
		}
		return without, err
	}

	if len(errs) == 0 {
		for _, b := range p.blocks {
			errs = append(errs, b.Planned()...)
		}
	}
	if err := corefile.Sorted(errs...); err != nil {
		p.discard()
		return nil, err
	}
	return p, nil
}

// withDefault returns server blocks with a directive added to each, unless a block has one of the
// name: two of different options could not share an address.
func withDefault(servers []corefile.Server, d *corefile.Directive) []corefile.Server {
	has := func(s corefile.Server) bool { return corefile.IndexOf(s.Directives, d.Text) >= 0 }
	if d == nil || slices.ContainsFunc(servers, has) {
		return servers
	}

	servers = slices.Clone(servers)
	for i := range servers {
		servers[i].Directives = append(slices.Clip(servers[i].Directives), *d)
	}
	return servers
}

// discard tells the directives that the plan never serves.
func (p *Plan) discard() {
	for _, b := range p.blocks {
		b.Discarded()
	}
}

// Warnings returns an error that joins the warnings about the plan's Corefile, in
// line order, or nil if there are none.
func (p *Plan) Warnings() error {
	var warnings []error
	for _, b := range p.blocks {
		warnings = append(warnings, b.Warnings()...)
	}
	return corefile.Sorted(warnings...)
}

// block plans one server block and returns every error.
func (p *Plan) block(s corefile.Server) (errs []error) {
	var keys []config.Key
	for _, k := range s.Keys {
		more, err := config.ParseKey(k, p.opts.Port)
		if err != nil {
			errs = append(errs, err)
		}
		keys = append(keys, more...)
	}

	b := &config.Block{
		Source:       s,
		Log:          p.opts.Log,
		JSONLog:      p.opts.JSONLog,
		Metrics:      p.opts.Metrics,
		Memory:       p.opts.Memory,
		Shared:       p.opts.Shared,
		Dial:         p.opts.Dial,
		NoFileEvents: p.opts.NoFileEvents,
		Chain:        new(dns.Chain),
	}
	if p.opts.Repeater != nil {
		b.Generations = p.opts.Repeater.Generations()
	}
	b.Zones, b.Schemes, b.Ports = parts(keys)
	warnNames(b)
	errs = append(errs, p.setUp(b)...)
	warnUnreached(b)
	if len(p.opts.Listen) > 0 {
		b.Offer(&p.opts)
	}
	p.blocks = append(p.blocks, b)

	for _, k := range keys {
		errs = append(errs, p.route(k, b)...)
	}
	return errs
}

// parts returns the zones, schemes and ports of a block's keys, each once. They may be many:
// a CIDR is up to 128 zones.
func parts(keys []config.Key) (zones []wire.Name, schemes []config.Scheme, ports []string) {
	seen := map[any]bool{}
	isNew := func(v any) bool {
		is := !seen[v]
		seen[v] = true
		return is
	}
	for _, k := range keys {
		if isNew(k.Zone) {
			zones = append(zones, k.Zone)
		}
		if isNew(k.Scheme) {
			schemes = append(schemes, k.Scheme)
		}
		if isNew(k.Port) {
			ports = append(ports, fmt.Sprint(k.Port))
		}
	}
	return zones, schemes, ports
}

// setUp calls the Setup of the block's directives, in the order of Options.Directives.
func (p *Plan) setUp(b *config.Block) (errs []error) {
	answers, s := false, b.Source
	uses := map[string][]corefile.Directive{}
	for _, d := range s.Directives {
		uses[d.Text] = append(uses[d.Text], d)
	}
	for _, d := range p.opts.Directives {
		found := uses[d.Name]
		if found == nil {
			continue
		}
		delete(uses, d.Name)
		for i := range found {
			found[i].Usage = d.Usage
		}

		answers = answers || d.Answers
		b.SetDirective(d.Name)
		if err := p.foldUnclosed(found, d.Setup(b, found)); err != nil {
			errs = append(errs, err)
		}
	}

	if !answers && len(s.Keys) > 0 {
		b.Warn(s.Keys[0].Errorf("", "nothing answers here: every query is refused or fails; "+
			"add a directive such as forward"))
	}
	for _, left := range uses {
		errs = append(errs, p.unknown(left)...)
	}
	return errs
}

// unknown returns an error for each use of an unknown directive.
func (p *Plan) unknown(uses []corefile.Directive) (errs []error) {
	words := strings.Fields(unsupported)
	for _, d := range p.opts.Directives {
		words = append(words, d.Name)
	}
	for _, d := range uses {
		switch advice := instead(d.Text); {
		case advice != "":
			errs = append(errs, d.Errorf("not supported: %s", advice))
		case d.Text == "proxy":
			errs = append(errs, d.Errorf("removed in CoreDNS 1.5, use forward"))
		case slices.ContainsFunc(d.Body, func(o corefile.Directive) bool { return p.isDirective(o.Text) }):
			errs = append(errs, d.Token.Errorf("", "unknown %s: a server block cannot be in another one; is a } missing above?",
				d.Describe("directive")))
		default:
			errs = append(errs, d.Token.Errorf("", "unknown %s%s", d.Describe("directive"),
				corefile.DidYouMean(d.Text, words)))
		}
	}
	return errs
}

// route adds the block as a route for a key on each of its addresses.
func (p *Plan) route(k config.Key, b *config.Block) (errs []error) {
	for _, at := range p.addresses(k, b) {
		s := p.siteAt[siteKey{at.scheme, at.addr}]
		if s == nil {
			s = at
			s.first = map[routeKey]int{}
			p.siteAt[siteKey{at.scheme, at.addr}] = s
			p.sites = append(p.sites, s)
		}

		r := route{k, b}
		zone, view := r.keys()
		j, used := s.first[zone]
		if i, ok := s.first[view]; ok && (!used || i < j) {
			j, used = i, true
		}

		switch {
		case !used:
		case s.routes[j].block.Chain.Match == nil && b.Chain.Match != nil:
			at := s.routes[j].key.From
			b.Warn(k.From.Errorf("", "view %s of zone %s is never used: the block at %s:%d comes first and has no view",
				b.Chain.View, k.Zone, at.File, at.Line))
		default:
			errs = append(errs, s.conflict(s.routes[j], k, b))
			continue
		}

		if _, ok := s.first[view]; !ok {
			s.first[view] = len(s.routes)
		}
		s.routes = append(s.routes, r)
	}
	return errs
}

// conflict returns the error for a second block with the same zone, view and
// address.
func (s *site) conflict(first route, k config.Key, b *config.Block) error {
	what := fmt.Sprintf("zone %s", k.Zone)
	if b.Chain.Match != nil {
		what = fmt.Sprintf("view %s of zone %s", b.Chain.View, k.Zone)
	}
	at := first.key.From
	return k.From.Errorf("", "%s: %s is already served on %s by %s at %s:%d",
		k.From.Text, what, s.name(), at.Text, at.File, at.Line)
}

// Find returns the values of the plan's directives that have type T: see config.Find.
func Find[T any](p *Plan) (found []T) {
	for _, b := range p.blocks {
		found = append(found, config.Find[T](b)...)
	}
	return found
}
