package dynupdate

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/directive/internal/tsig"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/sys/memory"
	"github.com/seamark/seamark/wire"
)

// options are those of a dynupdate directive.
type options struct {
	origin           wire.Name
	file, database   string // database is "" if updates are kept in memory alone
	permissions      []permission
	maxRecords       int
	maxBytes         int64 // in wire form, with names written out
	maxUpdateRecords int
}

// Setup sets up the dynupdate directive: see DynUpdate. It reads the database or the zone file, so that
// their errors are errors of the plan. It writes nothing.
func Setup(b *config.Block, uses []corefile.Directive) error {
	d := uses[0]
	u := &DynUpdate{log: b.Log}
	err := errors.Join(config.Once(uses), u.parse(b, d))
	b.Handle(u)
	if err != nil {
		return err
	}

	u.count = func(code wire.RCode) *metrics.Counter {
		return b.Metrics.Counter("seamark_dynupdate_updates_total",
			"Counter of UPDATE messages.", "zone", u.origin.String(), "rcode", code.String())
	}
	b.Answers(config.Extent{Use: d, Zones: []wire.Name{u.origin}})
	return u.plan(b, d)
}

// parse reads the directive.
func (o *options) parse(b *config.Block, d corefile.Directive) error {
	if len(d.Args) > 1 {
		return d.Errorf("want a single zone, got %d: use a server block for each", len(d.Args))
	}
	zones, err := b.ZonesOr(d)
	if err != nil {
		return err
	}
	slices.Sort(zones)
	if zones = slices.Compact(zones); len(zones) != 1 {
		return d.Errorf("want a single zone, got %d: name it, and use a server block for each", len(zones))
	}
	o.origin = zones[0]

	err = d.Options(
		corefile.Option{Usage: "file DBFILE", Once: true, Set: func(line corefile.Directive) error {
			o.file = b.Path(line.Args[0].Text)
			return nil
		}},
		corefile.Option{Usage: "database PATH", Once: true, Set: func(line corefile.Directive) (err error) {
			o.database, err = databasePath(b.Path(line.Args[0].Text))
			return err
		}},
		corefile.Option{Usage: "allow KEY NAME TYPE...", Set: func(line corefile.Directive) error {
			if err := o.addPermission(line); err != nil {
				return err
			}
			o.warnOfKey(b, line)
			return nil
		}},
		corefile.Option{Usage: "max_records COUNT", Once: true, Default: "10000", Set: corefile.Int(&o.maxRecords, 1, math.MaxInt32)},
		corefile.Option{Usage: "max_bytes SIZE", Once: true, Default: "8MB", Set: corefile.Size(&o.maxBytes, 1, 1<<40)},
		corefile.Option{Usage: "max_update_records COUNT", Once: true, Default: "1024",
			Set: corefile.Int(&o.maxUpdateRecords, 1, math.MaxInt32)},
	)
	switch {
	case err != nil:
		return err
	case o.file == "":
		return d.Errorf("missing file: name the zone file that the zone begins with")
	case len(o.permissions) == 0:
		return d.Errorf("missing allow: name a key, and what it may change")
	case o.database != "" && sameFile(o.file, o.database):
		return d.Errorf("file and database are the same file")
	}
	return nil
}

// databasePath returns the path of the database. A link is resolved, since it would be replaced. The path
// is the same before and after the database exists.
func databasePath(path string) (string, error) {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	} else if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		path = filepath.Join(dir, filepath.Base(path))
	}
	return filepath.Abs(path)
}

func sameFile(a, b string) bool {
	infoA, errA := os.Stat(a)
	infoB, errB := os.Stat(b)
	absolute, _ := filepath.Abs(a)
	return absolute == b || errA == nil && errB == nil && os.SameFile(infoA, infoB)
}

// warnOfKey warns of a key that directive tsig does not have: its updates are refused.
func (o *options) warnOfKey(b *config.Block, line corefile.Directive) {
	key := o.permissions[len(o.permissions)-1].key
	b.OnPlanned(func() error {
		has := slices.ContainsFunc(config.Find[tsig.Keys](b), func(k tsig.Keys) bool { return k.Lookup(key) != nil })
		if !has {
			b.Warn(line.Errorf("no directive tsig of the server block defines the key %s: its updates are refused", key))
		}
		return nil
	})
}

// plan reads the zone, unless the server has it already, and registers the start.
func (u *DynUpdate) plan(b *config.Block, d corefile.Directive) error {
	var planned *version
	claim := b.Memory.Claim(memory.Zones)
	read := func() (err error) {
		if planned, err = u.load(claim, u.log); err != nil {
			claim.Release()
			return d.Errorf("%w", err)
		}
		return nil
	}
	if _, live := storesOf(b).Load(u.storeID()); !live {
		if err := read(); err != nil {
			return err
		}
	}
	release := func() {
		if planned = nil; claim != nil {
			claim.Release()
		}
	}

	observes := false
	b.OnStart(func(s *config.Start) (err error) {
		observes = s.Observes
		u.store, err = config.Keep(s, u.storeID(), func() (*store, error) {
			if planned == nil { // the server has given it up meanwhile
				if err := read(); err != nil {
					return nil, err
				}
			}
			taken := claim
			claim = nil
			return newStore(&u.options, planned, taken, b), nil
		})

		switch {
		case err != nil:
			return err
		case u.store.options.origin != u.origin:
			return d.Errorf("%s is the database of zone %s", u.database, u.store.options.origin)
		}
		return d.Each(u.check(u.store.current.Load()))
	})
	b.OnSwap(func() {
		release()
		if !observes { // else the server could not lock the database
			u.store.start()
		}
	})
	b.OnDiscard(release)
	return nil
}
