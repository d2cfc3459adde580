package directive

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
)

// root sets up the directives of one server block and returns its warnings.
func root(t *testing.T, text string) (b *config.Block, warnings string, err error) {
	t.Helper()
	servers, err := corefile.Parse("Corefile", []byte(".:53 {\n"+text+"\n}"))
	if err != nil {
		t.Fatal(err)
	}
	b = new(config.Block)
	err = SetupRoot(b, servers[0].Directives)
	if list := b.Warnings(); list != nil {
		warnings = fmt.Sprint(list)
	}
	return b, warnings, err
}

func TestRootRelativePaths(t *testing.T) {
	folder := t.TempDir()
	b, warnings, err := root(t, "root "+folder)
	if err != nil || warnings != "" {
		t.Fatalf("root %s: got error %v, warnings %q; want neither", folder, err, warnings)
	}
	if got, want := b.Path("db"), filepath.Join(folder, "db"); got != want {
		t.Errorf("Path(db) = %s, want %s", got, want)
	}
	if got := b.Path("/etc/db"); got != "/etc/db" {
		t.Errorf("Path(/etc/db) = %s, want /etc/db", got)
	}
}

func TestRootMissingDirectory(t *testing.T) {
	b, warnings, err := root(t, "root gone")
	if err != nil || b.Path("") != "gone" || warnings != "[Corefile:2: root: stat gone: no such file or directory]" {
		t.Errorf("root gone: got error %v, Path %q, warnings %q; want no error, gone, and a warning", err, b.Path(""), warnings)
	}
}

func TestRootErrors(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ text, want string }{
		{"root", "Corefile:2: root: want 1 argument, got 0"},
		{"root a b", "Corefile:2: root: want 1 argument, got 2"},
		{"root /\nroot /", "Corefile:3: root: already given at Corefile:2, and can be given once in a server block"},
		{"root / {\n x\n}", `Corefile:3: root: takes no options, got "x"`},
		{"root " + file, "Corefile:2: root: " + file + " is not a directory"},
		{"root " + file + "/x", "Corefile:2: root: stat " + file + "/x: not a directory"},
	} {
		if _, _, err := root(t, c.text); err == nil || err.Error() != c.want {
			t.Errorf("%s: got %v, want %s", c.text, err, c.want)
		}
	}
}
