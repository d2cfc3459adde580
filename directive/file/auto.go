package file

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/sys/follow"
	"github.com/seamark/seamark/sys/memory"
	"github.com/seamark/seamark/sys/watch"
	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone"
)

// An Auto answers from the zone files of a directory: the auto directive. Its reference page
// is docs/reference/directives/auto.md.
type Auto struct {
	origins []wire.Name
	dir     *directory
	options autoOptions
}

// templateGroup matches a group of REGEXP in ORIGIN_TEMPLATE.
var templateGroup = regexp.MustCompile(`\{(\w+)\}`)

// An autoOptions identifies a directory across reloads.
type autoOptions struct {
	path, pattern, template string
	reload                  time.Duration
}

// SetupAuto sets up the auto directives of a server block: see Auto.
func SetupAuto(b *config.Block, uses []corefile.Directive) error {
	var errs []error
	for _, d := range uses {
		a := &Auto{options: autoOptions{pattern: `db\.(.*)`, template: "${1}"}}
		errs = append(errs, a.parse(b, d))
		b.Handle(a)
		b.Answers(config.Extent{Use: d, Zones: a.origins, Open: true}) // the directory may have no zone
		b.OnPlanned(func() error {                                     // so that the directory has the files that sign writes at the start
			b.OnStart(func(s *config.Start) (err error) {
				if s.Reload && a.options.reload == 0 {
					b.OnSwap(func() { a.dir.readAgain() })
				}
				a.dir, err = config.Keep(s, a.options, func() (*directory, error) {
					return newDirectory(a.options, b), nil
				})
				return err
			})
			return nil
		})
	}
	return errors.Join(errs...)
}

func (a *Auto) parse(b *config.Block, d corefile.Directive) (err error) {
	var errZones error
	a.origins, errZones = b.ZonesOr(d)
	err = errors.Join(errZones, d.Options(
		corefile.Option{Usage: "directory DIR [REGEXP ORIGIN_TEMPLATE]", Set: func(o corefile.Directive) error {
			return a.options.setDirectory(b, o)
		}},
		reloadOption(&a.options.reload),
		upstreamOption(b),
	))
	if err == nil && a.options.path == "" {
		err = d.Errorf("missing directory: name the directory of the zone files")
	}
	return err
}

// setDirectory parses the option directory.
func (a *autoOptions) setDirectory(b *config.Block, o corefile.Directive) error {
	a.path = b.Path(o.Args[0].Text)
	if _, err := os.Stat(a.path); err != nil {
		b.Warn(o.Errorf("%w", err))
	}
	switch len(o.Args) {
	case 1:
		return nil
	case 2:
		return o.Errorf("missing ORIGIN_TEMPLATE after REGEXP")
	}

	expression, template := o.Args[1].Text, o.Args[2].Text
	pattern, err := regexp.Compile(expression)
	if err != nil {
		return o.Errorf("%w", err)
	}
	if pattern.NumSubexp() == 0 {
		return o.Errorf("want a group in parentheses in REGEXP, got %q", expression)
	}
	for _, group := range templateGroup.FindAllStringSubmatch(template, -1) {
		n, err := strconv.Atoi(group[1])
		if err != nil {
			n = pattern.SubexpIndex(group[1])
		}
		if n < 0 || n > pattern.NumSubexp() {
			return o.Errorf("ORIGIN_TEMPLATE has the group %s, which is not in REGEXP %s", group[0], expression)
		}
	}
	a.pattern, a.template = expression, strings.ReplaceAll(template, "{", "${")
	return nil
}

// ServeDNS answers queries for names in the zones of the files.
func (a *Auto) ServeDNS(q *dns.Query) dns.Verdict {
	if !a.serves(q.Name()) {
		return dns.Next
	}
	return a.dir.files.Load().ServeDNS(q)
}

// serves reports whether a name is in the zones of the directive. The directory may have files of others.
func (a *Auto) serves(name []byte) bool {
	return slices.ContainsFunc(a.origins, func(o wire.Name) bool { return wire.Within(name, o) })
}

// Resolve waits for the answer to the sub-query for a CNAME target.
func (a *Auto) Resolve(ctx context.Context, q *dns.Query) error {
	return a.dir.files.Load().Resolve(ctx, q)
}

// FindZone implements [dns.ZoneFinder].
func (a *Auto) FindZone(name []byte) int {
	_, n := a.dir.files.Load().zones.LongestOf(name)
	shortest := 0 // of the origins that contain name
	for _, o := range a.origins {
		if n > 0 && wire.Within(name, o) && (shortest == 0 || len(o) < shortest) {
			shortest = len(o)
		}
	}
	if shortest == 0 {
		return 0
	}
	return max(n, shortest)
}

// FindsZones implements [zone.Finder].
func (a *Auto) FindsZones() bool { return true }

// Version implements [zone.Transferable].
func (a *Auto) Version(origin wire.Name) zone.Version {
	if !a.serves([]byte(origin)) {
		return nil
	}
	return a.dir.files.Load().Version(origin)
}

// Metadata is that of the files.
func (a *Auto) Metadata(q *dns.Query, key string) (value string, ok bool) {
	if !a.serves(q.Name()) {
		return "", false
	}
	return a.dir.files.Load().Metadata(q, key)
}

// Follow implements [zone.Transferable].
func (a *Auto) Follow(changed func(origin wire.Name)) (stop func()) {
	ifServed := func(origin wire.Name) {
		if a.serves([]byte(origin)) {
			changed(origin)
		}
	}
	stop = a.dir.followers.Add(ifServed)
	for origin := range a.dir.files.Load().zones.All() {
		ifServed(origin)
	}
	return stop
}

// A directory serves the zone files of a directory. A reload of the Corefile keeps it if
// its options are the same.
type directory struct {
	autoOptions
	match     *regexp.Regexp
	block     *config.Block
	log       *slog.Logger
	followers zone.Followers
	task      follow.Task

	files atomic.Pointer[File] // replaced when files are added or removed
	bad   map[string]string    // errors that were logged, by path; used by scan only
	short bool                 // scan again soon; used by scan, and after it
}

func newDirectory(o autoOptions, b *config.Block) *directory {
	d := &directory{autoOptions: o, match: regexp.MustCompile(o.pattern), block: b, log: b.Log}
	d.files.Store(new(File))

	// The watcher is there before the files are read, so that it misses no change.
	var w *watch.Watcher
	if o.reload > 0 {
		w = watch.New([]string{o.path}, watch.Options{Poll: o.reload, Log: b.Log})
	}
	paths := d.scan()
	if w != nil {
		d.task.Go(func(ctx context.Context) {
			defer w.Close()
			for w.Follow(paths...); wait(ctx, w, d.short); w.Follow(paths...) {
				paths = d.scan()
			}
		})
	}
	return d
}

// Stop stops following the directory and its files.
func (d *directory) Stop() {
	d.task.Stop()
	for _, s := range d.files.Load().zones.All() {
		s.source.Stop()
	}
}

// readAgain reads a directory that nothing follows. A file that cannot be read keeps its zones.
func (d *directory) readAgain() {
	for _, s := range d.files.Load().zones.All() {
		s.source.reload()
	}
	d.scan()
}

// A scan compares the files of a directory with the zones that the directive serves.
type scan struct {
	*directory
	old, next *File
	paths     []string          // to watch
	bad       map[string]string // errors by path
	again     bool              // some are of the system, not of a file's content
	added     []wire.Name
}

// scan serves new files and stops serving removed ones. It returns the paths to watch.
func (d *directory) scan() (paths []string) {
	s := scan{directory: d, old: d.files.Load(), next: new(File), paths: []string{d.path}, bad: map[string]string{}}
	// With the separator a link to a directory is followed.
	if err := filepath.WalkDir(d.path+string(filepath.Separator), s.visit); err != nil {
		s.bad[d.path] = err.Error()
	}
	for path, why := range s.bad {
		if d.bad[path] != why {
			d.log.Warn("auto: Ignored file", "file", path, "error", why)
		}
	}
	d.bad, d.short = s.bad, s.again

	d.files.Store(s.next)
	for origin, had := range s.old.zones.All() {
		has := s.next.zones.Get(origin)
		if has != had {
			had.source.Stop()
		}
		if has == nil {
			d.log.Info("auto: Removed zone", "zone", origin, "file", had.path)
		}
	}
	for _, origin := range s.added {
		d.followers.Changed(origin)
	}
	return s.paths
}

// visit adds the zone of a file whose name matches. It implements [fs.WalkDirFunc].
func (s *scan) visit(path string, entry fs.DirEntry, err error) error {
	name := filepath.Base(path)
	switch {
	case err != nil:
		s.bad[path] = err.Error()
		if !errors.Is(err, fs.ErrNotExist) {
			s.again = true
			s.keep(path)
		}
		return nil
	case strings.HasPrefix(name, ".."): // the versions of a mounted ConfigMap
		if entry.IsDir() {
			return fs.SkipDir
		}
		return nil
	case entry.IsDir():
		s.paths = append(s.paths, path)
		return nil
	}

	groups := s.match.FindStringSubmatchIndex(name)
	if groups == nil {
		return nil
	}
	s.paths = append(s.paths, path)
	origin, err := wire.ParseName(string(s.match.ExpandString(nil, s.template, name, groups)))
	if err != nil {
		s.bad[path] = "not a zone: " + err.Error()
		return nil
	}
	s.add(path, origin)
	return nil
}

// keep adds the zones of the files in a directory that cannot be read now.
func (s *scan) keep(dir string) {
	dir = filepath.Clean(dir)
	for origin, had := range s.old.zones.All() {
		if strings.HasPrefix(had.path, dir+string(filepath.Separator)) && s.next.zones.Get(origin) == nil {
			s.next.zones.Set(origin, had)
			s.paths = append(s.paths, had.path)
		}
	}
}

// add adds the zone of a file, with its source if it has one already.
func (s *scan) add(path string, origin wire.Name) {
	if other := s.next.zones.Get(origin); other != nil && other.path != path { // else kept: see keep
		s.bad[path] = "zone " + origin.String() + " is already served from " + other.path
		return
	}
	if had := s.old.zones.Get(origin); had != nil && had.path == path {
		s.next.zones.Set(origin, had)
		return
	}

	u := &use{path: path, origins: []wire.Name{origin}, reload: s.reload}
	var err error
	if u.planned, err = libraryOf(s.block).read(path, u.origins, u.limits(s.block), true, s.log); err != nil {
		s.bad[path] = err.Error()
		s.again = s.again || errors.As(err, new(*memory.Error))
		return
	}
	u.source = newSource(u, s.block)
	u.drop()
	u.source.followers.Add(s.followers.Changed)
	s.next.zones.Set(origin, &served{u, 0})
	s.added = append(s.added, origin)
	s.log.Info("auto: Added zone", "zone", origin, "file", path)
}
