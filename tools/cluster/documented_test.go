//go:build linux

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A passage has the commands between its lines, each block a script, and no file that a page shows.
func TestPassageCommands(t *testing.T) {
	const page = `    kubectl before

## One, by hand

Text.

    cat >file <<EOF
    a: {b: c}
    EOF

    extra: [{name: custom}]

    kubectl apply -k .
    kubectl rollout

To revert:

    kubectl undo

## Two

    kubectl after
`
	file, apply, undo := "cat >file <<EOF\na: {b: c}\nEOF", "kubectl apply -k .\nkubectl rollout", "kubectl undo"
	for _, c := range []struct {
		from, to string
		want     []string
	}{
		{"## One", "", []string{file, apply, undo}},
		{"## One", "To revert:", []string{file, apply}},
		{"To revert:", "", []string{undo}},
		{"## Two", "", []string{"kubectl after"}},
		{"## Three", "", nil},
		{"## One", "Text.", nil},
	} {
		got, err := passage{"page", c.from, c.to}.commands(page)
		if !slices.Equal(got, c.want) || (err != nil) != (c.want == nil) {
			t.Errorf("commands from %q to %q: got %q, error %v, want %q", c.from, c.to, got, err, c.want)
		}
	}
}

// The pages have the passages that the suites follow, and no name in them that a reader has to replace is left.
func TestPassagesExist(t *testing.T) {
	all := []passage{helmCanaryPassage, helmNodePassage, imagePassage, basePassage, overlayPassage}
	for _, way := range freshWays() {
		all = append(all, way.passages...)
	}
	for _, p := range append(all, containerPassages...) {
		text, err := os.ReadFile(filepath.Join("..", "..", p.page))
		if err != nil {
			t.Fatal(err)
		}
		scripts, err := p.commands(string(text))
		if err != nil {
			t.Errorf("%v", err)
		}
		for _, script := range scripts {
			if left := placeholders().Replace(script); strings.Contains(left, "REGISTRY") || strings.Contains(left, "TAG") {
				t.Errorf("%s, %s: got the command %q, want no placeholder", p.page, p.from, left)
			}
		}
	}
}

// The page of the canary has its commands.
func TestCanarySteps(t *testing.T) {
	c := &conformance{cluster: newCluster(&state{Options: options{Source: filepath.Join("..", "..")}})}
	got, err := c.canarySteps(" --x")
	want := []string{"start --image " + seamarkImage + " --x", "promote --x", "promote --x", "promote --x", "rollback --x", "rollback --delete --x"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("canarySteps: got %q, error %v, want %q", got, err, want)
	}
}
