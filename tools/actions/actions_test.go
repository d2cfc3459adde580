package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestPin pins a workflow to the commits of local repositories: with a tag, and with an annotated
// tag, which has a hash of its own. A second run changes nothing.
func TestPin(t *testing.T) {
	server := t.TempDir()
	plain := repository(t, server, "actions/checkout", "tag", "v5")
	annotated := repository(t, server, "ossf/scorecard-action", "tag", "--annotate", "--message", "x", "v2.4.3")

	directory := t.TempDir()
	if err := os.Mkdir(filepath.Join(directory, "workflows"), 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(directory, "workflows", "a.yml")
	const text = "steps:\n  - uses: actions/checkout@v5\n    with: {}\n  - name: b\n    uses: ossf/scorecard-action/path@v2.4.3 # old\n" +
		"  - uses: a/b@0123456789012345678901234567890123456789 # v1\n  - run: echo uses: x/y@v1\n  - uses: actions/checkout@v5"
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	want := strings.Replace(strings.ReplaceAll(text, "@v5", "@"+plain+" # v5"), "@v2.4.3 # old", "@"+annotated+" # v2.4.3", 1)

	for range 2 {
		if err := run([]string{"-directory", directory, "-server", server}); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(file); string(got) != want {
			t.Errorf("got\n%s(error %v), want\n%s", got, err, want)
		}
	}
	if got, err := os.ReadFile(filepath.Join(directory, "unpinned.txt")); len(got) != 0 || err != nil {
		t.Errorf("unpinned.txt: got %q and error %v, want an empty file", got, err)
	}
}

// TestPinUnknownTag changes no workflow if one of them has a tag that does not exist.
func TestPinUnknownTag(t *testing.T) {
	server := t.TempDir()
	repository(t, server, "actions/checkout", "tag", "v5")
	directory := t.TempDir()
	if err := os.Mkdir(filepath.Join(directory, "workflows"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, tag := range map[string]string{"a.yml": "v5", "b.yml": "v6"} {
		text := "steps:\n  - uses: actions/checkout@" + tag + "\n"
		if err := os.WriteFile(filepath.Join(directory, "workflows", name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}

	err := run([]string{"-directory", directory, "-server", server})
	if err == nil || !strings.Contains(err.Error(), "actions/checkout@v6") {
		t.Errorf("got error %v, want one that names actions/checkout@v6", err)
	}
	if got, err := os.ReadFile(filepath.Join(directory, "workflows", "a.yml")); !strings.HasSuffix(string(got), "@v5\n") {
		t.Errorf("a.yml: got %s (error %v), want it unchanged", got, err)
	}
}

// repository makes a repository with one commit and a tag, and returns the commit.
func repository(t *testing.T, server, name string, tag ...string) (hash string) {
	t.Helper()
	directory := filepath.Join(server, name)
	for _, args := range [][]string{
		{"init", "--quiet", directory},
		{"-C", directory, "commit", "--quiet", "--allow-empty", "--message", "x"},
		append([]string{"-C", directory}, tag...),
		{"-C", directory, "rev-parse", "HEAD"},
	} {
		c := exec.Command("git", args...)
		c.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_AUTHOR_NAME=x",
			"GIT_AUTHOR_EMAIL=x@example.org", "GIT_COMMITTER_NAME=x", "GIT_COMMITTER_EMAIL=x@example.org")
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		hash = strings.TrimSpace(string(out))
	}
	return hash
}
