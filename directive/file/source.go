package file

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/internal/watch"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone"
)

// A source is a zone file that is served and followed. It outlives reloads that
// do not change its path, zones and options.
type source struct {
	path    string
	origins []wire.Name
	byTime  bool
	zones   []atomic.Pointer[zone.Zone] // in the order of the origins
	log     *slog.Logger
	failed  *metrics.Counter
	cancel  context.CancelFunc
	ended   sync.WaitGroup

	mu   sync.Mutex // of what follows, and of changes of zones
	last *version   // that was looked at, whether it was good or not
}

// open begins to serve and to follow a file that has been read.
func open(u *use, b *config.Block) *source {
	ctx, cancel := context.WithCancel(context.Background())
	s := &source{
		path: u.path, origins: u.origins, byTime: u.byTime, zones: make([]atomic.Pointer[zone.Zone], len(u.origins)),
		log: b.Log, cancel: cancel, failed: b.Metrics.Counter("seamark_file_reload_failed_total",
			"Counter of changed zone files that could not be read.", "file", u.path),
	}
	s.take(u.read)
	if u.reload > 0 {
		s.ended.Go(func() { s.follow(ctx, u.reload) })
	}
	return s
}

// Stop ends the following.
func (s *source) Stop() {
	s.cancel()
	s.ended.Wait()
}

// take serves what a plan has read, unless something newer was read meanwhile.
func (s *source) take(v *version) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last != nil && s.last.when.After(v.when) {
		return
	}
	s.last = v
	for i, z := range v.zones {
		s.zones[i].Store(z)
	}
}

// latest is the version that was looked at last.
func (s *source) latest() *version {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// look reads the file anew if it has changed.
func (s *source) look() {
	last := s.latest()
	if !last.stale() {
		return
	}
	v, err := load(s.path, s.origins, s.log)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last != last {
		return // a plan was quicker
	}
	s.last = v
	if err != nil {
		s.failed.Add(1)
		s.log.Error("plugin/file: " + err.Error())
		return
	}
	for i, z := range v.zones {
		old, _ := s.zones[i].Load().Serial()
		serial, _ := z.Serial()
		if serial == old && !s.byTime && !v.young(last) {
			s.log.Warn("plugin/file: "+s.path+" has changed and its serial has not: the zone stays as it was", "zone", z.Origin(), "serial", serial)
			continue
		}
		s.zones[i].Store(z)
		s.log.Info("plugin/file: "+s.path+" has been read anew", "zone", z.Origin(), "serial", serial)
	}
}

// watch follows the files that were read last.
func (s *source) watch(w *watch.Files) {
	var paths []string
	for _, f := range s.latest().files {
		paths = append(paths, f.Path)
	}
	w.Follow(paths...)
}

// gathering is how long after the first sign of a change its end is waited for.
const gathering = 100 * time.Millisecond

// follow looks again and again, and soon after something happens to the files.
func (s *source) follow(ctx context.Context, every time.Duration) {
	poll := time.NewTicker(every)
	defer poll.Stop()
	soon := time.NewTimer(0) // what changed since the plan has read it
	defer soon.Stop()
	var w watch.Files
	if err := w.Open(); err != nil {
		s.log.Warn("plugin/file: cannot watch for changes, looking at times only", "file", s.path, "error", err)
	}
	defer w.Close()
	s.watch(&w)
	for gathers := false; ; {
		select {
		case <-ctx.Done():
			return
		case <-w.Events():
		case <-w.Errors(): // there were more events than could be told
		case <-soon.C:
			gathers = false
			s.look()
			s.watch(&w)
			continue
		case <-poll.C:
			s.look()
			s.watch(&w)
			continue
		}
		if !gathers {
			gathers = true
			soon.Reset(gathering)
		}
	}
}
