//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// kustomizeModule has the program kustomize, which pages of deploy call.
var kustomizeModule = module{"kustomize", "sigs.k8s.io/kustomize/kustomize/v5", "5.8.1", "",
	[]program{{"kustomize", "sigs.k8s.io/kustomize/kustomize/v5", "1 minute"}}}

// A passage is the part of a page from a line that begins with a text to the next heading, or to a line that begins
// with another text.
type passage struct{ page, from, to string }

// programsOfPages are the programs that a command of a page begins with: other indented lines are files.
var programsOfPages = []string{"kubectl", "kustomize", "helm", "seamark", "cd", "sed", "cat"}

// commands returns the commands of a passage, each block of lines a script.
func (p passage) commands(page string) (scripts []string, err error) {
	var script []string
	found := false
	for line := range strings.Lines(page + "\n") {
		command, ok := strings.CutPrefix(strings.TrimRight(line, "\n"), "    ")
		switch {
		case !found:
			found = strings.HasPrefix(line, p.from)
			continue
		case ok && (len(script) > 0 || slices.Contains(programsOfPages, firstWord(command))):
			script = append(script, command)
			continue
		case len(script) > 0:
			scripts, script = append(scripts, strings.Join(script, "\n")), nil
		}
		if strings.HasPrefix(line, "## ") || p.to != "" && strings.HasPrefix(line, p.to) {
			break
		}
	}
	if len(scripts) == 0 {
		return nil, fmt.Errorf("%s: no commands from %q to %q", p.page, p.from, p.to)
	}
	return scripts, nil
}

func firstWord(line string) string {
	word, _, _ := strings.Cut(line, " ")
	return word
}

// placeholders replaces the names of the image on pages.
func placeholders() *strings.Replacer {
	name, tag, _ := strings.Cut(seamarkImage, ":")
	return strings.NewReplacer("REGISTRY/seamark:TAG", seamarkImage, "REGISTRY/seamark", name, "tag: TAG", "tag: "+tag)
}

// follow runs the commands of passages as a reader does, in a copy of deploy: those of a page of deploy in the page's
// directory, others beside deploy. It sets the name of the image in place of the page's.
func (t *conformance) follow(ctx context.Context, passages ...passage) error {
	dir, err := t.copyDeploy(ctx, filepath.Dir(passages[0].page))
	if err != nil {
		return err
	}
	path := []string{t.file("bin"), filepath.Dir(t.program(helmModule, "helm")), filepath.Dir(t.program(kustomizeModule, "kustomize"))}
	environment := append(t.userEnvironment(), "PATH="+strings.Join(append(path, os.Getenv("PATH")), ":"))

	for _, p := range passages {
		text, err := os.ReadFile(filepath.Join(t.Options.Source, p.page))
		if err != nil {
			return err
		}
		scripts, err := p.commands(string(text))
		if err != nil {
			return err
		}
		for _, script := range scripts {
			cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", placeholders().Replace(script))
			cmd.Dir, cmd.Env = dir, environment
			if _, err := output(cmd); err != nil {
				return fmt.Errorf("%s, %s: %w", p.page, p.from, err)
			}
		}
	}
	return nil
}

// copyDeploy copies deploy with the name of the image in the overlay canary, as its page says, and the cluster's
// Corefile, if it has one. It returns the directory for the commands of pages of a directory.
func (t *conformance) copyDeploy(ctx context.Context, pages string) (dir string, err error) {
	root := t.file("documented")
	source := os.DirFS(filepath.Join(t.Options.Source, "deploy"))
	if err := errors.Join(os.RemoveAll(root), os.CopyFS(filepath.Join(root, "deploy"), source)); err != nil {
		return "", err
	}

	overlay := filepath.Join(root, "deploy", "kubernetes", "canary", "kustomization.yaml")
	text, err := os.ReadFile(overlay)
	if err != nil {
		return "", err
	}
	name, tag, _ := strings.Cut(seamarkImage, ":")
	image := strings.NewReplacer("registry.example/seamark", name, "newTag: TAG", "newTag: "+tag)
	if err := os.WriteFile(overlay, []byte(image.Replace(string(text))), 0o644); err != nil {
		return "", err
	}

	dir = root
	if strings.HasPrefix(pages, "deploy") {
		dir = filepath.Join(root, pages)
	}
	if corefile, err := t.readCorefile(ctx); err == nil {
		return dir, os.WriteFile(filepath.Join(dir, "Corefile"), []byte(corefile), 0o644)
	}
	return dir, nil
}
