package hosts

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/directive/internal/hostsfile"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/sys/follow"
	"github.com/seamark/seamark/sys/health"
	"github.com/seamark/seamark/sys/memory"
	"github.com/seamark/seamark/sys/watch"
	"github.com/seamark/seamark/wire"
)

// A source is where a table's lines come from, and how it reads them.
type source struct {
	paths    []string          // files and directories
	reload   time.Duration     // interval of checks for changes; zero turns off following
	inline   []text            // lines of the Corefile
	maps     []mapKey          // keys of ConfigMaps
	domain   wire.Name         // added to names of one label; "" for none
	zones    []wire.Name       // names outside are ignored
	reverse  bool              // with PTR records
	reported map[string]string // warnings that Setup has logged, by path
	polls    bool              // files are followed by checks alone
	memory   *memory.Budget
	health   *health.Board
}

// A table has the current index of a source's lines and follows their changes.
type table struct {
	source
	log    *slog.Logger
	drop   []func() // remove its metrics
	index  atomic.Pointer[index]
	loaded atomic.Int64 // when lines were last loaded, in milliseconds
	synced follow.Event // closed when every ConfigMap has been listed

	// The fields below belong to the goroutine of run, and to newTable before.
	files    []*files          // by path
	mapped   []string          // lines of the ConfigMaps in the index
	progress time.Duration     // interval of log messages while lines are parsed
	warned   map[string]string // the last warning about the lines of each text
	refused  error             // of a file that has no lines for want of memory
	task     follow.Task
}

// newTable returns a table that has read all sources once. Call start to follow
// them, and Stop to release its resources.
func newTable(from source, log *slog.Logger, reg *metrics.Registry) *table {
	t := &table{
		source: from, log: log, progress: time.Second, synced: follow.NewEvent(),
		mapped: make([]string, len(from.maps)), warned: map[string]string{},
	}

	for _, path := range from.paths {
		f := newFiles(path)
		f.claim = from.memory.Claim(memory.Files)
		if w, ok := from.reported[path]; ok {
			f.warned[path] = w
		}
		if t.reload > 0 {
			f.watcher = watch.New([]string{path}, watch.Options{Poll: t.reload, Log: log, NoEvents: from.polls})
		}
		t.files = append(t.files, f)
	}
	t.refresh(t.files...)
	t.addMetrics(reg)
	return t
}

// addMetrics adds the table to the metrics until Stop. Of several tables, such as before and after a reload,
// each metric has the largest value: of those with the same files, and of all.
func (t *table) addMetrics(reg *metrics.Registry) {
	t.drop = []func(){
		reg.SharedGauge("coredns_hosts_entries",
			"Number of addresses of names and names of addresses in a hosts directive, with those of the Corefile.",
			math.Max, func() float64 { return float64(t.index.Load().entries) }, "hostsfile", strings.Join(t.paths, " ")),
		reg.SharedGauge("coredns_hosts_reload_timestamp_seconds",
			"Time at which lines of a hosts directive were last loaded, in Unix seconds.",
			math.Max, func() float64 { return float64(t.loaded.Load()) / 1000 }),
	}
}

// start follows the files and the ConfigMaps until Stop.
func (t *table) start() *table {
	changed, following := make(chan *files), len(t.maps) > 0
	for _, f := range t.files {
		if f.watcher != nil {
			following = true
			t.task.Go(func(ctx context.Context) { f.follow(ctx, changed) })
		}
	}
	if following {
		t.task.Go(func(ctx context.Context) { t.run(ctx, changed) })
	}
	return t
}

// follow sends f to changed whenever it has changed. Each path is followed by
// itself, so that none waits for a file that is being written.
func (f *files) follow(ctx context.Context, changed chan<- *files) {
	for f.watcher.Wait(ctx) {
		select {
		case changed <- f:
		case <-ctx.Done():
		}
	}
}

// Stop stops following the sources.
func (t *table) Stop() {
	t.task.Stop()
	for _, f := range t.files {
		if f.watcher != nil {
			f.watcher.Close()
		}
		f.claim.Release()
	}
	t.health.Forget(t)
	for _, drop := range t.drop {
		drop()
	}
}

// ready reports whether every ConfigMap has been listed.
func (t *table) ready() bool { return t.synced.Happened() }

// shortInterval is the time after which files are read again for which there was no memory: other parts
// of the server may have returned some, and the files do not change.
const shortInterval = time.Minute

func isShort(f *files) bool { return f.short }

// run refreshes the index whenever a source has changed.
func (t *table) run(ctx context.Context, changed <-chan *files) {
	mapped := follow.NewSignal()
	mapped.Send() // a ConfigMap may have changed since newTable
	for _, m := range t.maps {
		m.subscribe(mapped)
		defer m.unsubscribe(mapped)
	}

	var again <-chan time.Time
	for {
		if again == nil && slices.ContainsFunc(t.files, isShort) {
			again = time.After(shortInterval)
		}
		select {
		case <-again:
			again = nil
			t.refresh(slices.DeleteFunc(slices.Clone(t.files), func(f *files) bool { return !isShort(f) })...)
		case <-ctx.Done():
			return
		case <-mapped:
			t.refresh()
		case f := <-changed:
			t.refresh(f)
		}
	}
}

// refresh reads these files and the ConfigMaps, and builds a new index if lines have
// changed.
func (t *table) refresh(changed ...*files) {
	differ, synced := t.index.Load() == nil, true
	for _, f := range changed {
		d, wrong := f.read()
		t.report(f, wrong)
		differ = differ || d
	}

	for i, m := range t.maps {
		lines, listed := m.lines()
		differ = differ || lines != t.mapped[i]
		t.mapped[i], synced = lines, synced && listed
	}

	if differ {
		t.build()
	}
	for _, f := range changed {
		f.settle()
	}
	if synced && !t.ready() {
		close(t.synced)
	}
}

const (
	failedMessage = "hosts: Failed to read file"
	keptMessage   = "hosts: Failed to read file, keeping its previous lines"
)

// report logs the files that cannot be read, and files that can be read again, once
// each.
func (t *table) report(f *files, wrong map[string]error) {
	f.short = false
	for _, path := range slices.Sorted(maps.Keys(wrong)) {
		message, severity, lines := failedMessage, health.Critical, "has no lines"
		if f.text(path).name != "" || path == f.path && len(f.texts) > 0 {
			message, severity, lines = keptMessage, health.Warning, "keeps its previous lines"
		} else if errors.As(wrong[path], new(*memory.Error)) {
			t.refused = fmt.Errorf("reading %s: %w", path, wrong[path])
		}
		f.short = f.short || errors.As(wrong[path], new(*memory.Error))
		// CoreDNS, too, serves without a file that does not exist: it may be made later.
		if severity == health.Warning || !errors.Is(wrong[path], fs.ErrNotExist) {
			t.health.Set(t, path, health.Condition{
				Severity: severity, Object: path,
				Text: fmt.Sprintf("the hosts file %s cannot be read and %s: %v", path, lines, wrong[path]),
				Next: "correct the file; it is read again when it changes",
			})
		}
		warnOnce(t.log, f.warned, path, message, "file", path, "error", wrong[path])
	}

	if wrong[f.path] != nil {
		return // the files in the directory are unknown
	}
	for path := range f.warned {
		if wrong[path] != nil {
			continue
		}
		delete(f.warned, path)
		t.health.Clear(t, path)
		if path == f.path || f.text(path).name != "" { // or the file was removed
			t.log.Info("hosts: File can be read again", "file", path)
		}
	}
}

// warnOnce logs a warning unless it is the last one about the topic.
func warnOnce(log *slog.Logger, warned map[string]string, topic, message string, args ...any) {
	if w := warning(message, args...); warned[topic] != w {
		warned[topic] = w
		log.Warn(message, args...)
	}
}

// warning returns a text that is equal for equal log messages.
func warning(message string, args ...any) string {
	return fmt.Sprintln(append([]any{message}, args...)...)
}

// build builds and publishes an index of all lines.
func (t *table) build() {
	b := newBuilder(t.zones, t.reverse)
	size, lines := 0, 0
	for _, f := range t.files {
		for _, text := range f.texts {
			size, lines = size+len(text.lines), lines+strings.Count(text.lines, "\n")
		}
	}
	b.expect(lines, size)

	sources := slices.Clone(t.paths)
	for _, f := range t.files {
		for _, text := range f.texts {
			t.parse(b, text)
		}
	}
	for _, lines := range t.inline {
		t.parse(b, lines)
	}
	if len(t.inline) > 0 {
		sources = append(sources, "Corefile")
	}
	for i, m := range t.maps {
		t.parse(b, text{name: m.String(), lines: t.mapped[i]})
		sources = append(sources, m.String())
	}

	if b.ignored > 0 {
		t.log.Warn("hosts: Ignored names: the index is full", "count", b.ignored)
	}

	x := b.index()
	t.index.Store(x)
	t.loaded.Store(time.Now().UnixMilli())
	t.log.Info("hosts: Loaded lines", "sources", strings.Join(sources, ", "), "count", x.entries)

	if len(t.maps) > 0 || len(t.files) != 1 {
		return
	}
	if only := t.files[0]; len(only.texts) == 1 && only.texts[0].name == only.path {
		only.texts[0].lines = "" // the file is read again before the next index is built
	}
}

// parse adds the lines of one text to b. It logs the first invalid line and the
// number of invalid names and lines.
func (t *table) parse(b *builder, lines text) {
	var first hostsfile.Error
	invalid, names, logged := 0, 0, time.Now()
	notASCII, example := 0, ""
	hostsfile.Parse(lines.lines, t.domain, func(addr netip.Addr, name []byte) {
		b.add(addr, name)
		if written, form := config.ASCIIFormOfName(name); form != "" && lines.line == 0 { // else the Corefile has a warning
			if notASCII++; notASCII == 1 {
				example = fmt.Sprintf("%s is not ASCII: clients ask for %s", written, form)
			}
		}
		if names++; names%(1<<16) == 0 && time.Since(logged) > t.progress {
			logged = time.Now()
			t.log.Info("hosts: Loading lines", "file", lines.name, "count", names)
		}
	}, func(e hostsfile.Error) {
		if invalid++; invalid == 1 {
			first = e
		}
	})

	if notASCII > 0 {
		warnOnce(t.log, t.warned, lines.name+" ASCII", "hosts: Found names that are not ASCII",
			"file", lines.name, "error", example, "count", notASCII)
	}

	if invalid == 0 {
		delete(t.warned, lines.name)
		return
	}
	warnOnce(t.log, t.warned, lines.name, "hosts: Ignored invalid lines",
		"file", lines.name, "line", first.Line, "error", first.Text, "count", invalid)
}
