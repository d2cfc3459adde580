//go:build !linux

package watch

import (
	"os"
	"path/filepath"

	"github.com/fsnotify/fsnotify"
)

// A descriptor is the path of a watched file.
type descriptor string

// notifier is the events of systems other than Linux.
type notifier struct{ *fsnotify.Watcher }

func openKernel() (kernel, error) {
	w, err := fsnotify.NewWatcher()
	return notifier{w}, err
}

func (n notifier) close()                              { _ = n.Close() }
func (n notifier) add(path string) (descriptor, error) { return descriptor(path), n.Add(path) }
func (n notifier) remove(of descriptor)                { _ = n.Remove(string(of)) }

func (n notifier) read() ([]event, error) {
	select {
	case e, ok := <-n.Events:
		if !ok {
			return nil, os.ErrClosed
		}
		dir, name := filepath.Split(e.Name)
		return []event{{of: descriptor(e.Name)}, {of: descriptor(filepath.Clean(dir)), name: name}}, nil
	case _, ok := <-n.Errors:
		if !ok {
			return nil, os.ErrClosed
		}
		return []event{{lost: true}}, nil
	}
}
