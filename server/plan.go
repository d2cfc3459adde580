// Package server makes a running server of a Corefile's blocks: it plans,
// starts, swaps and stops, and owns every goroutine and the life cycle. Package
// cmd calls it. It knows the words of a Corefile only from the list of
// directives that it is given.
package server

import (
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
)

// Options is what a plan needs besides the Corefile.
type Options struct {
	Directives []config.Directive
	// Port is that of keys which name none.
	Port uint16
	// Listen, if there is any, takes the place of all addresses and ports that
	// the Corefile gives.
	Listen []netip.AddrPort

	Log *slog.Logger
	// Level, if there is one, is what Log is filtered by. Plans set it to debug
	// or to info.
	Level   *slog.LevelVar
	Metrics *metrics.Registry
}

// A Plan is a Corefile that has been understood: chains, zones and addresses.
// Nothing is open yet.
type Plan struct {
	opts   Options
	sum    corefile.Sum // of its Corefile, if that was read to be reloaded
	blocks []*config.Block
	sites  []*site
	running
}

// A site is one address to listen on and the zones asked for there.
type site struct {
	addr   netip.AddrPort
	from   corefile.Token // what in the Corefile made it
	routes []route
}

type route struct {
	key   config.Key
	block *config.Block
}

// NewPlan sets up every directive of every block, in the order of the
// registry. It reports every error, by file and line, and opens nothing.
func NewPlan(servers []corefile.Server, opts Options) (*Plan, error) {
	p := &Plan{opts: opts}
	var errs []error
	for _, s := range servers {
		errs = append(errs, p.block(s)...)
	}
	errs = append(errs, p.overlaps()...)
	errs = append(errs, p.httpOverlaps()...)
	if len(errs) == 0 {
		for _, b := range p.blocks {
			errs = append(errs, b.Planned()...)
		}
	}
	if err := corefile.Sorted(errs...); err != nil {
		return nil, err
	}
	return p, nil
}

// Warnings returns an error that joins the warnings about the plan's Corefile, in
// the order of their lines; nil if there are none.
func (p *Plan) Warnings() error {
	var all []error
	for _, b := range p.blocks {
		all = append(all, b.Warnings()...)
	}
	return corefile.Sorted(all...)
}

// block plans one server block.
func (p *Plan) block(s corefile.Server) (errs []error) {
	b := &config.Block{
		Source: s, Log: p.opts.Log, Metrics: p.opts.Metrics, Chain: new(dns.Chain),
	}
	var keys []config.Key
	for _, k := range s.Keys {
		more, err := config.ParseKey(k, p.opts.Port)
		if err != nil {
			errs = append(errs, err)
		}
		keys = append(keys, more...)
	}
	for _, k := range keys {
		if !slices.Contains(b.Zones, k.Zone) {
			b.Zones = append(b.Zones, k.Zone)
		}
		if port := fmt.Sprint(k.Port); !slices.Contains(b.Ports, port) {
			b.Ports = append(b.Ports, port)
		}
	}
	answers := false
	uses := map[string][]corefile.Directive{}
	for _, d := range s.Directives {
		uses[d.Text] = append(uses[d.Text], d)
	}
	for _, d := range p.opts.Directives {
		if of := uses[d.Name]; of != nil {
			for i := range of {
				of[i].Usage = d.Usage
			}
			answers = answers || d.Answers
			b.Begin(d.Name)
			if err := d.Setup(b, of); err != nil {
				errs = append(errs, err)
			}
			delete(uses, d.Name)
		}
	}
	if !answers && len(s.Keys) > 0 {
		b.Warn(s.Keys[0].Errorf("", "nothing answers here: every query is refused or fails; add a directive such as forward"))
	}
	for _, left := range uses {
		errs = append(errs, p.unknown(left)...)
	}
	if len(p.opts.Listen) > 0 {
		b.Offer(&p.opts)
	}
	p.blocks = append(p.blocks, b)
	for _, k := range keys {
		errs = append(errs, p.route(k, b)...)
	}
	return errs
}

// unknown returns errors for the uses of a word that is no directive of this
// server.
func (p *Plan) unknown(uses []corefile.Directive) (errs []error) {
	words := strings.Fields(unsupported)
	for _, d := range p.opts.Directives {
		words = append(words, d.Name)
	}
	for _, d := range uses {
		switch {
		case slices.Contains(strings.Fields(unsupported), d.Text):
			errs = append(errs, d.Errorf("known to CoreDNS, not supported yet"))
		case d.Text == "proxy":
			errs = append(errs, d.Errorf("removed in CoreDNS 1.5, use forward"))
		default:
			errs = append(errs, d.Token.Errorf("", "unknown %s%s", d.Describe("directive"), corefile.DidYouMean(d.Text, words)))
		}
	}
	return errs
}

// route lets the block answer for a key on each of its addresses.
func (p *Plan) route(k config.Key, b *config.Block) (errs []error) {
	for _, at := range p.addresses(k, b) {
		i := slices.IndexFunc(p.sites, func(s *site) bool { return s.addr == at.addr })
		if i < 0 {
			i = len(p.sites)
			p.sites = append(p.sites, at)
		}
		s := p.sites[i]
		j := slices.IndexFunc(s.routes, func(r route) bool {
			return r.key.Zone == k.Zone && (r.block.Chain.Match == nil || b.Chain.Match != nil && r.block.Chain.View == b.Chain.View)
		})
		switch {
		case j < 0:
		case s.routes[j].block.Chain.Match == nil && b.Chain.Match != nil:
			at := s.routes[j].key.From
			b.Warn(k.From.Errorf("", "view %s of zone %s is never used: the block at %s:%d comes first and has no view", b.Chain.View, k.Zone, at.File, at.Line))
		default:
			errs = append(errs, s.taken(s.routes[j], k, b))
			continue
		}
		s.routes = append(s.routes, route{k, b})
	}
	return errs
}

// taken returns the error for a second block that answers for a key.
func (s *site) taken(first route, k config.Key, b *config.Block) error {
	what := fmt.Sprintf("zone %s", k.Zone)
	if b.Chain.Match != nil {
		what = fmt.Sprintf("view %s of zone %s", b.Chain.View, k.Zone)
	}
	at := first.key.From
	return k.From.Errorf("", "%s: %s is already served on %s by %s at %s:%d", k.From.Text, what, s.name(), at.Text, at.File, at.Line)
}
