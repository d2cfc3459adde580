package secondary

import (
	"slices"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
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
			overlaps := func(served wire.Name) bool { return z.Within(served) || served.Within(z) }
			if !slices.ContainsFunc(b.Zones, overlaps) {
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

// startCatalogs finds or makes the catalogs of the server block, if it has any.
func (s *Secondary) startCatalogs(b *config.Block, start *config.Start) error {
	var origins []wire.Name
	for origin, at := range s.zones.All() {
		if at.isCatalog {
			origins = append(origins, origin)
		}
	}
	if origins == nil {
		return nil
	}

	var err error
	s.catalogs, err = s.server.claim(start, origins, b)
	for _, origin := range origins {
		s.zones.Get(origin).options.catalogs = s.catalogs
	}
	return err
}

// setScope makes the configuration of s that of the catalogs: configure applies it.
func (s *Secondary) setScope(b *config.Block) {
	to := &scope{
		zones: b.Zones, origins: slices.Sorted(slices.Values(s.zones.Zones())), taken: map[wire.Name]bool{}, accept: map[wire.Name][]wire.Name{},
	}
	for _, a := range config.Find[dns.Authority](b) {
		if b.NameOf(a) == "hosts" {
			continue // it adds names to the zones of other handlers
		}
		for _, origin := range a.AuthoritativeZones() {
			to.taken[origin] = true
		}
	}

	for _, origin := range to.origins {
		if at := s.zones.Get(origin); at.isCatalog {
			to.all = append(to.all, at.copy.catalog)
			to.accept[origin] = at.members
		}
	}

	s.catalogs.wanted.Store(to)
}
