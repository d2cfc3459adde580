package hosts

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/internal/watch"
	"github.com/seamark/seamark/wire"
)

// A source is where a table has its lines from.
type source struct {
	paths   []string      // of files and directories
	reload  time.Duration // how often they are looked at; zero is once
	inline  []text        // lines of the Corefile
	maps    []mapped
	domain  wire.Name // what names of one label have behind them as well; "" is nothing
	zones   []wire.Name
	reverse bool
}

// A table keeps the index of some lines, and follows them as they change.
type table struct {
	source
	log   *slog.Logger
	count *count
	index atomic.Pointer[index]
	whole chan struct{} // closed when every ConfigMap has been seen

	// What follows belongs to the one who runs the table.
	files  []*files // of each path
	mapped []string // lines of the ConfigMaps, as the index has them
	watch  watch.Files
	quiet  time.Duration     // how long a file must be left alone before it is read
	slow   time.Duration     // how long lines may take before somebody wonders
	told   map[string]string // what has been said of lines, and still holds
	cancel context.CancelFunc
	tasks  sync.WaitGroup
}

const (
	// quiet: editors and programs write a file in several steps.
	quiet = 50 * time.Millisecond
	// emptied: whoever empties a file may be about to fill it again.
	emptied = 10
	// settleMost is how long a file may go on changing before it is read as it
	// stands.
	settleMost = 5 * time.Second
	// slow: a million lines take less.
	slow = time.Second
)

// newTable reads everything once; start follows it.
func newTable(from source, log *slog.Logger, c *count) *table {
	t := &table{
		source: from, log: log, count: c, quiet: quiet, slow: slow, whole: make(chan struct{}),
		mapped: make([]string, len(from.maps)), told: map[string]string{}, cancel: func() {},
	}
	for _, path := range from.paths {
		t.files = append(t.files, newFiles(path))
	}
	if t.follows() {
		if err := t.watch.Open(); err != nil {
			log.Warn(fmt.Sprintf("hosts %s: no events, looking every %v: %v", strings.Join(t.paths, ", "), t.reload, err))
		}
	}
	t.refresh(t.files)
	return t
}

// follows says whether the files may change.
func (t *table) follows() bool { return len(t.paths) > 0 && t.reload > 0 }

// start follows the files and the ConfigMaps until Stop.
func (t *table) start() *table {
	ctx, cancel := context.WithCancel(context.Background())
	t.cancel = cancel
	if t.follows() || len(t.maps) > 0 {
		t.tasks.Go(func() { t.run(ctx) })
	}
	return t
}

// Stop ends what start began.
func (t *table) Stop() {
	t.cancel()
	t.tasks.Wait()
	t.watch.Close()
	t.count.drop(t)
}

// ready says whether every ConfigMap has been seen.
func (t *table) ready() bool {
	select {
	case <-t.whole:
		return true
	default:
		return false
	}
}

func (t *table) run(ctx context.Context) {
	changes := make(chan struct{}, 1)
	changes <- struct{}{} // one may have come since newTable
	for _, m := range t.maps {
		m.tell(changes)
		defer m.forget(changes)
	}
	var poll <-chan time.Time
	if t.follows() {
		ticker := time.NewTicker(max(t.reload, t.quiet))
		defer ticker.Stop()
		poll = ticker.C
	}
	var again <-chan time.Time // while somebody writes the files
	for {
		select {
		case <-ctx.Done():
			return
		case <-changes:
			t.refresh(nil)
			continue
		case <-t.watch.Events():
		case <-t.watch.Errors(): // too many events: some were lost
		case <-poll:
		case <-again:
			again = nil
		}
		if again != nil {
			continue // a writer makes many events
		}
		if t.look() {
			again = time.After(t.quiet)
		}
	}
}

// look reads the files that have changed and that nobody writes any more. again
// says that somebody may be writing others, which are to be looked at after a
// quiet time.
func (t *table) look() (again bool) {
	var due []*files
	now := time.Now()
	for _, f := range t.files {
		if f.due(now) {
			due = append(due, f)
		}
		again = again || f.writing
	}
	if len(due) > 0 {
		t.refresh(due)
	}
	return again
}

// refresh reads these files and makes another index if anything has changed.
func (t *table) refresh(due []*files) {
	changed, whole := t.index.Load() == nil, true
	if len(due) > 0 && t.follows() {
		t.watch.Follow(t.paths...) // first, so that no change is missed in between
	}
	for _, f := range due {
		news, wrong := f.read()
		t.report(f, wrong)
		changed = changed || news
	}
	for i, m := range t.maps {
		lines, listed := m.lines()
		changed = changed || lines != t.mapped[i]
		t.mapped[i], whole = lines, whole && listed
	}
	if changed {
		t.build()
	}
	if whole && !t.ready() {
		close(t.whole)
	}
}

// report says what is new of the files that cannot be read.
func (t *table) report(f *files, wrong map[string]error) {
	for _, path := range slices.Sorted(maps.Keys(wrong)) {
		stays := ""
		if f.text(path).name != "" || path == f.path && len(f.texts) > 0 {
			stays = "; what it said before stays"
		}
		tell(t.log, f.told, path, fmt.Sprintf("hosts %s: %v%s", path, wrong[path], stays))
	}
	if wrong[f.path] != nil {
		return // and nothing is known of the files in it
	}
	for path := range f.told {
		if wrong[path] != nil {
			continue
		}
		delete(f.told, path)
		if path == f.path || f.text(path).name != "" { // or it has gone
			t.log.Info(fmt.Sprintf("hosts %s: can be read now", path))
		}
	}
}

// tell warns unless the topic's warning is the same as the one that was told.
func tell(log *slog.Logger, told map[string]string, topic, warning string) {
	if told[topic] != warning {
		told[topic] = warning
		log.Warn(warning)
	}
}

// build makes an index of all lines.
func (t *table) build() {
	b := newBuilder(t.zones, t.reverse)
	from := slices.Clone(t.paths)
	size, lines := 0, 0
	for _, f := range t.files {
		for _, text := range f.texts {
			size, lines = size+len(text.lines), lines+strings.Count(text.lines, "\n")
		}
	}
	b.expect(lines, size)
	for _, f := range t.files {
		for _, text := range f.texts {
			t.take(b, text)
		}
	}
	for _, lines := range t.inline {
		t.take(b, lines)
	}
	if len(t.inline) > 0 {
		from = append(from, "the Corefile")
	}
	for i, m := range t.maps {
		t.take(b, text{name: m.String(), lines: t.mapped[i]})
		from = append(from, m.String())
	}
	if b.lost > 0 {
		t.log.Warn(fmt.Sprintf("hosts: %d names are left out: there is no room for more", b.lost))
	}
	x := b.index()
	t.index.Store(x)
	t.count.set(t, x.entries)
	t.log.Info(fmt.Sprintf("hosts: %d entries from %s", x.entries, strings.Join(from, ", ")))
	if only := t.files; len(t.maps) == 0 && len(only) == 1 && len(only[0].texts) == 1 && only[0].texts[0].name == only[0].path {
		only[0].texts[0].lines = "" // another index will need the file anew
	}
	if size > large {
		// What made the index is five times its size, and nothing else makes
		// so much garbage that it would be given back soon.
		debug.FreeOSMemory()
	}
}

// large is how many bytes of lines are worth a garbage collection.
const large = 16 << 20

// take gives b the lines of one text, and warns of the first bad one and of how
// many there are.
func (t *table) take(b *builder, lines text) {
	first, bad := "", 0
	n, said := 0, time.Now()
	parse(lines.lines, t.domain, func(addr netip.Addr, name []byte) {
		b.add(addr, name)
		if n++; n%(1<<16) == 0 && time.Since(said) > t.slow {
			said = time.Now()
			t.log.Info(fmt.Sprintf("hosts %s: %d names so far", lines.name, n))
		}
	}, func(c complaint) {
		if bad++; bad == 1 {
			first = fmt.Sprintf("hosts %s:%d: %s: left out", lines.name, c.line, c.text)
		}
	})
	switch {
	case bad == 0:
		delete(t.told, lines.name)
	case bad == 1:
		tell(t.log, t.told, lines.name, first)
	default:
		tell(t.log, t.told, lines.name, fmt.Sprintf("%s (and so are %d more)", first, bad-1))
	}
}
