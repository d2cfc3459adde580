package watch

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// What is read is a file of a size that was expected; nothing else is waited for.
func TestRead(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	const mb = 1 << 20
	write(t, in("most"), strings.Repeat("a", mb))
	write(t, in("more"), strings.Repeat("a", mb+1))
	write(t, in("none"), "")
	must(t, syscall.Mkfifo(in("fifo"), 0o600))
	for name, size := range map[string]int{"most": mb, "none": 0} {
		if text, err := Read(in(name), mb); err != nil || text != strings.Repeat("a", size) {
			t.Errorf("%s: %d bytes, %v", name, len(text), err)
		}
	}
	for name, want := range map[string]string{
		"more": "larger than 1 MB", "fifo": "want a file", ".": "a directory", "missing": "no such file or directory",
		"none/below": "not a directory",
	} {
		if _, err := Read(in(name), mb); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", name, err, want)
		}
	}
	if _, err := Read(in("missing"), mb); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is missing: %v", err)
	}
	if _, err := Read(dir, mb); !errors.Is(err, ErrDirectory) {
		t.Errorf("a directory: %v", err)
	}
}
