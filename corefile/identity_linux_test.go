package corefile

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// Files to which nothing has happened are not read again. A change is found, also one that leaves size and
// modification time as they were.
func TestUnchangedIdentity(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	dir := t.TempDir()
	path, imported := filepath.Join(dir, "Corefile"), filepath.Join(dir, "imported")
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	read := func() (Reading, uint64) {
		var before, after runtime.MemStats
		r := Read(path)
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		if !r.Unchanged() {
			t.Fatal("after reading: got changed")
		}
		runtime.ReadMemStats(&before)
		if !r.Unchanged() {
			t.Fatal("after another look: got changed")
		}
		runtime.ReadMemStats(&after)
		return r, after.TotalAlloc - before.TotalAlloc
	}

	const size = 1 << 20
	write(path, "a {\n import imported\n}\n")
	write(imported, "whoami\n#"+strings.Repeat("x", size)+"\n")
	if _, allocated := read(); allocated < size {
		t.Errorf("just written: %d bytes were allocated, want the text to be read", allocated)
	}

	time.Sleep(2100 * time.Millisecond) // until another change would certainly have another time
	r, allocated := read()
	if allocated >= size/2 {
		t.Errorf("%d bytes were allocated, want no text to be read", allocated)
	}

	info, err := os.Stat(imported)
	if err != nil {
		t.Fatal(err)
	}
	write(imported, "whoami\n#"+strings.Repeat("y", size)+"\n")
	if err := os.Chtimes(imported, info.ModTime(), info.ModTime()); err != nil {
		t.Fatal(err)
	}
	if r.Unchanged() {
		t.Error("another text of the same size and time: got unchanged")
	}

	r, _ = read()
	other := filepath.Join(dir, "other")
	write(other, "a {\n import imported # \n}\n")
	if err := os.Rename(other, path); err != nil {
		t.Fatal(err)
	}
	if r.Unchanged() {
		t.Error("another file of the name: got unchanged")
	}
}
