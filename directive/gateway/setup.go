package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/netip"
	"slices"
	"strings"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/cluster/sources"
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/directive/internal/objects"
	"github.com/seamark/seamark/directive/internal/zones"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/wire"
)

// Settings are the options of a directive.
type settings struct {
	use   corefile.Directive
	log   *slog.Logger
	zones []wire.Name
	rules objects.Delegations
	api   cluster.Options
	names cluster.KindSet // of objects whose hosts are published
	ttl   uint32
	most  int

	gatewayClasses, ingressClasses []string // none is all
	services                       []classService

	external    bool
	servers     []nameServer
	fallThrough config.Fallthrough
}

// A classService is the Service of all Gateways and Ingresses of some classes; of all without classes.
type classService struct {
	service cluster.Key
	classes []string
}

// serviceOf returns the Service that the options name for a class.
func (s *settings) serviceOf(class string) (service cluster.Key, ok bool) {
	for _, o := range s.services {
		if len(o.classes) == 0 || slices.Contains(o.classes, class) {
			return o.service, true
		}
	}
	return service, false
}

// Setup sets up the gateway directive: see Handler and External.
func Setup(b *config.Block, uses []corefile.Directive) error {
	d := uses[0]
	s := &settings{use: d, log: b.Log}
	err := errors.Join(config.Once(uses), s.parse(b, d))
	if s.external {
		x := &External{settings: s}
		for i, origin := range s.zones {
			x.byName.Set(origin, i+1)
		}
		b.Handle(x)
		b.Answers(config.Extent{Use: d, Zones: s.zones, Through: &s.fallThrough, Option: "fallthrough"})
		s.onStart(b, &x.source)
		return err
	}
	h := &Handler{settings: s, whole: b.Zones}
	b.Handle(h)
	b.Answers(config.Extent{Use: d, Zones: s.zones, Open: true}) // names that are no hosts pass
	s.onStart(b, &h.source)
	return err
}

// onStart has the source start with the plan.
func (s *settings) onStart(b *config.Block, to **source) {
	b.OnStart(func(start *config.Start) (err error) {
		*to, err = config.Keep(start, s.key(b), func() (*source, error) {
			x := s.newSource(b)
			if x.zones != nil {
				x.zones.serials = zones.Serials(start)
			}
			return x, x.start(start, b)
		})
		return err
	})
	b.OnSwap(func() { (*to).serve() })
}

// A key identifies a source that a reload keeps.
type key struct {
	api  cluster.Options
	text string
}

func (s *settings) key(b *config.Block) key {
	text := fmt.Sprint(s.zones, s.names, s.ttl, s.most, s.gatewayClasses, s.ingressClasses, s.services, s.external, s.servers)
	if s.external {
		text += fmt.Sprint(b.Addresses())
	}
	return key{s.api, text + "\n" + s.rules.Text()}
}

// parse reads the directive.
func (s *settings) parse(b *config.Block, d corefile.Directive) error {
	zones, err := b.ZonesOr(d)
	slices.Sort(zones)
	s.zones = slices.Compact(zones)

	ttl := 0
	var through corefile.Directive
	errs := []error{err, d.Options(append([]corefile.Option{
		s.rules.Option(s.zones),
		{Usage: "resources KIND...", Default: "HTTPRoute GRPCRoute TLSRoute Gateway ListenerSet Ingress", Set: s.setResources},
		{Usage: "gatewayClasses CLASS...", Set: words(&s.gatewayClasses)},
		{Usage: "ingressClasses CLASS...", Set: words(&s.ingressClasses)},
		{Usage: "service NAMESPACE/NAME [CLASS...]", Set: s.addService},
		{Usage: "namespaces NAMESPACE...", Set: func(o corefile.Directive) error {
			s.api.Namespaces = strings.Join(slices.Compact(slices.Sorted(slices.Values(o.Words()))), ",")
			return nil
		}},
		{Usage: "max_hosts NUMBER", Default: "20000", Set: corefile.Int(&s.most, 1, math.MaxInt32)},
		{Usage: "ttl SECONDS", Default: "60", Set: corefile.Int(&ttl, 0, 3600)},
		{Usage: "external", Set: corefile.Flag(&s.external)},
		{Usage: "apex NAME [ADDRESS...]", Once: true, Set: func(o corefile.Directive) error { return s.addServer(o, 0) }},
		{Usage: "secondary NAME [ADDRESS...]", Once: true, Set: func(o corefile.Directive) error { return s.addServer(o, len(s.servers)) }},
		{Usage: "fallthrough [ZONES...]", Set: func(o corefile.Directive) error {
			through = o
			return s.fallThrough.Parse(o)
		}},
		{Usage: "endpoint URL", Set: corefile.String(&s.api.Endpoint)},
	}, sources.LocationOptions(&s.api, b.Path)...)...)}
	s.ttl = uint32(ttl)

	errs = append(errs, s.checkExternal(d, through), s.checkZones(d))
	if err := s.api.Check(); err != nil {
		errs = append(errs, d.Each(err))
	} else if err := s.api.CheckFiles(); err != nil { // the server waits for them
		b.Warn(d.Each(err))
	}
	return errors.Join(errs...)
}

func words(to *[]string) func(corefile.Directive) error {
	return func(o corefile.Directive) error {
		*to = o.Words()
		return nil
	}
}

// checkExternal checks the options that only zones for clients outside have, and sets their default.
func (s *settings) checkExternal(d, through corefile.Directive) error {
	switch {
	case s.external && len(s.servers) == 0:
		s.servers = []nameServer{{labels: "\x03ns1\x03dns"}}
	case s.external:
	case len(s.servers) > 0:
		return d.Errorf("apex and secondary are for external: names without a host are not answered")
	case len(through.Args) > 0:
		return through.Errorf("all names without a host pass: zones are for external")
	}
	return nil
}

// checkZones has every namespace publish hosts in the zones, unless some are delegated.
func (s *settings) checkZones(d corefile.Directive) error {
	if s.rules.IsEmpty() && slices.Contains(s.zones, wire.Root) {
		return d.Errorf("want ZONES or delegate: in the root zone an object of any namespace could take any name")
	}
	var errs []error
	for _, z := range s.zones {
		if s.external && len(z) > wire.MaxName-len("\x0ahostmaster") {
			errs = append(errs, d.Errorf("%s is too long for a zone: the name of its hostmaster would have more than 255 bytes", z))
		}
	}
	s.rules.Everyone(s.zones)
	return errors.Join(errs...)
}

// elsewhere has the resources of k8s_gateway that other directives serve.
var elsewhere = map[string]string{
	"Service":         "k8s_external answers names of Services",
	"DNSEndpoint":     "records with objects and dnsendpoints answers DNSEndpoints",
	"VirtualServer":   "only Ingresses of this controller are supported",
	"TransportServer": "only Ingresses of this controller are supported",
}

// setResources parses the kinds whose hosts are published.
func (s *settings) setResources(o corefile.Directive) error {
	s.names, s.api.Published, s.api.NoEndpoints = 0, 0, true
	var errs []error
	for _, a := range o.Args {
		kind := cluster.Gateways
		for kind <= cluster.Ingresses && kind.ObjectKind() != a.Text {
			kind++
		}
		switch {
		case elsewhere[a.Text] != "":
			errs = append(errs, a.Errorf(o.Path, "%s is not supported: %s", a.Text, elsewhere[a.Text]))
		case kind > cluster.Ingresses:
			errs = append(errs, a.Errorf(o.Path, "want HTTPRoute, GRPCRoute, TLSRoute, Gateway, ListenerSet or Ingress, got %q", a.Text))
		case kind == cluster.Ingresses:
			s.names |= cluster.SetOf(kind)
			s.api.Published |= cluster.SetOf(kind)
		case kind == cluster.Gateways || kind == cluster.ListenerSets:
			s.names |= cluster.SetOf(kind)
			s.api.Published |= cluster.SetOf(kind, cluster.Gateways)
		default: // Routes, which either may have
			s.names |= cluster.SetOf(kind)
			s.api.Published |= cluster.SetOf(kind, cluster.Gateways, cluster.ListenerSets)
		}
	}
	return errors.Join(errs...)
}

// addService parses the option service.
func (s *settings) addService(o corefile.Directive) error {
	service, ok := cluster.ParseKey(o.Args[0].Text)
	if !ok {
		return o.Args[0].Errorf(o.Path, "want NAMESPACE/NAME, got %q", o.Args[0].Text)
	}
	s.services = append(s.services, classService{service, o.Words()[1:]})
	return nil
}

// addServer parses a name server, and inserts it.
func (s *settings) addServer(o corefile.Directive, at int) error {
	name, err := wire.ParseName(o.Args[0].Text)
	if err != nil || name == wire.Root {
		return o.Args[0].Errorf(o.Path, "want a name in front of the zone, got %q", o.Args[0].Text)
	}
	server := nameServer{labels: string(name[:len(name)-1])}
	if labels := strings.Split(strings.TrimSuffix(name.String(), "."), "."); len(labels) == 2 {
		server.service = cluster.Key{Namespace: labels[1], Name: labels[0]}
	}
	for _, a := range o.Args[1:] {
		addr, err := netip.ParseAddr(a.Text)
		if err != nil || addr.Zone() != "" {
			return a.Errorf(o.Path, "want an IP address, got %q", a.Text)
		}
		server.addrs = append(server.addrs, addr.Unmap())
	}
	s.servers = slices.Insert(s.servers, at, server)
	return nil
}

// CheckObjects reads the objects once, and returns what is wrong with each. They are those of the cluster at
// a location or, if that is the zero value, those of the directive's own folder; without one it reads
// nothing.
func (s *settings) CheckObjects(ctx context.Context, at cluster.Options) (errs []error) {
	one := *s
	if at != (cluster.Options{}) {
		at.Published, at.NoEndpoints, at.Namespaces = s.api.Published, true, s.api.Namespaces
		one.api = at
	} else if s.api.Manifests == "" {
		return nil
	}
	one.log = slog.New(slog.DiscardHandler)
	b := &config.Block{Log: one.log, Metrics: new(metrics.Registry), Shared: new(config.Shared)}
	x := one.newSource(b)
	x.run(b)
	defer x.Stop()

	if err := objects.AwaitList(ctx, x.synced, x.board); err != nil {
		return []error{s.use.Errorf("%w", err)}
	}
	for _, fault := range x.faults() {
		errs = append(errs, s.use.Errorf("%s", fault))
	}
	return errs
}
