// Package manifests delivers the objects of a cluster from a folder of YAML and JSON
// files, as if they had been applied to a cluster.
//
// When a file changes, the folder is walked and the changed files are read (scan.go). A
// decoder splits a file into documents (parse.go, json.go, yaml.go, yamllist.go) and
// decodes each into an item, a slim object with its line (items.go). All items together
// are assembled into the state of a cluster (assemble.go): with Endpoints mirrored and
// EndpointSlices derived from Pods (derive.go), and ClusterIPs allocated (allocate.go), as
// controllers would. The difference to the last state goes to the sink. Metadata of single
// objects are read again when an answer is explained (origin.go).
package manifests

import (
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
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/cluster/api"
	"github.com/seamark/seamark/sys/order"
	"github.com/seamark/seamark/sys/watch"
)

// pollFolder is the interval of checks besides file events.
const pollFolder = 5 * time.Second

// manyLines is the largest number of changes or warnings at once that are logged
// one by one.
const manyLines = 20

// A folder delivers the objects of a directory's manifests as if they had been
// applied to a cluster. One goroutine owns it.
type folder struct {
	*cluster.Monitor
	opts           cluster.Options
	sink           cluster.Sink
	dir            string // absolute
	poll           time.Duration
	noEvents       bool  // poll only; for tests
	limit          int64 // bytes of a YAML file
	seed           maphash.Seed
	watcher        *watch.Watcher // nil in tests that check the folder once
	scope          scope
	files          map[string]*manifest       // by path within dir
	state          *objects                   // the sink's objects; nil before the first read
	published      atomic.Pointer[objects]    // state, for origin
	decoded        int                        // objects since the sink was last updated
	given          map[cluster.Key]netip.Addr // allocated ClusterIPs, which have been logged
	fileWarnings   warned                     // found at every check
	objectWarnings warned                     // found when an object changes
}

// objects are immutable once they are the folder's state.
type objects [cluster.Kinds]map[cluster.Key]placed

// A placed object is one that the sink has, and the item that it is made of.
type placed struct {
	cluster.Object
	located
}

// A warning is a log message with its attributes.
type warning struct {
	msg   string
	attrs []any
}

// warned is the set of warnings that have been logged and still hold. A warning is
// logged again only if it has not held in between.
type warned map[string]bool

// warn logs the warnings in now that are new, up to manyLines.
func (t *warned) warn(log *slog.Logger, now []warning) {
	present, added := warned{}, 0
	for _, w := range now {
		key := fmt.Sprint(w.msg, w.attrs)
		if !(*t)[key] && !present[key] {
			if added++; added <= manyLines {
				log.Warn(w.msg, w.attrs...)
			}
		}
		present[key] = true
	}
	if added > manyLines {
		log.Warn("Suppressed further warnings about manifests", "count", added-manyLines)
	}
	*t = present
}

// Run delivers the objects of the folder o.Manifests until ctx is done. If the options
// are invalid, it logs the error and delivers nothing.
func Run(ctx context.Context, o cluster.Options, sink cluster.Sink, m *cluster.Monitor) {
	f, err := openFolder(o, sink, m)
	if err != nil {
		m.Log.Error("Reading manifests failed", "file", o.Manifests, "error", err)
		<-ctx.Done()
		return
	}
	if t, ok := sink.(cluster.Traceable); ok {
		t.SetOrigins(f.origin)
	}
	if r, ok := sink.(cluster.Rereader); ok {
		r.SetReader(f.reread)
	}
	f.run(ctx)
}

func openFolder(o cluster.Options, sink cluster.Sink, m *cluster.Monitor) (*folder, error) {
	scope, err := newScope(o)
	if err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(o.Manifests)
	if err != nil {
		return nil, fmt.Errorf("manifests %s: %w", o.Manifests, err)
	}
	return &folder{
		Monitor: m, opts: o, sink: sink, dir: dir, scope: scope, files: map[string]*manifest{},
		poll: pollFolder, limit: maxYAML, seed: maphash.MakeSeed(),
	}, nil
}

func (f *folder) run(ctx context.Context) {
	f.watcher = watch.New([]string{f.dir}, watch.Options{
		Poll: f.poll, Log: f.Log.With("file", f.opts.Manifests), NoEvents: f.noEvents,
	})
	defer f.watcher.Close()
	for ok := true; ok; ok = f.watcher.Wait(ctx) {
		f.check(ctx)
	}
}

// check reads the files that have changed and updates the sink.
func (f *folder) check(ctx context.Context) {
	tree := f.walk()
	changed := tree.ok && f.read(ctx, tree)
	if ctx.Err() != nil {
		return
	}
	f.fileWarnings.warn(f.Log, tree.warnings)

	if !tree.ok {
		f.SetCurrent(false)
		return
	}
	if f.watcher != nil {
		f.watcher.Follow(append(tree.dirs, f.dir)...)
	}
	if changed || f.state == nil {
		f.publish()
		f.Sweeper.Listed(f.decoded)
	}
	f.decoded = 0
	for _, k := range f.opts.Kinds() {
		f.Received(k, time.Now())
	}
	f.SetCurrent(true)
}

// publish updates the sink from the last state to the present one.
func (f *folder) publish() {
	a := f.assemble()
	f.objectWarnings.warn(f.Log, a.warnings)
	f.logAddresses(a.given)

	next := new(a.objects) // without the assembly
	if f.state == nil {
		f.Log.Info("Read manifests", "file", f.opts.Manifests, "files", len(f.files), "objects", f.summary(next))
		for _, k := range f.opts.Kinds() {
			f.list(k, next[k])
		}
	} else {
		var changes []folderChange
		for _, k := range f.opts.Kinds() {
			of := f.apply(k, f.state[k], next[k])
			f.Events[k].Add(uint64(len(of)))
			changes = append(changes, of...)
		}
		f.logChanges(changes)
	}
	f.state = next
	f.published.Store(next)
}

// list delivers the first objects of a kind.
func (f *folder) list(k cluster.Kind, objects map[cluster.Key]placed) {
	all := make([]cluster.Object, 0, len(objects))
	for _, p := range objects {
		all = append(all, p.Object)
	}
	for group := range slices.Chunk(all, cluster.GroupSize) {
		f.sink.Put(k, group...)
	}
	f.sink.Listed(k, func(key cluster.Key) bool { _, ok := objects[key]; return ok })
}

// summary returns the number of objects of each kind.
func (f *folder) summary(objects *objects) string {
	var parts []string
	for _, k := range f.opts.Kinds() {
		parts = append(parts, fmt.Sprintf("%d %s", len(objects[k]), k))
	}
	return strings.Join(parts, ", ")
}

// A folderChange is the change of one object, for the log.
type folderChange struct {
	verb string
	kind cluster.Kind
	key  cluster.Key
	file string
}

// apply updates the sink by the difference between old and next. It keeps the sink's
// objects where they are equal.
func (f *folder) apply(k cluster.Kind, old, next map[cluster.Key]placed) (changes []folderChange) {
	for key, p := range next {
		was, had := old[key]
		if had && (was.Object == p.Object || reflect.DeepEqual(was.Object, p.Object)) {
			next[key] = placed{was.Object, p.located}
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

	order.Slice(changes, func(a, b folderChange) int { return a.key.Compare(b.key) })
	return changes
}

func (f *folder) logChanges(changes []folderChange) {
	if len(changes) > manyLines {
		verbs := map[string]int{}
		for _, c := range changes {
			verbs[c.verb]++
		}
		f.Log.Info("Applied changes of manifests", "file", f.opts.Manifests,
			"added", verbs["added"], "changed", verbs["changed"], "deleted", verbs["deleted"])
		return
	}
	for _, c := range changes {
		f.Log.Info("Applied change of a manifest", "change", c.verb, "kind", c.kind.ObjectKind(),
			"namespace", c.key.Namespace, "name", c.key.Name, "file", f.path(c.file))
	}
}

// logAddresses logs each newly allocated ClusterIP.
func (f *folder) logAddresses(given map[cluster.Key]netip.Addr) {
	for _, key := range order.Sorted(maps.Keys(given), cluster.Key.Compare) {
		if f.given[key] != given[key] {
			f.Log.Info("Allocated a clusterIP for a Service without one",
				"namespace", key.Namespace, "name", key.Name, "address", given[key])
		}
	}
	f.given = given
}

// path returns a file's name for messages.
func (f *folder) path(file string) string { return filepath.Join(f.opts.Manifests, file) }

// A scope selects the objects that the options select.
type scope struct {
	names      map[string]bool // namespaces; nil is all
	namespaces labels.Selector
	objects    labels.Selector
}

func newScope(o cluster.Options) (scope, error) {
	namespaces, err := labels.Parse(o.NamespaceLabels)
	if err != nil {
		return scope{}, fmt.Errorf("namespace labels %q: %w", o.NamespaceLabels, err)
	}
	selector := o.Labels
	if o.Records() {
		selector = o.ConfigMapLabels
	}
	objects, err := labels.Parse(selector)
	if err != nil {
		return scope{}, fmt.Errorf("labels %q: %w", selector, err)
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

// has reports whether the options select an object.
func (s scope) has(it *item) bool { return it.wanted && s.hasNamespace(it.key.Namespace) }

// exposes reports whether the namespace selector matches a namespace with these
// labels and the label that every namespace has.
func (s scope) exposes(name string, own map[string]string) bool {
	l := labels.Set{}
	maps.Copy(l, own)
	l[api.LabelNamespaceName] = name
	return s.namespaces.Matches(l)
}
