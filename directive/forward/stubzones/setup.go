// Package stubzones implements the directive stub_zones: it forwards queries for zones that ConfigMaps of
// a cluster name to the servers that they name.
//
// Package objects watches the ConfigMaps, and content.go reads them. A table (table.go) has the zones,
// each with open upstreams of package forward; queries read it without a lock.
package stubzones

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/directive/forward"
	"github.com/seamark/seamark/directive/internal/objects"
)

// forwardOptions are the options of forward that apply to all zones.
var forwardOptions = [...]string{
	"attempts", "case_randomization", "expire", "failfast_all_unhealthy_upstreams", "failover", "force_tcp", "health_check",
	"max_age", "max_concurrent", "max_connect_attempts", "max_fails", "max_idle_conns", "policy", "prefer_tcp", "prefer_udp",
	"read_timeout", "source_address", "tls_servername", "unanswered",
}

// Settings are the options of a directive.
type settings struct {
	objects.Settings
	upstreams []netip.Prefix // that zones may have; empty: see allows
	options   []corefile.Directive
}

// Setup sets up the stub_zones directive: see Handler.
func Setup(b *config.Block, uses []corefile.Directive) error {
	d := uses[0]
	s := &settings{Settings: objects.Settings{Directive: "stub_zones", Noun: "zones", Labels: "seamark.io/dns=stub-zones"}}
	s.Read = s.read
	errs := []error{config.Once(uses), d.Arity(0, 0), s.ParseOptions(b, d, b.Zones, "100", s.ownOptions()...)}
	s.API.ConfigMapLabels = cmp.Or(s.API.ConfigMapLabels, s.Labels)
	errs = append(errs, s.CheckLocation(b))

	h := &Handler{rules: s.Rules(), whole: b.Zones, stateKey: b.NewStateKey(), settings: s}
	d.Body = s.options
	var err error
	h.template, err = forward.NewTemplate(b, d)
	b.Handle(h)
	b.Answers(config.Extent{Use: d, Zones: b.Zones, Open: true}) // names without a stub zone pass
	b.OnStart(func(start *config.Start) (err error) {
		h.zones, err = s.start(start, b, h.template)
		return err
	})
	return errors.Join(append(errs, err)...)
}

// ownOptions returns the options that records does not have.
func (s *settings) ownOptions() []corefile.Option {
	options := []corefile.Option{{Usage: "upstreams CIDR...", Set: corefile.Append(&s.upstreams, config.ParseSource)}}
	for _, name := range forwardOptions {
		options = append(options, corefile.Option{Usage: name + " [ARGUMENTS...]", Set: func(o corefile.Directive) error {
			s.options = append(s.options, o)
			return nil
		}})
	}
	return options
}

// allows reports whether a zone may have an upstream with an address.
func (s *settings) allows(addr netip.Addr) bool {
	if len(s.upstreams) > 0 {
		return slices.ContainsFunc(s.upstreams, func(p netip.Prefix) bool { return p.Contains(addr) })
	}
	return !addr.IsLoopback() && !addr.IsLinkLocalUnicast() && !addr.IsUnspecified() && !addr.IsMulticast()
}

// A key identifies zones that a reload keeps, and a poolKey their upstreams: with other delegations only
// the zones are new.
type (
	key struct {
		objects.Key
		allowed string
		poolKey
	}
	poolKey struct{ options string }
)

func (s *settings) key() key {
	var allowed, options strings.Builder
	for _, p := range s.upstreams {
		allowed.WriteString(p.String() + " ")
	}
	for _, o := range s.options {
		options.WriteString("\n" + strings.Join(append([]string{o.Text}, o.Words()...), " "))
	}
	return key{s.Key(), allowed.String(), poolKey{options.String()}}
}

// start returns the zones of the old plan if the settings are the same, or new ones. A reload waits until
// these are open.
func (s *settings) start(start *config.Start, b *config.Block, template *forward.Template) (*zones, error) {
	k := s.key()
	open, err := config.Keep(start, k.poolKey, func() (*pool, error) { return newPool(template.Open), nil })
	if err != nil {
		return nil, err
	}
	return config.Keep(start, k, func() (*zones, error) {
		x := &zones{table: table{pool: open}}
		x.table.init()
		x.Objects = objects.New(s.Settings, &x.table, b)
		if err := x.Start(start, b, x); err != nil || !start.Reload {
			return x, err
		}
		return x, start.Await(x, x.table.opened(), openTimeout, func() error {
			return s.Use.Errorf("the upstreams of stub zones are not open after %v", openTimeout)
		})
	})
}

// openTimeout is how long a reload waits for upstreams.
const openTimeout = 5 * time.Second

// CheckObjects returns what is wrong with each ConfigMap: see [objects.Settings.Check].
func (h *Handler) CheckObjects(ctx context.Context, at cluster.Options) []error {
	return h.settings.Check(ctx, at, make(names), nil)
}
