// Command actions pins the actions that workflows use to commits: it asks git for the commit of each
// tag, writes it in the tag's place, and the tag after it as a comment. A tag can be moved to another
// commit, a hash names one for ever. Actions that are pinned already stay as they are.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/seamark/seamark/tools/build"
)

// A step that uses an action: the text before the action, its repository, its path there, and the
// tag or commit.
var uses = regexp.MustCompile(`(?m)^(\s*-?\s*uses: )([\w.-]+/[\w.-]+)((?:/[\w./-]+)?)@([^\s#]+)(.*)$`)

// commit matches the hash of a commit.
var commit = regexp.MustCompile(`^[0-9a-f]{40}$`)

func main() {
	build.Main("actions", run)
}

func run(args []string) error {
	f := flag.NewFlagSet("actions", flag.ContinueOnError)
	directory := f.String("directory", "../.github", "directory with workflows, and with unpinned.txt")
	server := f.String("server", "https://github.com", "URL or directory with the repositories of actions")
	if err := build.Parse(f, args); err != nil {
		return err
	}

	workflows, err := filepath.Glob(filepath.Join(*directory, "workflows", "*.yml"))
	if err != nil {
		return err
	}
	if len(workflows) == 0 {
		return fmt.Errorf("%s has no workflows", *directory)
	}

	// Every action is looked up before the first file changes.
	changed, found := map[string]string{}, map[string]string{}
	for _, name := range workflows {
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if changed[name], err = pin(string(text), *server, found); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}

	for name, text := range changed {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(*directory, "unpinned.txt"), nil, 0o644)
}

// pin returns the text of a workflow with commits in place of tags. It remembers commits in found,
// by repository and tag.
func pin(text, server string, found map[string]string) (string, error) {
	var errs []error
	text = uses.ReplaceAllStringFunc(text, func(line string) string {
		m := uses.FindStringSubmatch(line)
		before, repository, path, tag := m[1], m[2], m[3], m[4]
		if commit.MatchString(tag) {
			return line
		}

		key := repository + "@" + tag
		if found[key] == "" {
			hash, err := lookUp(server+"/"+repository, tag)
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", key, err))
				return line
			}
			found[key] = hash
			fmt.Fprintf(os.Stderr, "actions: %s is %s\n", key, hash)
		}
		return before + repository + path + "@" + found[key] + " # " + tag
	})
	return text, errors.Join(errs...)
}

// lookUp returns the commit of a tag of a repository.
func lookUp(repository, tag string) (string, error) {
	c := exec.Command("git", "ls-remote", "--", repository, "refs/tags/"+tag, "refs/tags/"+tag+"^{}")
	c.Stderr = os.Stderr
	out, err := c.Output()
	if err != nil {
		return "", fmt.Errorf("git ls-remote: %w", err)
	}

	// An annotated tag is an object of its own; the line with ^{} is last, and has its commit.
	var hash string
	for line := range strings.Lines(string(out)) {
		hash, _, _ = strings.Cut(line, "\t")
	}
	if !commit.MatchString(hash) {
		return "", fmt.Errorf("%s has no tag %s", repository, tag)
	}
	return hash, nil
}
