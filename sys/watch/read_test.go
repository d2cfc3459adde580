//go:build unix

package watch

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Read returns the content of a regular file up to the limit, and an error for
// anything else, without blocking.
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
			t.Errorf("Read(%s): got %d bytes, error %v, want %d bytes", name, len(text), err, size)
		}
	}
	for name, want := range map[string]string{
		"more": "larger than 1 MB", "fifo": "not a regular file", ".": "a directory", "missing": "no such file or directory",
		"none/below": "not a directory",
	} {
		if _, err := Read(in(name), mb); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", name, err, want)
		}
	}
	if _, err := Read(in("missing"), mb); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing file: got %v, want fs.ErrNotExist", err)
	}
	if _, err := Read(dir, mb); !errors.Is(err, ErrDirectory) {
		t.Errorf("directory: got %v, want ErrDirectory", err)
	}
}
