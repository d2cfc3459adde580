// Package watch reports changes of files that an operator edits or a kubelet
// mounts, and reads such files. A Watcher is for everything that follows files;
// Files is the older interface, for packages that do not use a Watcher yet.
package watch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/fsnotify/fsnotify"
)

// Files reports events of files and of the directories that their paths lead
// through: an editor may replace a file, and a mounted ConfigMap consists of links
// into a directory that is replaced. The files are watched too, since they may be
// mounted from elsewhere and written there. One goroutine at a time owns it. The
// zero Files watches nothing.
type Files struct {
	fs    *fsnotify.Watcher // nil without file events
	paths map[string]fs.FileInfo
	// names are the paths, real ones and links, whose events matter; any event in
	// one of contents does.
	names, contents map[string]bool
}

// Open prepares to watch files; none is watched yet. It fails if the system has no
// file events.
func (w *Files) Open() (err error) {
	w.fs, err = fsnotify.NewWatcher()
	return err
}

// Close releases the resources.
func (w *Files) Close() {
	if w.fs != nil {
		_ = w.fs.Close()
	}
}

// Active reports whether there are file events.
func (w *Files) Active() bool { return w.fs != nil }

// Follow watches these files or directories as they are now, and nothing else. A
// path that cannot be watched causes no events.
func (w *Files) Follow(paths ...string) { _ = w.follow(paths...) }

// follow returns the first error of a directory that cannot be watched.
func (w *Files) follow(paths ...string) (failed error) {
	now := map[string]fs.FileInfo{}
	w.names, w.contents = map[string]bool{}, map[string]bool{}
	// Only real paths are watched: fsnotify panics when it removes two watches of
	// one file by different paths after its inode number has been reused.
	want := func(path string) (real string) {
		real, err := filepath.EvalSymlinks(path)
		if err != nil {
			return ""
		}
		// A device or a FIFO is not watched: Read rejects it.
		if info, err := os.Stat(real); err == nil && (info.IsDir() || info.Mode().IsRegular()) {
			now[real] = info
		}
		return real
	}
	for _, path := range paths {
		if dir := want(filepath.Dir(path)); dir != "" {
			w.names[filepath.Join(dir, filepath.Base(path))] = true
			w.names[filepath.Join(dir, dataLink)] = true
		}
		if real := want(path); real != "" {
			want(filepath.Dir(real))
			w.names[real], w.contents[real] = true, true
		}
	}
	if w.fs == nil {
		return nil
	}
	for path, info := range w.paths {
		if now[path] == nil || !os.SameFile(now[path], info) {
			_ = w.fs.Remove(path) // fails if the file has been removed
		}
	}
	for path := range now {
		if err := w.fs.Add(path); err != nil && !errors.Is(err, fs.ErrNotExist) && failed == nil {
			failed = fmt.Errorf("watching %s: %w", path, err)
		}
	}
	w.paths = now
	return failed
}

// Events returns the channel of events of the files and of their directories.
func (w *Files) Events() <-chan fsnotify.Event {
	if w.fs == nil {
		return nil
	}
	return w.fs.Events
}

// Errors returns a channel that receives an error when events were lost. Events
// stop until it is read.
func (w *Files) Errors() <-chan error {
	if w.fs == nil {
		return nil
	}
	return w.fs.Errors
}

// Drain discards the events and errors received so far.
func (w *Files) Drain() {
	for {
		select {
		case <-w.Events():
		case <-w.Errors():
		default:
			return
		}
	}
}
