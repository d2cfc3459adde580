package dynupdate

import (
	"os"
	"path/filepath"
	"testing"
)

// The path of a database below a linked directory is the same before and after the database exists.
func TestDatabasePath(t *testing.T) {
	dir := t.TempDir()
	real, link := filepath.Join(dir, "real"), filepath.Join(dir, "link")
	if err := os.Mkdir(real, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(real, link); err != nil {
		t.Skip(err)
	}

	before, err := databasePath(filepath.Join(link, "db"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(before, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if after, err := databasePath(filepath.Join(link, "db")); err != nil || after != before {
		t.Errorf("got %s and then %s, error %v; want the same", before, after, err)
	}
}
