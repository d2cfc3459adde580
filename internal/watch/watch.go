// Package watch tells handlers that files which an operator edits may have
// changed: zone files, hosts files. What they are then, and whether somebody is
// still writing them, is for the handler to find out; it looks at times besides,
// since not every file system tells. Read reads one.
package watch

import (
	"io/fs"
	"os"
	"path/filepath"

	"github.com/fsnotify/fsnotify"
)

// Files are watched in the folders that their paths lead through: editors put
// another file in the place of one, and a mounted ConfigMap is links into a
// folder that is replaced. The files themselves are watched too, for they may be
// mounted from elsewhere and written there. One goroutine at a time owns it. The
// zero Files watches nothing.
type Files struct {
	fs    *fsnotify.Watcher // nil if there can be none
	paths map[string]fs.FileInfo
}

// Open begins with no files. Without the system's help it says why.
func (w *Files) Open() (err error) {
	w.fs, err = fsnotify.NewWatcher()
	return err
}

// Close ends it.
func (w *Files) Close() {
	if w.fs != nil {
		_ = w.fs.Close() // nobody looks at it any more
	}
}

// Active says whether there will be events.
func (w *Files) Active() bool { return w.fs != nil }

// Follow watches these paths, of files or directories, as they are now, and
// nothing else any more. What cannot be watched is left to the poll.
func (w *Files) Follow(paths ...string) {
	if w.fs == nil {
		return
	}
	now := map[string]fs.FileInfo{}
	// Each is watched where it really is: with two names of one, of which an earlier
	// holder had the same inode number, fsnotify panics when it drops them.
	want := func(path string) (real string) {
		real, err := filepath.EvalSymlinks(path)
		if err != nil {
			return ""
		}
		// A device or a FIFO is nothing to read, nor to watch.
		if info, err := os.Stat(real); err == nil && (info.IsDir() || info.Mode().IsRegular()) {
			now[real] = info
		}
		return real
	}
	for _, path := range paths {
		want(filepath.Dir(path))
		if real := want(path); real != "" {
			want(filepath.Dir(real))
		}
	}
	for path, info := range w.paths {
		if now[path] == nil || !os.SameFile(now[path], info) {
			_ = w.fs.Remove(path) // fails if it went with what it watched
		}
	}
	for path := range now {
		_ = w.fs.Add(path)
	}
	w.paths = now
}

// Events tell that something has happened to the files or beside them.
func (w *Files) Events() <-chan fsnotify.Event {
	if w.fs == nil {
		return nil
	}
	return w.fs.Events
}

// Errors tell that there were more events than could be told. They must be read
// for the events to go on.
func (w *Files) Errors() <-chan error {
	if w.fs == nil {
		return nil
	}
	return w.fs.Errors
}

// Drain takes what has come of both.
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
