//go:build unix

package watch

import (
	"os"
	"path/filepath"
	"testing"
)

// A key that all users can read is reported, unless the kubelet has mounted it.
func TestExposed(t *testing.T) {
	dir := t.TempDir()
	key := filepath.Join(dir, "key")
	for mode, want := range map[os.FileMode]bool{0o600: false, 0o640: false, 0o644: true, 0o604: true} {
		if err := os.WriteFile(key, []byte("secret"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(key, mode); err != nil {
			t.Fatal(err)
		}
		if got := Exposed(key) != nil; got != want {
			t.Errorf("mode %04o: got %t, want %t", mode, got, want)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "..data"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{key, filepath.Join(dir, "missing"), "/dev/zero", dir} {
		if err := Exposed(path); err != nil {
			t.Errorf("%s: got %v, want nothing", path, err)
		}
	}
}
