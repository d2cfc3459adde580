package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seamark/seamark/builtin"
	"github.com/seamark/seamark/cmd"
	"github.com/seamark/seamark/test/debian"
)

// TestManual writes the pages and formats them with groff, if that is installed.
func TestManual(t *testing.T) {
	output := t.TempDir()
	if err := run([]string{"-output", output, "-directives", "../../docs/reference/directives", "-version", "1.2.3", "-date", "2026-11-22T21:00:00Z"}); err != nil {
		t.Fatal(err)
	}
	for _, c := range cmd.Commands(builtin.Directives()).Commands() {
		page := read(t, filepath.Join(output, "man1", "seamark-"+c.Name()+".1"))
		if !strings.Contains(page, c.Short) {
			t.Errorf("the page of %s: got %.200q, want %q", c.Name(), page, c.Short)
		}
	}
	for _, d := range builtin.Directives() {
		page := read(t, filepath.Join(output, "man7", "seamark-"+d.Name+".7"))
		if !strings.Contains(page, "seamark-"+d.Name) || !strings.Contains(page, "Seamark 1.2.3") {
			t.Errorf("the page of %s: got %.200q, want its name and the version", d.Name, page)
		}
	}
	for name, want := range map[string]string{"seamark": "complete -o", "_seamark": "#compdef seamark", "seamark.fish": "complete -c seamark"} {
		if got := read(t, filepath.Join(output, "completions", name)); !strings.Contains(got, want) {
			t.Errorf("completions/%s: got %.200q, want %q", name, got, want)
		}
	}
	groff := debian.Program(t, "groff")
	pages, err := filepath.Glob(filepath.Join(output, "man[17]", "*"))
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(groff, append([]string{"-Kutf8", "-t", "-man", "-ww", "-z", "-Tutf8"}, pages...)...).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("groff: got error %v and warnings, want none\n%s", err, out)
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
