package corefile

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/seamark/seamark/test/race"
)

// Texts of many words, keys or expansions are rejected before memory is needed for the words.
func TestManyWords(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	race.Skip(t)
	dir := t.TempDir()
	put := func(name, text string) string {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	put("many", strings.Repeat("log\n", maxWords+1))
	const wanted = "more than 500000 words: have the directives hosts and file read long lists from files"
	for _, c := range []struct{ name, text, want string }{
		{"lines", ". {\n" + strings.Repeat("log\n", maxWords) + "}\n", ":1: " + wanted},
		{"quotes", ". {\n" + strings.Repeat(`""`, maxWords) + "}\n", ":1: " + wanted},
		{"keys", strings.Repeat("a,", maxWords+1) + " {\n}\n", ":1: " + wanted},
		{"imported file", ". {\n import many\n}\n", ":2: import: " + filepath.Join(dir, "many") + " has " + wanted},
		{"expanded snippet", "(s) {\n" + strings.Repeat("log\n", 1000) + "}\n. {\n" + strings.Repeat("import s\n", 9_000) + "}\n", ":1484: import: " + wanted},
	} {
		file := put("Corefile", c.text)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r := Read(file)
		runtime.ReadMemStats(&after)
		if r.Err == nil || r.Err.Error() != file+c.want {
			t.Errorf("%s: got the error %.300v, want %s", c.name, r.Err, file+c.want)
		}
		if c.name == "expanded snippet" {
			continue // it has as many words as the limit allows
		}
		if used := after.TotalAlloc - before.TotalAlloc; used > 10<<20 {
			t.Errorf("%s: allocated %d bytes, want at most 10 MB", c.name, used)
		}
		if strings.HasPrefix(c.want, ":1:") {
			if _, err := Layout(file, []byte(c.text)); err == nil || err.Error() != file+c.want {
				t.Errorf("%s: Layout: got the error %.300v, want %s", c.name, err, file+c.want)
			}
		}
	}
	if r := ReadText("Corefile", []byte(". {\n"+strings.Repeat("log\n", maxWords-10)+"}\n")); r.Err != nil {
		t.Errorf("fewer words than the limit: got the error %.300v, want none", r.Err)
	}
}

// A file above the limit is rejected by its size.
func TestLargeFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "Corefile")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(file, TextLimit+1); err != nil { // sparse
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r := Read(file)
	runtime.ReadMemStats(&after)
	if want := "reading the Corefile: read " + file + ": larger than 64 MB"; r.Err == nil || r.Err.Error() != want {
		t.Errorf("got the error %.300v, want %s", r.Err, want)
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > 1<<20 {
		t.Errorf("allocated %d bytes, want at most 1 MB", used)
	}
}
