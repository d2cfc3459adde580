package hosts

import (
	"context"
	"fmt"
	"hash/maphash"
	"log/slog"
	"maps"
	"net/netip"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/watch"
	"github.com/seamark/seamark/wire"
)

// A source is where a table has its lines from.
type source struct {
	path    string        // of a file or a directory; "" is none
	reload  time.Duration // how often the path is looked at; zero is once
	inline  []text        // lines of the Corefile
	maps    []mapped
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
	files  files
	mapped []string // lines of the ConfigMaps, as the index has them
	watch  watch.Files
	quiet  time.Duration     // how long a file must be left alone before it is read
	slow   time.Duration     // how long lines may take before somebody wonders
	told   map[string]string // what has been said of each file, and still holds
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
		files: files{path: from.path, limit: maxFile, seed: maphash.MakeSeed()},
	}
	if t.follows() {
		if err := t.watch.Open(); err != nil {
			log.Warn(fmt.Sprintf("hosts %s: no events, looking every %v: %v", t.path, t.reload, err))
		}
	}
	t.refresh(true)
	return t
}

// follows says whether the files may change.
func (t *table) follows() bool { return t.path != "" && t.reload > 0 }

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
	for {
		select {
		case <-ctx.Done():
			return
		case <-changes:
			t.refresh(false)
			continue
		case <-t.watch.Events():
		case <-t.watch.Errors(): // too many events: some were lost
		case <-poll:
		}
		if t.files.changed() && t.settle(ctx) {
			t.refresh(true)
		}
	}
}

// settle waits until nobody writes the files any more. It is false if ctx has
// ended.
func (t *table) settle(ctx context.Context) bool {
	was, _, _ := t.files.look()
	for begin, still := time.Now(), 0; time.Since(begin) < settleMost; {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(t.quiet):
		}
		t.watch.Drain()
		now, _, empty := t.files.look()
		if still++; now != was {
			was, still = now, 0
		}
		if still > 0 && !empty || still >= emptied {
			break
		}
	}
	return true
}

// refresh reads what may have changed and makes another index if anything has.
func (t *table) refresh(files bool) {
	changed, whole := t.index.Load() == nil, true
	if files && t.path != "" {
		if t.follows() {
			t.watch.Follow(t.path) // first, so that no change is missed in between
		}
		news, wrong := t.files.read()
		t.report(wrong)
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
func (t *table) report(wrong map[string]error) {
	const mark = "reading "
	for _, path := range slices.Sorted(maps.Keys(wrong)) {
		stays := ""
		if t.files.text(path).name != "" || path == t.path && len(t.files.texts) > 0 {
			stays = "; what it said before stays"
		}
		t.tell(mark+path, fmt.Sprintf("hosts %s: %v%s", path, wrong[path], stays))
	}
	if wrong[t.path] != nil {
		return // and nothing is known of the files in it
	}
	for topic := range t.told {
		path, ok := strings.CutPrefix(topic, mark)
		if !ok || wrong[path] != nil {
			continue
		}
		delete(t.told, topic)
		if path == t.path || t.files.text(path).name != "" { // or it has gone
			t.log.Info(fmt.Sprintf("hosts %s: can be read now", path))
		}
	}
}

// tell warns unless the topic's warning is the same as before.
func (t *table) tell(topic, warning string) {
	if t.told[topic] != warning {
		t.told[topic] = warning
		t.log.Warn(warning)
	}
}

// build makes an index of all lines.
func (t *table) build() {
	b := newBuilder(t.zones, t.reverse)
	from := make([]string, 0, 2+len(t.maps))
	size, lines := 0, 0
	for _, text := range t.files.texts {
		size, lines = size+len(text.lines), lines+strings.Count(text.lines, "\n")
	}
	b.expect(lines, size)
	for _, lines := range t.files.texts {
		t.take(b, lines)
	}
	if t.path != "" {
		from = append(from, t.path)
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
	if len(t.maps) == 0 && len(t.files.texts) == 1 && t.files.texts[0].name == t.path {
		t.files.texts[0].lines = "" // another index will need the file anew
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
	parse(lines.lines, func(addr netip.Addr, name []byte) {
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
	topic := "lines of " + lines.name
	switch {
	case bad == 0:
		delete(t.told, topic)
	case bad == 1:
		t.tell(topic, first)
	default:
		t.tell(topic, fmt.Sprintf("%s (and so are %d more)", first, bad-1))
	}
}
