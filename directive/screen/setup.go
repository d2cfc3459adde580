package screen

import (
	"errors"
	"fmt"
	"slices"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/wire"
)

// Setup sets up the screen directive.
func Setup(b *config.Block, uses []corefile.Directive) error {
	d := uses[0]
	s := &Screen{log: b.Log}
	for reason, counter := range s.counters() {
		*counter = b.Metrics.Counter("seamark_screen_total",
			"Queries that were not forwarded, and answers of upstreams that were changed.", "reason", reason)
	}

	err := errors.Join(config.Once(uses), d.Arity(0, 0), d.Options(
		corefile.Option{Usage: "local ZONES...", Set: s.setZones(true)},
		corefile.Option{Usage: "except ZONES...", Set: s.setZones(false)},
		corefile.Option{Usage: "plain_names", Set: corefile.Flag(&s.plain)},
		corefile.Option{Usage: "least_labels N", Set: corefile.Int(&s.least, 1, wire.MaxLabels)},
		corefile.Option{Usage: "private_reverse", Set: corefile.Flag(&s.reverse)},
		corefile.Option{Usage: "rebind [ZONES...]", Set: s.setRebind},
		corefile.Option{Usage: "rebind_localhost_ok", Set: corefile.Flag(&s.localhost)},
		corefile.Option{Usage: "drop TYPE...", Set: corefile.Append(&s.drop, parseDropped)},
	))

	if len(d.Body) == 0 {
		err = errors.Join(err, d.Errorf("want options in braces: "+
			"local, plain_names, least_labels, private_reverse, rebind or drop"))
	}
	if err == nil && s.localhost && !s.rebind {
		err = d.Errorf("rebind_localhost_ok requires rebind")
	}

	b.Handle(s)
	b.OnPlanned(func() error {
		s.neighbours = config.Find[neighbour](b)
		return nil
	})
	return err
}

func (s *Screen) counters() map[string]**metrics.Counter {
	return map[string]**metrics.Counter{
		"local": &s.locals, "plain_name": &s.plains, "few_labels": &s.few,
		"private_reverse": &s.reverses, "rebind": &s.rebinds, "drop": &s.drops,
	}
}

// setZones returns the parser of local or except.
func (s *Screen) setZones(local bool) func(corefile.Directive) error {
	return func(o corefile.Directive) error {
		zones, err := config.ParseZones(o.Path, o.Args)
		errs := []error{err}
		for _, z := range zones {
			if other, ok := s.zones.All()[z]; ok && other != local {
				errs = append(errs, o.Errorf("%s is in both local and except", z))
			}
			s.zones.Set(z, local)
		}
		return errors.Join(errs...)
	}
}

func (s *Screen) setRebind(o corefile.Directive) error {
	zones, err := config.ParseZones(o.Path, o.Args)
	s.rebind = true
	for _, z := range zones {
		s.trusted.Set(z, struct{}{})
	}
	return err
}

// structure lists the types without which clients cannot interpret an answer.
var structure = [...]wire.Type{
	wire.TypeCNAME, wire.TypeDNAME, wire.TypeNS, wire.TypeSOA, wire.TypeOPT,
	wire.TypeRRSIG, wire.TypeDS, wire.TypeDNSKEY, wire.TypeNSEC, wire.TypeNSEC3,
}

func parseDropped(text string) (wire.Type, error) {
	t, ok := wire.ParseType(text)
	switch {
	case !ok:
		return 0, fmt.Errorf("want types such as A or AAAA, got %q", text)
	case slices.Contains(structure[:], t) || t == 0 || 128 <= t && t <= 255:
		return 0, fmt.Errorf("%s cannot be dropped", t)
	}
	return t, nil
}
