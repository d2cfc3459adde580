package cluster

import (
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"log/slog"
	"maps"
	"net/netip"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
)

// How a folder is watched. Editors write a file in several steps, so events
// are gathered before anything is read; the poll is for file systems that
// send none, and for links to files elsewhere.
const (
	gatherQuiet  = 50 * time.Millisecond  // this long without an event,
	gatherMost   = 300 * time.Millisecond // or this long after the first
	pollFolder   = 5 * time.Second
	retryMissing = time.Second // a folder that is not there may be mounted later
)

// manyLines is how many changes or warnings at once are named in the log; more
// are only counted.
const manyLines = 20

// A folder serves the objects that the manifests of a directory describe, as
// if they had been applied to a cluster. One goroutine owns it.
type folder struct {
	*Source
	sink        Sink
	dir         string // absolute
	poll        time.Duration
	limit       int64 // bytes of a YAML file
	seed        maphash.Seed
	watch       dirWatch
	scope       scope
	files       map[string]*manifest   // by path within dir
	state       *[Kinds]map[Key]placed // what the sink has; nil before the first read
	decoded     int                    // objects since the sink was told last
	given       map[Key]netip.Addr     // ClusterIPs that were chosen, and logged
	folderTold  told                   // of what lies in the folder: found at every check
	objectsTold told                   // of objects beside each other: found when any changes
}

// A placed object is one that the sink has, with the file it comes from.
type placed struct {
	Object
	file string
}

// A told set is what has been warned of and still holds. It is said again only
// when it has gone in between.
type told map[string]bool

// warn logs what is new in now, if it is much only the first of it.
func (t *told) warn(log *slog.Logger, now []string) {
	all, news := told{}, 0
	for _, text := range now {
		if !(*t)[text] && !all[text] {
			if news++; news <= manyLines {
				log.Warn(text)
			}
		}
		all[text] = true
	}
	if news > manyLines {
		log.Warn(fmt.Sprintf("manifests: %d more warnings like these", news-manyLines))
	}
	*t = all
}

// runManifests serves the folder o.Manifests until ctx is done.
func (s *Source) runManifests(ctx context.Context, sink Sink) {
	f, err := s.openFolder(sink)
	if err != nil {
		s.log.Error(err.Error())
		<-ctx.Done()
		return
	}
	f.run(ctx)
}

func (s *Source) openFolder(sink Sink) (*folder, error) {
	scope, err := newScope(s.opts)
	if err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(s.opts.Manifests)
	if err != nil {
		return nil, fmt.Errorf("manifests %s: %w", s.opts.Manifests, err)
	}
	return &folder{
		Source: s, sink: sink, dir: dir, scope: scope, files: map[string]*manifest{},
		poll: pollFolder, limit: maxYAML, seed: maphash.MakeSeed(),
	}, nil
}

func (f *folder) run(ctx context.Context) {
	if err := f.watch.open(f.dir); err != nil {
		f.log.Warn(fmt.Sprintf("manifests %s: no events, looking every %v: %v", f.opts.Manifests, f.poll, err))
	}
	defer f.watch.close()
	for ctx.Err() == nil {
		pause := f.poll
		if !f.check(ctx) {
			pause = min(pause, retryMissing)
		}
		f.watch.wait(ctx, pause)
		for end := time.Now().Add(gatherMost); time.Now().Before(end) && f.watch.wait(ctx, gatherQuiet); {
		}
	}
}

// check reads what has changed in the folder and tells the sink. It is false
// if the folder could not be read.
func (f *folder) check(ctx context.Context) bool {
	tree := f.walk()
	changed := tree.ok && f.read(ctx, tree)
	if ctx.Err() != nil {
		return false
	}
	f.folderTold.warn(f.log, tree.complaints)
	if !tree.ok {
		return false
	}
	if changed || f.state == nil {
		f.publish()
		f.sweeper.add(f.decoded)
	}
	f.decoded = 0
	for _, k := range f.opts.Kinds() {
		f.heard[k].now()
	}
	return true
}

// publish brings the sink from the last state to the present one.
func (f *folder) publish() {
	a := f.assemble()
	f.objectsTold.warn(f.log, a.complaints)
	f.logAddresses(a.given)
	next := &a.objects
	if f.state == nil {
		f.log.Info(fmt.Sprintf("manifests %s: %s", f.opts.Manifests, f.summary(next)))
		for _, k := range f.opts.Kinds() {
			all := make([]Object, 0, len(next[k]))
			for _, p := range next[k] {
				all = append(all, p.Object)
			}
			for group := range slices.Chunk(all, groupSize) {
				f.sink.Put(k, group...)
			}
			f.sink.Listed(k, func(key Key) bool { _, ok := next[k][key]; return ok })
		}
	} else {
		var changes []folderChange
		for _, k := range f.opts.Kinds() {
			of := f.apply(k, f.state[k], next[k])
			f.count.events[k].Add(uint64(len(of)))
			changes = append(changes, of...)
		}
		f.logChanges(changes)
	}
	kept := *next // and not the assembly that it is in
	f.state = &kept
}

func (f *folder) summary(objects *[Kinds]map[Key]placed) string {
	var parts []string
	for _, k := range f.opts.Kinds() {
		parts = append(parts, fmt.Sprintf("%d %s", len(objects[k]), k))
	}
	return fmt.Sprintf("%s in %d files", strings.Join(parts, ", "), len(f.files))
}

// A folderChange of one object is a line in the log.
type folderChange struct {
	verb string
	kind Kind
	key  Key
	file string
}

// apply gives the sink what differs between old and next. Objects that are
// equal stay those that the sink holds.
func (f *folder) apply(k Kind, old, next map[Key]placed) (changes []folderChange) {
	for key, p := range next {
		was, had := old[key]
		if had && (was.Object == p.Object || reflect.DeepEqual(was.Object, p.Object)) {
			next[key] = placed{was.Object, p.file}
			continue
		}
		verb := "added"
		if had {
			verb = "changed"
		}
		f.sink.Put(k, p.Object)
		changes = append(changes, folderChange{verb, k, key, p.file})
	}
	for key, was := range old {
		if _, has := next[key]; !has {
			f.sink.Delete(k, key)
			changes = append(changes, folderChange{"deleted", k, key, was.file})
		}
	}
	slices.SortFunc(changes, func(a, b folderChange) int { return compareKeys(a.key, b.key) })
	return changes
}

func (f *folder) logChanges(changes []folderChange) {
	if len(changes) > manyLines {
		verbs := map[string]int{}
		for _, c := range changes {
			verbs[c.verb]++
		}
		f.log.Info(fmt.Sprintf("manifests %s: %d objects added, %d changed, %d deleted",
			f.opts.Manifests, verbs["added"], verbs["changed"], verbs["deleted"]))
		return
	}
	for _, c := range changes {
		f.log.Info(fmt.Sprintf("%s %s %s", c.verb, strings.TrimSuffix(c.kind.String(), "s"), c.key), "file", f.path(c.file))
	}
}

// logAddresses shows each ClusterIP that was chosen, when it is new.
func (f *folder) logAddresses(given map[Key]netip.Addr) {
	for _, key := range slices.SortedFunc(maps.Keys(given), compareKeys) {
		if f.given[key] != given[key] {
			f.log.Info(fmt.Sprintf("service %s has no clusterIP: it gets %s", key, given[key]))
		}
	}
	f.given = given
}

// path is a file's name as the operator would write it.
func (f *folder) path(file string) string { return filepath.Join(f.opts.Manifests, file) }

func compareKeys(a, b Key) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// A scope is the part of the folder's cluster that the options ask for.
type scope struct {
	names      map[string]bool // namespaces; nil is all
	namespaces labels.Selector
	objects    labels.Selector
}

func newScope(o Options) (scope, error) {
	namespaces, err := labels.Parse(o.NamespaceLabels)
	if err != nil {
		return scope{}, fmt.Errorf("namespace labels %q: %w", o.NamespaceLabels, err)
	}
	objects, err := labels.Parse(o.Labels)
	if err != nil {
		return scope{}, fmt.Errorf("labels %q: %w", o.Labels, err)
	}
	s := scope{namespaces: namespaces, objects: objects}
	if o.Namespaces != "" {
		s.names = map[string]bool{}
		for name := range strings.SplitSeq(o.Namespaces, ",") {
			s.names[name] = true
		}
	}
	return s, nil
}

func (s scope) hasNamespace(name string) bool { return s.names == nil || s.names[name] }

// has says whether an object is wanted.
func (s scope) has(it *item) bool { return it.wanted && s.hasNamespace(it.key.Namespace) }

// exposes says whether the selector for namespaces matches one with these
// labels, and with the one that every namespace has.
func (s scope) exposes(name string, own map[string]string) bool {
	l := labels.Set{}
	maps.Copy(l, own)
	l[labelNamespaceName] = name
	return s.namespaces.Matches(l)
}

// String is the key as kubectl writes it.
func (k Key) String() string {
	if k.Namespace == "" {
		return k.Name
	}
	return k.Namespace + "/" + k.Name
}
