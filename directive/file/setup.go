package file

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/wire"
)

// A use is one line of a Corefile that names a zone file.
type use struct {
	path    string
	origins []wire.Name
	reload  time.Duration
	byTime  bool
	through config.Fallthrough

	read   *version // what the plan has read; nil when it serves
	source *source  // what is served; nil until the plan starts
}

// Setup is the Setup of file. It reads the files, so that what is wrong in them
// is wrong in the plan.
func Setup(b *config.Block, uses []corefile.Directive) error {
	f := &File{zones: map[wire.Name]*served{}}
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
				errs = append(errs, d.Errorf("zone %s is already served from %s at %s:%d", origin, other.Args[0].Text, other.File, other.Line))
				continue
			}
			first[origin] = d
			f.zones[origin] = &served{u, i}
			f.most = max(f.most, origin.Labels())
		}
		if u.read, err = load(u.path, u.origins, b.Log); err != nil {
			errs = append(errs, d.Errorf("%w", err))
		}
		b.OnStart(func(s *config.Start) error { return u.start(s, b) })
		b.OnSwap(func() {
			u.source.take(u.read)
			u.read = nil
		})
	}
	b.Handle(f)
	return errors.Join(errs...)
}

func parse(b *config.Block, d corefile.Directive) (*use, error) {
	if err := d.Arity(1, -1); err != nil {
		return nil, err
	}
	u := &use{path: b.Path(d.Args[0].Text), reload: time.Minute}
	zones := d
	zones.Args = d.Args[1:]
	var errZones error
	u.origins, errZones = b.ZonesOr(zones)
	return u, errors.Join(errZones, d.Options(
		corefile.Option{Name: "reload", Min: 1, Max: 1, Set: func(o corefile.Directive) error {
			if err := corefile.Duration(&u.reload, 0, 8760*time.Hour)(o); err != nil {
				return err
			}
			if 0 < u.reload && u.reload < 10*time.Millisecond {
				return o.Errorf("want 0 or at least 10ms, got %q", o.Args[0].Text)
			}
			return nil
		}},
		corefile.Option{Name: "reload_by_mtime", Set: corefile.Flag(&u.byTime)},
		u.through.Option(),
		corefile.Option{Name: "upstream", Max: -1, Set: func(o corefile.Directive) error {
			b.Log.Warn("plugin/file: upstream does nothing: targets of CNAMEs are asked of this server", "at", fmt.Sprintf("%s:%d", o.File, o.Line))
			return nil
		}},
	))
}

// start follows the file, unless the old plan does already.
func (u *use) start(s *config.Start, b *config.Block) (err error) {
	type key struct {
		path, origins string
		reload        time.Duration
		byTime        bool
	}
	var names strings.Builder
	for _, o := range u.origins {
		names.WriteString(string(o))
	}
	u.source, err = config.Keep(s, key{u.path, names.String(), u.reload, u.byTime}, func() (*source, error) {
		return open(u, b), nil
	})
	return err
}
