package watch

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// A write that fails, for instance because the disk is full, leaves the old file.
func TestReplaceErrors(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	write := func(text string, result error) func(*os.File) error {
		return func(f *os.File) error {
			if _, err := f.WriteString(text); err != nil {
				return err
			}
			return result
		}
	}
	if err := Replace(path, 0o600, write("one", nil)); err != nil {
		t.Fatal(err)
	}
	if err := Replace(path, 0o600, write("tw", syscall.ENOSPC)); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("full disk: got error %v, want %v", err, syscall.ENOSPC)
	}
	if err := Replace(filepath.Join(dir, "none", "file"), 0o600, write("x", nil)); err == nil {
		t.Error("missing directory: got no error")
	}
	entries, err := os.ReadDir(dir)
	if text, _ := os.ReadFile(path); err != nil || len(entries) != 1 || string(text) != "one" {
		t.Errorf("got %q and files %v with error %v, want one file with the text one", text, entries, err)
	}
}
