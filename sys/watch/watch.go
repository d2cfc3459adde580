// Package watch reports changes of files that an operator edits or a kubelet
// mounts, reads such files, and replaces files. Every package that follows files uses a Watcher.
package watch

import (
	"os"
	"path/filepath"

	"github.com/seamark/seamark/sys/follow"
)

// files are the watched paths. The system reports events of the files and of the
// directories that the paths lead through: an editor may replace a file, and a
// mounted ConfigMap consists of links into a directory that is replaced. The files
// are watched too, since they may be mounted from elsewhere and written there.
type files struct {
	system  *system       // nil without file events
	changed follow.Signal // for each event that matters
	watches map[descriptor]*interest
}

// An interest is in the events of one watched file or directory: of its entries with these names, or
// of itself and all entries.
type interest struct {
	all   bool
	names map[string]bool
}

func (i *interest) merge(other *interest) {
	i.all = i.all || other.all
	for name := range other.names {
		i.names[name] = true
	}
}

// follow watches these files or directories as they are now, and nothing else. A
// path that cannot be watched causes no events. follow returns an error once, until it
// succeeds.
func (w *files) follow(paths ...string) error {
	if w.system == nil {
		return nil
	}

	wanted := map[string]*interest{}
	want := func(real string, more interest) {
		// A device or a FIFO is not watched: Read rejects it.
		if info, err := os.Stat(real); err != nil || !info.IsDir() && !info.Mode().IsRegular() {
			return
		}
		if wanted[real] == nil {
			wanted[real] = &interest{names: map[string]bool{}}
		}
		wanted[real].merge(&more)
	}

	for _, path := range paths {
		if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
			want(dir, interest{names: map[string]bool{filepath.Base(path): true, dataLink: true}})
		}
		if real, err := filepath.EvalSymlinks(path); err == nil {
			want(filepath.Dir(real), interest{names: map[string]bool{filepath.Base(real): true}})
			want(real, interest{all: true})
		}
	}
	return w.system.follow(w, wanted)
}
