package file

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/sys/follow"
	"github.com/seamark/seamark/sys/health"
	"github.com/seamark/seamark/sys/memory"
	"github.com/seamark/seamark/sys/watch"
	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone"
)

// A source serves the zones of one zone file and reloads them when the file
// changes. A reload of the Corefile keeps it if its path, zones and options are the
// same.
type source struct {
	path    string
	origins []wire.Name
	byTime  bool
	polls   bool                        // the file is followed by checks alone
	zones   []atomic.Pointer[zone.Zone] // in the order of the origins
	held    []*loaded                   // the same; guarded by mu
	within  limits
	library *library
	log     *slog.Logger
	health  *health.Board
	failed  *metrics.Counter
	task    follow.Task

	followers zone.Followers
	short     bool // there was no memory for the last version; owned by follow

	mu     sync.Mutex // held while zones change
	latest *version   // the last one that was read, even with an error; guarded by mu
}

// newSource serves and follows the file of u.
func newSource(u *use, b *config.Block) *source {
	s := &source{
		path: u.path, origins: u.origins, byTime: u.byTime, polls: b.NoFileEvents,
		zones: make([]atomic.Pointer[zone.Zone], len(u.origins)), held: make([]*loaded, len(u.origins)),
		within: u.limits(b), library: libraryOf(b),
		log: b.Log, health: b.Health(), failed: b.Metrics.Counter("seamark_file_reload_failed_total",
			"Counter of changed zone files that could not be read.", "file", u.path),
	}

	s.serve(u.planned)
	if u.reload > 0 {
		s.task.Go(func(ctx context.Context) { s.follow(ctx, u.reload) })
	}
	return s
}

// Stop stops following the file.
func (s *source) Stop() {
	s.task.Stop()
	s.health.Forget(s)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, z := range s.held {
		z.release()
		s.held[i] = nil
	}
}

// serve serves the version that a plan has read, unless s has a newer one.
func (s *source) serve(v *version) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.latest != nil && (s.latest == v || s.latest.readAt.After(v.readAt)) {
		return
	}
	s.latest = v
	s.health.Clear(s, "file")
	for i, z := range v.zones {
		s.store(i, z)
	}
}

// store replaces a zone. The caller is a user of it, too.
func (s *source) store(i int, next *loaded) {
	next.acquire()
	z := next.zone
	old := s.zones[i].Swap(z)
	s.held[i].release()
	s.held[i] = next
	serial, _ := z.Serial()
	if old == nil {
		return
	}
	if before, _ := old.Serial(); before != serial {
		s.followers.Changed(s.origins[i])
	}
}

// version returns the last version that was read.
func (s *source) version() *version {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.latest
}

// follow reloads the file when it, or a file that it includes, has changed.
func (s *source) follow(ctx context.Context, interval time.Duration) {
	w := watch.New(s.paths(), watch.Options{Poll: interval, Log: s.log, NoEvents: s.polls})
	defer w.Close()
	for ok := true; ok; ok = s.wait(ctx, w) { // the file may have changed since the plan has read it
		s.reload()
		w.Follow(s.paths()...)
	}
}

// shortInterval is the time after which a file is read again for which there was no memory, of which other parts
// of the server may have returned some, or a directory that could not be read: neither may change before.
const shortInterval = time.Minute

// wait blocks until the file has changed, or has to be read again. It returns false when ctx ends.
func (s *source) wait(ctx context.Context, w *watch.Watcher) bool { return wait(ctx, w, s.short) }

// wait blocks until w's files have changed, at most for shortInterval if short. It returns false when ctx ends.
func wait(ctx context.Context, w *watch.Watcher, short bool) bool {
	if !short {
		return w.Wait(ctx)
	}
	limited, cancel := context.WithTimeout(ctx, shortInterval)
	defer cancel()
	return w.Wait(limited) || ctx.Err() == nil
}

// paths returns the files of the last version.
func (s *source) paths() (paths []string) {
	for _, f := range s.version().files {
		paths = append(paths, f.Path)
	}
	return paths
}

// reload reads the file if it has changed, or there was no memory for it.
func (s *source) reload() {
	previous, again := s.version(), false
	if !previous.stale() {
		if again = s.short; !again {
			return
		}
	}

	v, err := s.library.read(s.path, s.origins, s.within, false, s.log)
	defer v.release()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.latest != previous {
		return // a plan has replaced it meanwhile
	}

	s.latest = v
	s.short = errors.As(err, new(*memory.Error))
	if err != nil && again && s.short {
		return // which has been logged
	}
	if err != nil {
		s.failed.Add(1)
		s.log.Error("file: Failed to reload zone file", "file", s.path, "error", err)
		s.health.Set(s, "file", health.Condition{
			Severity: health.Warning, Object: s.path,
			Text: fmt.Sprintf("the changed zone file %s cannot be read, and the old version serves: %v", s.path, err),
			Next: "correct the file; it is read again when it changes",
		})
		return
	}
	s.health.Clear(s, "file")

	for i, next := range v.zones {
		z := next.zone
		old, _ := s.zones[i].Load().Serial()
		serial, _ := z.Serial()
		if serial == old && !s.byTime && !v.mayComplete(previous) {
			s.log.Warn("file: Ignored changed zone file: serial number unchanged",
				"file", s.path, "zone", z.Origin(), "serial", serial)
			continue
		}
		s.store(i, next)
		s.log.Info("file: Reloaded zone", "file", s.path, "zone", z.Origin(), "serial", serial)
	}
}
