package watch

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/seamark/seamark/sys/follow"
)

// openFiles returns files with file events of their own.
func openFiles(t *testing.T) *files {
	t.Helper()
	w := &files{system: newSystem(openKernel), changed: follow.NewSignal()}
	must(t, w.follow())
	t.Cleanup(func() { w.system.leave(w) })
	return w
}

// drain discards the events received so far.
func (w *files) drain() {
	select {
	case <-w.changed:
	default:
	}
}

// wantEvent waits for an event.
func (w *files) wantEvent(t *testing.T, change string) {
	t.Helper()
	select {
	case <-w.changed:
	case <-time.After(time.Minute):
		t.Errorf("%s: got no event within a minute, want one", change)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	must(t, os.WriteFile(path, []byte(text), 0o600))
}

// However a file is changed, there is an event. The path is followed again after
// each change.
func TestFollow(t *testing.T) {
	here, there, renamed := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "new")
	path, real, mounted := filepath.Join(here, "link"), filepath.Join(there, "file"), filepath.Join(t.TempDir(), "file")
	write(t, real, "1")
	must(t, os.Symlink(real, path))
	must(t, os.Link(real, mounted))
	w := openFiles(t)
	for _, step := range []struct {
		change string
		do     func()
	}{
		{"target written", func() { write(t, real, "2") }},
		{"target written by another name", func() { write(t, mounted, "3") }},
		{"target replaced", func() { write(t, renamed, "4"); must(t, os.Rename(renamed, real)) }},
		{"new target written", func() { write(t, real, "5") }},
		{"link replaced", func() { must(t, os.Symlink(mounted, renamed)); must(t, os.Rename(renamed, path)) }},
		{"target of the new link written", func() { write(t, mounted, "6") }},
		{"link removed", func() { must(t, os.Remove(path)) }},
		{"file created", func() { write(t, path, "7") }},
	} {
		must(t, w.follow(path))
		w.drain()
		step.do()
		w.wantEvent(t, step.change)
	}
	must(t, w.follow())
	w.system.mu.Lock()
	defer w.system.mu.Unlock()
	if n := len(w.system.shared.watches); n > 0 {
		t.Errorf("follow() without paths: got %d watches, want none", n)
	}
}

// Without file events, follow succeeds.
func TestFollowWithoutEvents(t *testing.T) {
	var w files
	must(t, w.follow(t.TempDir()))
}
