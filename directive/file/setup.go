package file

import (
	"errors"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/wire"
)

// A use is one file directive in a Corefile.
type use struct {
	path     string
	origins  []wire.Name
	reload   time.Duration
	byTime   bool
	maxSize  int64 // bytes of memory of a zone; 0 is no limit
	fallthru config.Fallthrough

	planned *version // read by Setup; nil once it is served
	source  *source  // nil until the plan starts
}

// Setup sets up the file directives of a server block: see File. It reads the zone
// files, so that their errors are errors of the plan.
func Setup(b *config.Block, uses []corefile.Directive) error {
	f := new(File)
	first := map[wire.Name]corefile.Directive{}
	var errs []error
	for _, d := range uses {
		u, err := parse(b, d)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for i, origin := range u.origins {
			if other, ok := first[origin]; ok {
				errs = append(errs, d.Errorf("zone %s is already served from %s at %s:%d",
					origin, other.Args[0].Text, other.File, other.Line))
				continue
			}
			first[origin] = d
			f.zones.Set(origin, &served{u, i})
		}

		b.Answers(config.Extent{
			Use: d, Zones: u.origins, Through: &u.fallthru, Option: "fallthrough", Together: true,
		})
		errs = append(errs, u.plan(b, d))
		b.OnSwap(func() {
			u.source.serve(u.planned)
			u.drop()
		})
		b.OnDiscard(u.drop)
	}
	b.Handle(f)
	return errors.Join(errs...)
}

// plan reads the zone file and registers the start of u. If the directive sign writes the file,
// it is read at the start, after that.
func (u *use) plan(b *config.Block, d corefile.Directive) error {
	read := func() (err error) {
		u.planned, err = libraryOf(b).read(u.path, u.origins, u.limits(b), true, b.Log)
		return d.Each(err)
	}
	start := func(s *config.Start) error { return u.start(s, b) }
	if corefile.IndexOf(b.Source.Directives, "sign") < 0 {
		b.OnStart(start)
		return read()
	}

	b.OnPlanned(func() error {
		if !signs(b, u.path) {
			b.OnStart(start)
			return read()
		}
		b.OnStart(func(s *config.Start) error {
			if err := read(); err != nil {
				return err
			}
			return start(s)
		})
		return nil
	})
	return nil
}

// drop ends the use of the version that the plan has read.
func (u *use) drop() {
	u.planned.release()
	u.planned = nil
}

// parse reads one file directive.
func parse(b *config.Block, d corefile.Directive) (*use, error) {
	if err := d.Arity(1, -1); err != nil {
		return nil, err
	}
	u := &use{path: b.Path(d.Args[0].Text)}
	zones := d
	zones.Args = d.Args[1:]
	var errZones error
	u.origins, errZones = b.ZonesOr(zones)
	return u, errors.Join(errZones, d.Options(
		reloadOption(&u.reload),
		corefile.Option{Usage: "reload_by_mtime", Set: corefile.Flag(&u.byTime)},
		corefile.Option{Usage: "max_size SIZE", Once: true, Set: corefile.Size(&u.maxSize, 1<<10, 1<<40)},
		u.fallthru.Option(),
		upstreamOption(b),
	))
}

// limits returns the bounds on the memory of the zones.
func (u *use) limits(b *config.Block) limits { return limits{b.Memory, u.maxSize} }

// reloadOption returns the option reload.
func reloadOption(interval *time.Duration) corefile.Option {
	return corefile.Option{Usage: "reload DURATION", Default: "1m", Set: func(o corefile.Directive) error {
		if err := corefile.Duration(interval, 0, 8760*time.Hour)(o); err != nil {
			return err
		}
		if 0 < *interval && *interval < 10*time.Millisecond {
			return o.Errorf("want 0 or at least 10ms, got %q", o.Args[0].Text)
		}
		return nil
	}}
}

func upstreamOption(b *config.Block) corefile.Option {
	return corefile.Option{Usage: "upstream [ADDRESS...]", Set: func(o corefile.Directive) error {
		b.Warn(o.Errorf("ignored, since the server resolves CNAME targets itself"))
		return nil
	}}
}

// start sets u.source. It keeps the source of the old plan if the path, the zones
// and the options are the same.
func (u *use) start(s *config.Start, b *config.Block) (err error) {
	type key struct {
		path, origins string
		reload        time.Duration
		byTime        bool
		maxSize       int64
	}
	u.source, err = config.Keep(s, key{u.path, originsText(u.origins), u.reload, u.byTime, u.maxSize}, func() (*source, error) {
		return newSource(u, b), nil
	})
	return err
}
