package watch

import (
	"context"
	"io/fs"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/seamark/seamark/sys/follow"
)

const (
	// quiet is how long files must stay the same before they count as written:
	// editors and programs write a file in several steps.
	quiet = 50 * time.Millisecond
	// emptied is the same for a file that has just become empty: it is probably
	// about to be filled.
	emptied = 500 * time.Millisecond
	// longestChange limits the wait for files that keep changing.
	longestChange = 5 * time.Second
	// missingPoll is the longest interval between checks for a path that does not
	// exist.
	missingPoll = time.Second
	// timestampStep is how long after a file's modification time another change may
	// have the same modification time. Some file systems count in steps of two
	// seconds.
	timestampStep = 3 * time.Second
)

// A Watcher waits for changes of files and directories. It uses the system's file
// events and, for file systems that have none, checks at an interval too.
//
//	w := watch.New(paths, watch.Options{Poll: 5 * time.Second, Log: log})
//	defer w.Close()
//	for ok := true; ok; ok = w.Wait(ctx) {
//		read(paths)
//	}
//
// One goroutine at a time may call Wait. The other methods are safe for
// concurrent use.
type Watcher struct {
	options Options

	mu       sync.Mutex
	files    files
	paths    []string
	base     snapshot // the state that the caller has read
	followed bool     // Follow has added paths since Wait returned
}

// Options configure a Watcher.
type Options struct {
	// Poll is the interval of the checks. It must be positive.
	Poll time.Duration
	// Log receives a warning when file events are unavailable: for all Watchers together, one if the
	// user has no more of them. Nil discards it.
	Log *slog.Logger
	// NoEvents makes the Watcher rely on its checks alone.
	NoEvents bool
}

// New returns a Watcher of these paths. The caller reads the files after that: a
// later change makes Wait return.
func New(paths []string, o Options) *Watcher { return newWatcher(paths, o, process) }

func newWatcher(paths []string, o Options, events *system) *Watcher {
	w := &Watcher{options: o, paths: slices.Clone(paths), files: files{changed: follow.NewSignal()}}
	if w.options.Log == nil {
		w.options.Log = slog.New(slog.DiscardHandler)
	}
	if !o.NoEvents {
		w.files.system = events
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.follow()
	w.base = take(w.paths)
	return w
}

// Close releases the Watcher's resources. It must not be called during Wait.
func (w *Watcher) Close() {
	if w.files.system != nil {
		w.files.system.leave(&w.files)
	}
}

// Follow replaces the watched paths, for instance by the files that a file includes.
// If it adds any, Wait returns once more, since they may have changed before
// Follow was called.
func (w *Watcher) Follow(paths ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	added := slices.ContainsFunc(paths, func(p string) bool { return !slices.Contains(w.paths, p) })
	w.paths = slices.Clone(paths)
	w.follow()
	w.base.update(paths)
	if added {
		w.followed = true
		w.files.changed.Send()
	}
}

// follow watches the files and directories that the paths lead to at present.
func (w *Watcher) follow() {
	if err := w.files.follow(w.paths...); err != nil {
		w.options.Log.Warn("File watch unavailable, polling", "interval", w.options.Poll, "error", err)
	}
}

// Wait blocks until the files differ from the state that New, Changed or the last
// Wait found, and until they have stopped changing. It returns false once ctx is
// done. It may return although nothing has changed: a file that was written
// within the last seconds may have been written again at the same time and in
// the same size.
func (w *Watcher) Wait(ctx context.Context) bool {
	for w.sleep(ctx, w.interval()) {
		if w.differs() {
			return w.settle(ctx)
		}
	}
	return false
}

// Run calls Wait until ctx is done and signals each change.
func (w *Watcher) Run(ctx context.Context, changed follow.Signal) {
	for w.Wait(ctx) {
		changed.Send()
	}
}

// Changed reports whether the files have changed since Wait returned: files that
// were read meanwhile may not belong together. The changes do not make Wait
// return again.
func (w *Watcher) Changed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := take(w.paths)
	if now.equal(w.base) {
		return false
	}
	w.follow()
	w.base = take(w.paths)
	return true
}

func (w *Watcher) interval() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.base.missing {
		return min(w.options.Poll, missingPoll)
	}
	return w.options.Poll
}

// sleep waits for an event, or for the interval. It returns false once ctx is done.
func (w *Watcher) sleep(ctx context.Context, interval time.Duration) bool {
	timer := time.NewTimer(interval)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-w.files.changed:
	case <-timer.C:
	}
	return true
}

// differs reports whether the files may differ from the base.
func (w *Watcher) differs() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.followed || w.base.fresh() || !take(w.paths).equal(w.base)
}

// settle waits until the files stop changing, and makes their final state the
// base. It returns false once ctx is done.
func (w *Watcher) settle(ctx context.Context) bool {
	begin := time.Now()
	since := begin // the time of the last change
	var last snapshot

	w.mu.Lock()
	defer w.mu.Unlock()
	for first := true; ; first = false {
		w.follow() // first: a later change causes an event
		now := take(w.paths)
		if first || !now.equal(last) {
			since = time.Now()
		}
		last = now

		wait := quiet
		if now.emptied(w.base) {
			wait = emptied
		}
		// The files of a mounted ConfigMap are complete when their link changes.
		if now.replaced(w.base) || time.Since(since) >= wait || time.Since(begin) >= longestChange {
			break
		}

		w.mu.Unlock()
		ok := w.pause(ctx, quiet)
		w.mu.Lock()
		if !ok {
			return false
		}
	}
	w.base, w.followed = last, false
	return true
}

// pause waits for d and discards the events meanwhile.
func (w *Watcher) pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-w.files.changed:
		case <-timer.C:
			return true
		}
	}
}

// Ignored reports whether a directory's file of this name is none of its content:
// it is hidden, as the ..data of a mounted ConfigMap, or an editor's copy.
func Ignored(name string) bool {
	return name[0] == '.' || name[0] == '#' || name[0] == '~' || name[len(name)-1] == '~'
}

// regular reports whether info describes a file that can be read.
func regular(info fs.FileInfo) bool { return info != nil && info.Mode().IsRegular() }
