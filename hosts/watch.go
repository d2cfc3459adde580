package hosts

import (
	"io/fs"
	"os"
	"path/filepath"

	"github.com/fsnotify/fsnotify"
)

// A watch tells that something may have changed in the folders that a path
// leads through: editors put another file in the place of one. The file itself
// is watched too, for it may be mounted from another folder and written there.
type watch struct {
	fs    *fsnotify.Watcher // nil if there can be none
	paths map[string]fs.FileInfo
}

func (w *watch) open() (err error) {
	w.fs, err = fsnotify.NewWatcher()
	return err
}

func (w *watch) close() {
	if w.fs != nil {
		w.fs.Close()
	}
}

// follow watches the path, what it leads to, and the folders that these are in.
// What cannot be watched is left to the poll.
func (w *watch) follow(path string) {
	if w.fs == nil {
		return
	}
	now := map[string]fs.FileInfo{}
	want := func(path string) {
		// A device or a FIFO is nothing to read, nor to watch.
		if info, err := os.Stat(path); err == nil && (info.IsDir() || info.Mode().IsRegular()) {
			now[path] = info
		}
	}
	want(filepath.Dir(path))
	want(path)
	if real, err := filepath.EvalSymlinks(path); err == nil {
		want(real)
		want(filepath.Dir(real))
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

func (w *watch) events() <-chan fsnotify.Event {
	if w.fs == nil {
		return nil
	}
	return w.fs.Events
}

func (w *watch) errors() <-chan error {
	if w.fs == nil {
		return nil
	}
	return w.fs.Errors
}

// drain takes the events that have come.
func (w *watch) drain() {
	for {
		select {
		case <-w.events():
		case <-w.errors():
		default:
			return
		}
	}
}
