package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/seamark/seamark/cluster/snapshot"
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/sys/clock"
	"github.com/seamark/seamark/sys/follow"
	"github.com/seamark/seamark/sys/health"
	"github.com/seamark/seamark/sys/watch"
)

const (
	snapshotCheck    = time.Second // between two checks whether the file must be written
	snapshotInterval = time.Minute // between two writes, and before the first repetition of one that failed
	snapshotRetry    = time.Hour   // longest wait before the repetition of a write that failed
)

// A snapshotFile is the file of the option snapshot. It survives reloads, so that only one
// plan writes it.
type snapshotFile struct {
	path   string
	log    *slog.Logger
	health *health.Board
	task   *follow.Task

	mu      sync.Mutex
	start   *config.Start   // the last one that uses the file
	planned *watchedCluster // by that start
	source  *watchedCluster // whose objects are written; nil before the first start has succeeded
	written contentID       // of the file, if fresh
	fresh   bool            // the file has objects of source
	yielded bool            // another process, which replaces this one, writes the file
}

// A contentID identifies a state of the objects of one source.
type contentID struct {
	hash       uint32
	podChanges uint64
}

func (w *watchedCluster) contentID() contentID { return contentID{w.Hash(), w.PodChanges()} }

// snapshotOf returns the options that a snapshot has to be of: they select the objects.
func (o *options) snapshotOf(zones string) string {
	selected := o.Options
	selected.Cert, selected.Key, selected.CA = "", "", ""
	selected.QPS, selected.Burst, selected.MaxInflight = 0, 0, 0
	return fmt.Sprintf("zones %s %+v", zones, selected)
}

// keepSnapshot returns the file, which the plan writes once it serves.
func keepSnapshot(s *config.Start, b *config.Block, path string, w *watchedCluster) error {
	f, err := config.Keep(s, path, func() (*snapshotFile, error) {
		f := &snapshotFile{path: path, log: b.Log, health: b.Health()}
		f.task = follow.Go(f.run)
		return f, nil
	})
	if err != nil {
		return err
	}

	f.mu.Lock()
	defer f.mu.Unlock()
	if f.start == s && f.planned != w {
		return fmt.Errorf("snapshot %s: another kubernetes directive with other options uses the file", path)
	}

	f.start, f.planned = s, w
	b.OnSwap(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.fresh = f.fresh && f.source == w
		f.source = w
	})
	return nil
}

// Yield implements config.Yielder. It waits until the file is written.
func (f *snapshotFile) Yield() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.yielded, f.fresh = true, false // it may soon have objects of the other process
}

// Resume implements config.Yielder.
func (f *snapshotFile) Resume() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.yielded = false
}

// Stop writes the file a last time.
func (f *snapshotFile) Stop() {
	f.task.Stop()
	defer f.health.Forget(f)
	if err := f.write(); err != nil {
		f.logError(err, 0)
	}
}

// run writes the file when the objects have changed, at most once in snapshotInterval. A
// write that fails is repeated after growing intervals.
func (f *snapshotFile) run(ctx context.Context) {
	var next time.Time
	retry := snapshotInterval
	for range clock.Ticks(ctx, snapshotCheck) {
		if time.Until(next) > 0 || !f.changed() {
			continue
		}

		if err := f.write(); err != nil {
			f.logError(err, retry)
			next = time.Now().Add(retry)
			retry = min(2*retry, snapshotRetry)
			continue
		}

		if retry > snapshotInterval {
			f.log.Info("kubernetes: Wrote the snapshot again", "file", f.path)
		}

		next, retry = time.Now().Add(snapshotInterval), snapshotInterval
	}
}

// changed reports whether the file lacks changes of the source.
func (f *snapshotFile) changed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.yielded && f.source != nil && f.source.Synced() && !(f.fresh && f.written == f.source.contentID())
}

// write replaces the file, unless the source has no objects of an API server, or another process does.
func (f *snapshotFile) write() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := f.source
	if f.yielded || w == nil || !w.Synced() {
		return nil
	}
	content := w.contentID() // before the objects are read
	if err := watch.Replace(f.path, 0o600, func(file *os.File) error {
		return snapshot.Write(file, snapshot.Header{Written: time.Now(), Options: w.snapshotOf}, w.Objects())
	}); err != nil {
		return err
	}
	f.written, f.fresh = content, true
	f.health.Clear(f, "write")
	return nil
}

// logError logs the error of a write, and the wait until the next one, if there is one.
func (f *snapshotFile) logError(err error, retry time.Duration) {
	action := "check the directory of the file"
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		action = "free space in the directory of the file"
	case errors.Is(err, syscall.EROFS), errors.Is(err, fs.ErrPermission):
		action = "let the server write into the directory of the file"
	case errors.Is(err, syscall.EISDIR), errors.Is(err, fs.ErrExist):
		action = "name a file, not a directory"
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		action = "create the directory of the file"
	}
	f.health.Set(f, "write", health.Condition{
		Severity: health.Warning, Object: f.path,
		Text: fmt.Sprintf("the snapshot %s cannot be written: %v; a restart without the API server would have old objects", f.path, err),
		Next: action,
	})
	f.log.Error("kubernetes: Writing the snapshot failed", "file", f.path, "error", err, "action", action,
		"duration", retry)
}

// readSnapshot reads a snapshot of these options.
func readSnapshot(file io.Reader, options string) (*snapshot.Snapshot, error) {
	s, err := snapshot.Read(file)
	if err == nil && s.Options != options {
		err = fmt.Errorf("written with other options: got %q, want %q", s.Options, options)
	}
	return s, err
}
