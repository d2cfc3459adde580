//go:build unix

package manifests

import (
	"os"
	"strings"
	"syscall"
	"testing"
)

// Special files and large files are skipped without waiting for them.
func TestManifestsSpecialFiles(t *testing.T) {
	b := newBench(t, map[string]string{"a.yaml": service("a", "10.0.0.1"), "large.yaml": "# " + strings.Repeat("x", 1<<20)})
	must(t, syscall.Mkfifo(b.path("fifo.yaml"), 0o644))
	must(t, os.Symlink("/dev/zero", b.path("zero.json")))
	must(t, os.Symlink("self.yaml", b.path("self.yaml")))
	f := b.open()
	f.limit = 1 << 20
	f.check(t.Context())
	f.check(t.Context())
	b.has("services shop/a 10.0.0.1")
	b.says(4, "level=WARN")
	b.says(1, "level=WARN", "large.yaml", "larger than 1 MB")
	b.says(1, "level=WARN", "fifo.yaml", "not a regular file")
	b.says(1, "level=WARN", "zero.json", "not a regular file")
	b.says(1, "level=WARN", "self.yaml")

	for name, want := range map[string]string{"fifo.yaml": "not a regular file", "large.yaml": "larger"} { // as if they had been replaced since
		if _, err := f.decode(t.Context(), name, nil, new(decoder)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("reading %s: %v, want %s", name, err, want)
		}
	}
}

// Files and directories that cannot be read any more keep their objects, with a warning.
func TestManifestsUnreadable(t *testing.T) {
	b := newBench(t, map[string]string{
		"grows.yaml": service("a", "10.0.0.1"), "replaced.yaml": service("b", "10.0.0.2"), "team/c.yaml": service("c", "10.0.0.3"),
	})
	f := b.open()
	f.limit = 1 << 20
	f.check(t.Context())
	all := []string{"services shop/a 10.0.0.1", "services shop/b 10.0.0.2", "services shop/c 10.0.0.3"}
	b.has(all...)

	b.write("grows.yaml", service("a", "10.0.0.1")+"# "+strings.Repeat("x", 1<<20))
	b.remove("replaced.yaml")
	must(t, syscall.Mkfifo(b.path("replaced.yaml"), 0o644))
	must(t, os.Rename(b.path("team"), b.dir+".away"))
	must(t, os.Symlink("team", b.path("team")))
	for range 3 {
		f.check(t.Context())
	}
	b.has(all...)
	b.says(1, "level=WARN", "grows.yaml", "larger than 1 MB")
	b.says(1, "level=WARN", "replaced.yaml", "not a regular file")
	b.says(1, "level=WARN", "team error=", "too many levels of symbolic links")

	b.write("grows.yaml", service("a", "10.0.0.9"))
	b.remove("replaced.yaml")
	b.remove("team")
	f.check(t.Context())
	b.has("services shop/a 10.0.0.9")
}
