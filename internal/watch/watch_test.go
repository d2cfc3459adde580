package watch

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// hears waits for a sign, and takes what else has come by then.
func hears(t *testing.T, w *Files, what string) {
	t.Helper()
	select {
	case <-w.Events():
	case <-w.Errors():
	case <-time.After(10 * time.Second):
		t.Errorf("%s: nothing in ten seconds", what)
	}
	w.Drain()
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

// However a file is changed, there is a sign; the path is followed anew after
// each.
func TestFollow(t *testing.T) {
	here, there, new := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "new")
	path, real, mounted := filepath.Join(here, "link"), filepath.Join(there, "file"), filepath.Join(t.TempDir(), "file")
	write(t, real, "1")
	must(t, os.Symlink(real, path))
	must(t, os.Link(real, mounted))
	var w Files
	must(t, w.Open())
	defer w.Close()
	for _, step := range []struct {
		what string
		do   func()
	}{
		{"written where the link leads", func() { write(t, real, "2") }},
		{"written by another name", func() { write(t, mounted, "3") }},
		{"replaced where the link leads", func() { write(t, new, "4"); must(t, os.Rename(new, real)) }},
		{"the new one is written", func() { write(t, real, "5") }},
		{"the link is another one", func() { must(t, os.Symlink(mounted, new)); must(t, os.Rename(new, path)) }},
		{"written where that leads", func() { write(t, mounted, "6") }},
		{"gone", func() { must(t, os.Remove(path)) }},
		{"there again", func() { write(t, path, "7") }},
	} {
		w.Follow(path)
		w.Drain()
		step.do()
		hears(t, &w, step.what)
	}
	w.Follow()
	if list := w.fs.WatchList(); len(list) > 0 {
		t.Errorf("still watched: %q", list)
	}
}

// Without the system's help nothing is heard, and nothing fails.
func TestNone(t *testing.T) {
	var w Files
	w.Follow(t.TempDir())
	w.Drain()
	if w.Active() || w.Events() != nil || w.Errors() != nil {
		t.Error("there may be events")
	}
	w.Close()
}
