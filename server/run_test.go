package server

import (
	"os"
	"path/filepath"
	"testing"
)

// Only regular files are read and removed: a device such as /dev/zero has no end.
func TestRemovePIDFileNoFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "pid")
	if err := os.Mkdir(name, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := (pidFile{name, os.Getpid()}).remove(); err != nil {
		t.Errorf("pidfile is a directory: got error %v, want none", err)
	}
	if _, err := os.Stat(name); err != nil {
		t.Errorf("pidfile is a directory: got %v, want that it remains", err)
	}
}
