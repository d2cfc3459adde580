package watch

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"
)

// inotifies returns the number of the process's instances of inotify, and of their watches.
func inotifies(t *testing.T) (instances, watches int) {
	t.Helper()
	descriptors, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	for _, d := range descriptors {
		if to, _ := os.Readlink("/proc/self/fd/" + d.Name()); to != "anon_inode:inotify" {
			continue
		}
		info, err := os.ReadFile("/proc/self/fdinfo/" + d.Name())
		must(t, err)
		instances, watches = instances+1, watches+bytes.Count(info, []byte("inotify wd:"))
	}
	return instances, watches
}

// wantInotifies checks the process's instances of inotify and their watches.
func wantInotifies(t *testing.T, when string, instances, watches int) {
	t.Helper()
	if i, w := inotifies(t); i != instances || w != watches {
		t.Errorf("%s: got %d instances of inotify with %d watches, want %d with %d", when, i, w, instances, watches)
	}
}

// watched returns a Watcher of files, whose changes it finds by events alone.
func watched(t *testing.T, paths ...string) *Watcher {
	t.Helper()
	return New(paths, Options{Poll: time.Hour})
}

// wantChange writes a file, and waits until the Watcher has noticed it.
func (w *Watcher) wantChange(t *testing.T, path, text string) {
	t.Helper()
	write(t, path, text)
	if !w.Wait(t.Context()) {
		t.Errorf("Wait returned false after a change of %s, want true", path)
	}
}

// The Watchers of a process share one instance of inotify, and their watches of a directory.
func TestInstanceShared(t *testing.T) {
	const directories, files = 50, 4
	wantInotifies(t, "before", 0, 0)
	root := t.TempDir()
	var watchers []*Watcher
	for i := range directories * files {
		dir := filepath.Join(root, strconv.Itoa(i%directories))
		must(t, os.MkdirAll(dir, 0o755))
		path := filepath.Join(dir, "file"+strconv.Itoa(i))
		write(t, path, "1")
		watchers = append(watchers, watched(t, path))
	}
	wantInotifies(t, "with 200 Watchers", 1, directories*files+directories)

	var waiting sync.WaitGroup
	for _, w := range watchers {
		waiting.Go(func() { w.wantChange(t, w.paths[0], "22") })
	}
	waiting.Wait()

	// The directories of the others are still watched.
	for _, w := range watchers[directories:] {
		w.Close()
	}
	wantInotifies(t, "with 50 Watchers", 1, directories+directories)
	for _, w := range watchers[:directories] {
		w.Close()
	}
	wantInotifies(t, "after the last Watcher", 0, 0)
	w := watched(t, filepath.Join(root, "0", "file0"))
	w.wantChange(t, filepath.Join(root, "0", "file0"), "333")
	w.Close()
	wantInotifies(t, "after a further Watcher", 0, 0)
}

// A Watcher that ends leaves the events of the others, also of the same file by another path.
func TestCloseLeavesOthers(t *testing.T) {
	here, there := filepath.Join(t.TempDir(), "file"), filepath.Join(t.TempDir(), "file")
	write(t, here, "1")
	must(t, os.Link(here, there))
	first, same, linked := watched(t, here), watched(t, here), watched(t, there)
	wantInotifies(t, "with three Watchers of one file in two directories", 1, 3)
	first.Close()
	same.wantChange(t, there, "22") // its directory has no event
	linked.wantChange(t, here, "333")
	same.Close()
	must(t, os.Remove(here))
	linked.wantChange(t, there, "4444")
	linked.Close()
	wantInotifies(t, "after the last Watcher", 0, 0)
}

// Events that the kernel has dropped may be of any file: each Watcher checks its own.
func TestOverflow(t *testing.T) {
	text, err := os.ReadFile("/proc/sys/fs/inotify/max_queued_events")
	must(t, err)
	limit, err := strconv.Atoi(string(bytes.TrimSpace(text)))
	must(t, err)
	busy := t.TempDir()
	flood := []string{filepath.Join(busy, "a"), filepath.Join(busy, "b")}
	for _, path := range flood {
		write(t, path, "1")
	}
	all := []*Watcher{watched(t, flood...)}
	for range 3 {
		path := filepath.Join(t.TempDir(), "file")
		write(t, path, "1")
		all = append(all, watched(t, path))
	}

	// The reader of the events waits for the lock, and the queue of the kernel fills up. Equal events
	// in succession count once.
	process.mu.Lock()
	for i := range limit + 4096 {
		must(t, os.Chmod(flood[i%2], os.FileMode(0o600+i/2%2)))
	}
	for _, w := range all[1:] {
		write(t, w.paths[0], "22")
	}
	process.mu.Unlock()
	for i, w := range all {
		if !w.Wait(t.Context()) {
			t.Errorf("Watcher %d: Wait returned false after an overflow, want true", i)
		}
		w.Close()
	}
}

// Watchers begin, follow other files and end while others do.
func TestConcurrentWatchers(t *testing.T) {
	root := t.TempDir()
	shared := filepath.Join(root, "shared")
	write(t, shared, "1")
	var running sync.WaitGroup
	for n := range 8 {
		running.Go(func() {
			own := filepath.Join(root, strconv.Itoa(n))
			for i := range 10 {
				write(t, own, fmt.Sprint(i))
				w := watched(t, shared)
				w.Follow(shared, own)
				w.Wait(t.Context()) // since it follows another file
				w.wantChange(t, own, fmt.Sprint("changed", i))
				w.Close()
			}
		})
	}
	running.Wait()
	wantInotifies(t, "after the last Watcher", 0, 0)
}
