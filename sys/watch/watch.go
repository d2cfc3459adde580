// Package watch reports changes of files that an operator edits or a kubelet
// mounts, reads such files, and replaces files. Every package that follows files uses a Watcher.
package watch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/fsnotify/fsnotify"
)

// files are the watched paths. The system reports events of the files and of the
// directories that the paths lead through: an editor may replace a file, and a
// mounted ConfigMap consists of links into a directory that is replaced. The files
// are watched too, since they may be mounted from elsewhere and written there.
type files struct {
	fs    *fsnotify.Watcher // nil without file events
	paths map[string]fs.FileInfo
	// names are the paths, real ones and links, whose events matter; any event in
	// one of contents does.
	names, contents map[string]bool
}

// follow watches these files or directories as they are now, and nothing else. A
// path that cannot be watched causes no events; follow returns the first error of a
// directory that cannot be watched.
func (w *files) follow(paths ...string) (failed error) {
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
