package corefile

import (
	"crypto/sha512"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The sum is the sum of the Corefile's text if it imports nothing, and changes with
// each file that is read, whether it is valid or not.
func TestSum(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	read := func() Reading { return Read(filepath.Join(dir, "Corefile")) }

	if c := read(); c.Sum != (Sum{}) || c.Err == nil || !strings.HasPrefix(c.Err.Error(), "reading the Corefile: open ") {
		t.Errorf("missing file: got sum %v, error %v; want the zero sum and an error", c.Sum, c.Err)
	}
	const plain = "a {\n log\n}\n"
	put("Corefile", plain)
	if c := read(); c.Err != nil || len(c.Servers) != 1 || c.Sum.String() != fmt.Sprintf("%x", sha512.Sum512([]byte(plain))) {
		t.Errorf("got %v", c)
	}
	before := read()
	seen := map[Sum]string{before.Sum: "without imports"}
	step := func(name string) {
		t.Helper()
		c := read()
		if same, again := seen[c.Sum]; again {
			t.Errorf("%s: got the sum of %s, want another", name, same)
		}
		if read().Sum != c.Sum {
			t.Errorf("%s: got another sum for the same files, want the same", name)
		}
		if before.Unchanged() || !c.Unchanged() {
			t.Errorf("%s: got unchanged %v and of the new reading %v, want false and true", name, before.Unchanged(), c.Unchanged())
		}
		seen[c.Sum], before = name, c
	}
	put("Corefile", "a {\n import one\n import d/*\n import one\n}\n")
	step("a missing file")
	put("one", "")
	step("an empty file")
	put("one", "log\n")
	step("another text")
	put("d/x", "log\n")
	step("a match of the pattern")
	put("d/y", "log\n")
	step("another match")
	if err := os.Rename(filepath.Join(dir, "d/y"), filepath.Join(dir, "d/z")); err != nil {
		t.Fatal(err)
	}
	step("another name")
	put("d/x", "import ../two\n")
	step("an import inside, missing")
	put("two", "}{\n")
	step("an import inside, wrong")
	if err := os.Mkdir(filepath.Join(dir, "d", "folder"), 0o755); err != nil {
		t.Fatal(err)
	}
	step("a match that cannot be read")
	put("Corefile", "a {\n")
	step("no braces")
	if c := ReadText("Corefile", []byte(plain)); c.Sum.String() != fmt.Sprintf("%x", sha512.Sum512([]byte(plain))) || len(c.Servers) != 1 {
		t.Errorf("got %v", c)
	}
}
