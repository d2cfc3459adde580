//go:build unix

package corefile

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Text must not block on a pipe without a writer or on a device without an end.
func TestTextNotRegular(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	huge := filepath.Join(dir, "huge")
	if err := os.WriteFile(huge, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(huge, TextLimit+1); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		pipe:        "not a regular file",
		dir:         "is a directory",
		"/dev/zero": "not a regular file",
		huge:        "larger than 64 MB",
	} {
		if _, err := Text(path); err == nil || err.Error() != "read "+path+": "+want {
			t.Errorf("Text(%s): got error %v, want %q", path, err, want)
		}
		_, err := Parse("Corefile", []byte(".:53 {\n    import "+path+"\n}\n"))
		if err == nil || !strings.HasPrefix(err.Error(), "Corefile:2: import: ") || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("import %s: got error %v, want %q", path, err, want)
		}
	}
	if r := Read("/dev/zero"); r.Err == nil || !strings.HasSuffix(r.Err.Error(), "larger than 64 MB") {
		t.Errorf("Read(/dev/zero): got error %v, want: larger than 64 MB", r.Err)
	}
}
