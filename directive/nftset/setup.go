package nftset

import (
	"errors"
	"slices"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/sys/memory"
	"github.com/seamark/seamark/sys/nftables"
)

// openerKey identifies the opener of all plans.
type openerKey struct{}

// An opener opens the writer of a process.
type opener func() (Writer, error)

// WriteBy makes all plans with shared write by what open returns, in place of the kernel: the process that
// answers the queries of a node lacks the privileges. It is called before the first plan.
func WriteBy(shared *config.Shared, open func() (Writer, error)) {
	config.Share(&config.Block{Shared: shared}, openerKey{}, func() opener { return open })
}

// openKernel opens the kernel.
func openKernel() (Writer, error) { return nftables.Open(nil) }

// Setup sets up the directive nftset.
func Setup(b *config.Block, uses []corefile.Directive) error {
	h := &Handler{metrics: b.Metrics}
	given := map[nftables.Set]int{} // lines
	var errs []error
	for _, d := range uses {
		u, err := read(d)
		for _, s := range u.names {
			if line := given[s]; line > 0 && len(u.groups) == 0 && len(u.zones.All()) == 0 {
				err = errors.Join(err, d.Errorf("the set %s is already given on line %d", s, line))
			}
		}
		for _, s := range u.names {
			given[s] = d.Line
		}
		h.uses = append(h.uses, u)
		errs = append(errs, err)
	}
	b.Handle(h)

	b.OnPlanned(func() error { return h.findGroups(b, uses) })
	open := config.Share(b, openerKey{}, func() opener { return openKernel })
	b.OnStart(func(s *config.Start) error { return h.start(b, s, open) })
	return errors.Join(errs...)
}

// start opens the sets. Sets that cannot be written are no error: clients need answers all the same.
func (h *Handler) start(b *config.Block, s *config.Start, open opener) error {
	k, err := config.Keep(s, nil, func() (*keeper, error) { return newKeeper(open, b.Memory.Claim(memory.Files)), nil })
	if err != nil {
		return err
	}
	for _, u := range h.uses {
		for _, name := range u.names {
			opened, err := config.Keep(s, name, func() (*set, error) {
				added := newSet(name, k, b.Log, b.Health(), b.Metrics)
				k.add(added)
				return added, nil
			})
			if err != nil {
				return err
			}
			u.sets = append(u.sets, opened)
		}
	}
	return nil
}

// read reads one line with its options.
func read(d corefile.Directive) (*use, error) {
	u := new(use)
	err := errors.Join(d.Arity(3, -1), d.Options(
		corefile.Option{Usage: "zones ZONE...", Set: u.addZones},
		corefile.Option{Usage: "groups GROUP...", Set: func(o corefile.Directive) error {
			u.groups = append(u.groups, o.Words()...)
			return nil
		}},
		corefile.Option{Usage: "except SOURCES...", Set: corefile.Append(&u.except, config.ParseSource)},
		corefile.Option{Usage: "min_timeout DURATION", Once: true, Default: "10s", Set: corefile.Duration(&u.least, time.Second, 24*time.Hour)},
		corefile.Option{Usage: "wait DURATION", Once: true, Default: "1s", Set: corefile.Duration(&u.wait, 10*time.Millisecond, 4*time.Second)},
	))
	if words := d.Words(); len(words) >= 3 {
		for _, name := range words[2:] {
			s := nftables.Set{Family: words[0], Table: words[1], Name: name}
			if wrong := s.Check(); wrong != nil {
				return u, errors.Join(err, d.Errorf("%w", wrong))
			}
			if slices.Contains(u.names, s) {
				err = errors.Join(err, d.Errorf("the set %s is given twice", s))
			}
			u.names = append(u.names, s)
		}
	}
	return u, err
}

// addZones adds the words of an option zones.
func (u *use) addZones(o corefile.Directive) error {
	zones, err := config.ParseZones(o.Path, o.Args)
	for _, zone := range zones {
		u.zones.Set(zone, true)
	}
	return err
}

// findGroups finds the directive policy, whose groups options may name.
func (h *Handler) findGroups(b *config.Block, uses []corefile.Directive) error {
	h.policy = config.Find[grouper](b)
	var errs []error
	for i, u := range h.uses {
		if len(u.groups) > 0 && len(h.policy) == 0 {
			errs = append(errs, uses[i].Errorf("groups requires the directive policy in the same server block"))
			continue
		}
		for _, g := range u.groups {
			if !slices.ContainsFunc(h.policy, func(p grouper) bool { return p.HasGroup(g) }) {
				errs = append(errs, uses[i].Errorf("groups: policy has no group %s", g))
			}
		}
	}
	return corefile.Sorted(errs...)
}
