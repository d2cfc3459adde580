package cmd_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seamark/seamark/corefile"
)

func TestFormat(t *testing.T) {
	dir := t.TempDir()
	const messy, tidy = ".:53 {\n log # all\n}\n", ".:53 {\n    log # all\n}\n"
	write(t, filepath.Join(dir, "messy"), messy)
	write(t, filepath.Join(dir, "tidy"), tidy)
	write(t, filepath.Join(dir, "open"), ".:53 {\n log\n")
	const changes = "diff messy messy (formatted)\n--- messy\n+++ messy (formatted)\n@@ -1,3 +1,3 @@\n .:53 {\n- log # all\n+    log # all\n }\n"
	for _, c := range []struct {
		args         []string
		in, out, err string
		code         int
	}{
		{[]string{"fmt", "messy"}, "", tidy, "", 0},
		{[]string{"fmt", "-"}, messy, tidy, "", 0},
		{[]string{"fmt", "--diff", "messy"}, "", changes, "messy: not formatted\n", 1},
		{[]string{"fmt", "-d", "tidy"}, "", "", "", 0},
		{[]string{"fmt", "open"}, "", "", "open:1: the { is not closed\n", 1},
		{[]string{"fmt", "--overwrite", "open"}, "", "", "open:1: the { is not closed\n", 1},
		{[]string{"fmt"}, "", "", "open Corefile: no such file or directory\n", 1},
		{[]string{"fmt", "-w", "-d", "messy"}, "", "", "seamark: set only one of --overwrite and --diff\nSee seamark fmt --help.\n", 2},
		{[]string{"fmt", "-w", "-"}, messy, "", "seamark: --overwrite: want a file, got standard input\nSee seamark fmt --help.\n", 2},
	} {
		out, stderr, code := run(t, dir, c.in, c.args...)
		if out != c.out || stderr != c.err || code != c.code {
			t.Errorf("seamark %q: got %q, %q, status %d; want %q, %q, status %d", c.args, out, stderr, code, c.out, c.err, c.code)
		}
	}
}

// Standard input has the limit of files, and nothing of it is cut off.
func TestFormatLimit(t *testing.T) {
	long(t)
	in := "a {\n" + strings.Repeat("#\n", corefile.TextLimit/2) + "}\n"
	out, stderr, code := run(t, t.TempDir(), in, "fmt", "-")
	if out != "" || !strings.Contains(stderr, "larger than 64 MB") || code != 1 {
		t.Errorf("seamark fmt - with %d bytes: got %d bytes, %q, status %d; want an error about the size", len(in), len(out), stderr, code)
	}
}

// Fmt --overwrite keeps the permissions of the file and a symbolic link to it.
func TestFormatOverwrite(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	write(t, file, "a {\nlog\n}\n")
	if err := os.Chmod(file, 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("file", link); err != nil {
		t.Fatal(err)
	}
	if out, stderr, code := run(t, dir, "", "fmt", "--overwrite", "link"); out+stderr != "" || code != 0 {
		t.Fatalf("fmt --overwrite: got %q, %q, status %d", out, stderr, code)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Lstat(link)
	if err != nil {
		t.Fatal(err)
	}
	if want := "a {\n    log\n}\n"; string(text) != want || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("fmt --overwrite: got %q, mode of the link %v; want %q and a link", text, info.Mode(), want)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("permissions: got %v, error %v, want -rw-r-----", info.Mode(), err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("got %v, error %v, want two files", entries, err)
	}
}
