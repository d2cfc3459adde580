package secondary

import (
	"fmt"
	"maps"
	"slices"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone"
)

// A memberOption is the value of the option catalog.
type memberOption struct {
	isCatalog bool
	members   []wire.Name // that the catalog may have, or zones that contain them; empty for all
}

// option returns the option for the directive's list of options. It can be repeated: without
// zones it permits all members, as in CoreDNS.
func (m *memberOption) option(b *config.Block) corefile.Option {
	all := false
	return corefile.Option{Usage: "catalog [MEMBER-ZONES...]", Set: func(o corefile.Directive) error {
		zones, err := config.ParseZones(o.Path, o.Args)
		for _, z := range zones {
			if !slices.ContainsFunc(b.Zones, func(served wire.Name) bool { return z.Within(served) || served.Within(z) }) {
				b.Warn(o.Errorf("zone %s is outside the server block's zones, whose members alone are served", z))
			}
		}
		m.isCatalog, m.members = true, append(m.members, zones...)
		if all = all || len(o.Args) == 0; all {
			m.members = nil
		}
		return err
	}}
}

// startCatalogs makes the catalogs of the server block, if it has any.
func (s *Secondary) startCatalogs(b *config.Block, start *config.Start) (err error) {
	taken := map[wire.Name]bool{}
	for _, a := range config.Find[dns.Authority](b) {
		if b.NameOf(a) == "hosts" {
			continue // it adds names to the zones of other handlers
		}
		for _, origin := range a.AuthoritativeZones() {
			taken[origin] = true
		}
	}
	var all []*catalog
	for _, origin := range slices.Sorted(maps.Keys(s.zones)) {
		if at := s.zones[origin]; at.isCatalog {
			all = append(all, &catalog{options: at.options, accept: at.members})
		}
	}
	if all == nil {
		return nil
	}
	// The catalogs of a server block have members in common, so they are kept together.
	id := fmt.Sprintf("%q %q %q", b.Zones, b.Ports, slices.Sorted(maps.Keys(taken)))
	for _, c := range all {
		id += fmt.Sprintf(" %q %q %q %q", c.origin, c.from, c.file, c.accept)
	}
	for _, c := range all {
		s.zones[c.origin].options.catalogs = id
	}
	common, err := config.Keep(start, budgetKey{}, func() (*budget, error) {
		return &budget{limit: maxMemberBytes, waiting: map[*share]waiter{}}, nil
	})
	if err != nil {
		return err
	}
	s.catalogs, err = config.Keep(start, catalogsID(id), func() (*catalogs, error) {
		m := &catalogs{log: b.Log, zones: b.Zones, origins: s.static.origins, taken: taken, all: all, transfers: make(chan struct{}, maxTransfers), budget: common}
		m.current.Store(s.static)
		return m, nil
	})
	return err
}

// A catalogsID identifies a catalogs across reloads.
type catalogsID string

// add makes a copy's versions those of its catalog. It returns the function that applies a
// version.
func (m *catalogs) add(at *served, clients []*client) func(*zone.Zone) error {
	i := slices.IndexFunc(m.all, func(c *catalog) bool { return c.origin == at.origin })
	c := m.all[i]
	m.mu.Lock()
	defer m.mu.Unlock()
	c.clients = clients
	return func(z *zone.Zone) error { return m.update(c, z) }
}
