package secondary

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/directive/internal/tsig"
	"github.com/seamark/seamark/sys/memory"
	"github.com/seamark/seamark/zone"
)

// Setup sets up the secondary directives of a server block: see Secondary.
func Setup(b *config.Block, uses []corefile.Directive) error {
	s := &Secondary{static: new(zoneSet)}
	var errs []error
	for _, d := range uses {
		errs = append(errs, s.parse(b, d))
	}
	b.Handle(s)

	b.OnStart(func(start *config.Start) (err error) {
		s.server = serverOf(start, b)
		if err := s.startCatalogs(b, start); err != nil {
			return err
		}
		for _, at := range s.zones.All() {
			at.shared, _ = config.Keep(start, config.InPlan{Plan: start, Key: at.options}, func() (*sharedZone, error) {
				return &sharedZone{first: at}, nil
			})
			if err := at.shared.share(at, b); err != nil {
				return err
			}
			at.copy, err = config.Keep(start, at.options, func() (*zoneCopy, error) { return s.newCopy(at, b), nil })
			if err != nil {
				return err
			}
		}

		// With other primaries a zone has another copy: the old plan serves until it has the zone.
		if start.Reload {
			if err := s.awaitZones(start); err != nil {
				return err
			}
		}

		// Members are served from the first query on; a reload serves those of the old plan until it has succeeded.
		if s.catalogs != nil && s.catalogs.isNew() {
			s.setScope(b)
			s.catalogs.configure()
		}
		s.started.Store(true)
		return nil
	})

	b.OnSwap(func() {
		for _, at := range s.zones.All() {
			at.copy.configure(at)
		}
		if s.catalogs != nil {
			s.setScope(b)
			s.catalogs.tasks.Go(s.catalogs.configure)
		}
		s.server.copies.drop()
	})

	return errors.Join(errs...)
}

// newCopy starts the copy of a zone.
func (s *Secondary) newCopy(at *servedZone, b *config.Block) *zoneCopy {
	dial := b.Dial
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	var clients []*client
	for _, addr := range at.primaries {
		clients = append(clients, &client{addr: addr, dial: dial})
	}

	c := newCopy(at.options, clients, b.Log, newRoom(b.Memory, memory.Zones), s.server)
	c.configure(at)
	c.health = b.Health()
	members := func() []*zoneCopy { return nil }
	if at.isCatalog {
		of := &catalog{options: c.options, clients: c.clients}
		c.catalog, c.accept = of, func(z *zone.Zone) error { return s.catalogs.update(of, z) }
		members = func() []*zoneCopy { return s.catalogs.membersOf(of) }
	}
	c.export(b.Metrics, members)
	if at.isCatalog {
		c.catalog.metrics = c.metrics
	}
	c.start()
	return c
}

// configure sets what a reload of the Corefile may change.
func (c *zoneCopy) configure(at *servedZone) {
	for _, from := range c.clients {
		from.key.Store(at.key)
		from.limit.Store(at.maxSize)
	}
	c.sends.Store(at.shared.sends)

	interval, expires := int64(at.interval), int64(at.expires)
	before := [...]int64{c.interval.Swap(interval), c.expires.Swap(expires)}
	if before != [...]int64{interval, expires} && c.loaded.Load() {
		c.notify() // the next refresh may be hours away
	}
}

func (s *Secondary) parse(b *config.Block, d corefile.Directive) error {
	zones, err := b.ZonesOr(d)
	var fallthru config.Fallthrough
	var primaries []netip.AddrPort
	file, ref, maxSize := "", new(tsig.Ref), int64(0)
	var interval, expires time.Duration
	var members memberOption

	errs := []error{err, d.Options(
		corefile.Option{Usage: "transfer from ADDRESS...", Set: func(o corefile.Directive) error {
			if o.Args[0].Text != "from" {
				return o.Errorf("want from, got %q", o.Args[0].Text)
			}
			at, err := parsePrimaries(o)
			primaries = append(primaries, at...)
			return err
		}},
		corefile.Option{Usage: "file PATH", Once: true, Set: func(o corefile.Directive) error {
			file = b.Path(o.Args[0].Text)
			if len(zones) > 1 {
				return o.Errorf("want a single zone, got %d: use secondary once for each", len(zones))
			}
			return nil
		}},
		corefile.Option{Usage: "max_size SIZE", Once: true, Default: "512MB", Set: corefile.Size(&maxSize, 1<<10, maxBytes)},
		members.option(b),
		followOption(&interval),
		corefile.Option{Usage: "expire DURATION", Once: true, Set: corefile.Duration(&expires, time.Second, maxTimer)},
		fallthru.Option(),
		ref.Option(b),
	)}

	if interval > 0 && members.isCatalog {
		errs = append(errs, d.Errorf("follow: catalogs and their members do not follow; remove follow"))
	}
	if expires > 0 && members.isCatalog {
		errs = append(errs, d.Errorf("expire: catalogs and their members expire by their SOA records; remove expire"))
	}
	if errors.Join(errs...) == nil && len(primaries) == 0 {
		errs = append(errs, d.Errorf("missing transfer from: name the primary servers"))
	}

	b.Answers(config.Extent{
		Use: d, Zones: zones, Through: &fallthru, Option: "fallthrough", Together: true,
	})
	for _, origin := range zones {
		if s.zones.Get(origin) != nil {
			errs = append(errs, d.Errorf("zone %s is already given", origin))
		}
		s.zones.Set(origin, &servedZone{
			options:   options{origin: origin, from: fmt.Sprint(primaries), file: file},
			primaries: primaries, fallthru: &fallthru, key: ref, maxSize: maxSize, memberOption: members,
			interval: interval, expires: expires, use: d,
		})
		s.static.zones.Set(origin, struct{}{})
	}
	return errors.Join(errs...)
}

// parsePrimaries returns the addresses after from.
func parsePrimaries(o corefile.Directive) (primaries []netip.AddrPort, err error) {
	var errs []error
	for _, a := range o.Args[1:] {
		at, err := config.ParseServer(a.Text)
		if err != nil {
			errs = append(errs, a.Errorf(o.Path, "want an IP address or ADDRESS:PORT, got %q", a.Text))
		}
		primaries = append(primaries, at)
	}
	return primaries, errors.Join(errs...)
}
