package directive

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
)

// root sets up the directives of one server block.
func root(t *testing.T, text string) (b *config.Block, log string, err error) {
	t.Helper()
	servers, err := corefile.Parse("Corefile", []byte(".:53 {\n"+text+"\n}"))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	b = &config.Block{Log: slog.New(slog.NewTextHandler(&out, nil))}
	err = SetupRoot(b, servers[0].Directives)
	return b, out.String(), err
}

func TestRootRelativePaths(t *testing.T) {
	folder := t.TempDir()
	b, log, err := root(t, "root "+folder)
	if err != nil || log != "" {
		t.Fatalf("%v, log %q", err, log)
	}
	if got, want := b.Path("db"), filepath.Join(folder, "db"); got != want {
		t.Errorf("Path(db) = %s, want %s", got, want)
	}
	if got := b.Path("/etc/db"); got != "/etc/db" {
		t.Errorf("Path(/etc/db) = %s", got)
	}
}

func TestRootMissingDirectory(t *testing.T) {
	b, log, err := root(t, "root gone")
	if err != nil || b.Path("") != "gone" || !strings.Contains(log, `level=WARN msg="root: directory does not exist" file=gone`) {
		t.Errorf("%v, root %q, log %q", err, b.Path(""), log)
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
