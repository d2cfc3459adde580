package cmd_test

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/seamark/seamark/builtin"
	"github.com/seamark/seamark/cmd"
)

// documented matches the command lines of a document: in backquotes, and after a prompt.
var documented = regexp.MustCompile("`(?:bin/)?seamark ([a-z][^`\n]*)`|(?m)^ *\\$ (?:bin/)?seamark ([a-z][^\n|<>;&]*)")

// The commands and flags of every command line in the documents exist, and each has as many
// arguments as the command takes.
func TestDocumentedCommandLines(t *testing.T) {
	files := []string{"../README.md", "../CHANGELOG.md"}
	for _, pattern := range []string{"../docs/*/*.md", "../docs/reference/directives/*.md", "../deploy/*/README.md"} {
		more, _ := filepath.Glob(pattern)
		files = append(files, more...)
	}
	count := 0
	for _, file := range files {
		for _, m := range documented.FindAllStringSubmatch(read(t, file), -1) {
			line, _, _ := strings.Cut(m[1]+m[2], " #")
			args := strings.Fields(strings.TrimSuffix(strings.TrimSpace(line), `\`))
			if slices.ContainsFunc(args, func(a string) bool { return strings.ContainsAny(a, "[]…'\"$(") || a == "..." }) {
				continue // a form, or words for a shell
			}

			count++
			c, rest, err := cmd.Commands(builtin.Directives()).Find(args)
			if err != nil || !c.HasParent() {
				if args[0] != "help" {
					t.Errorf("%s: seamark %s: got no command, want one (%v)", file, line, err)
				}
				continue
			}
			if c.GroupID == "older" || c.Name() == "node" {
				continue // flags with one dash, as of the programs that they replace
			}
			if err := c.ParseFlags(rest); err != nil && strings.HasPrefix(err.Error(), "unknown ") {
				t.Errorf("%s: seamark %s: got error %v, want none", file, line, err)
			} else if words := c.Flags().Args(); err == nil && m[2] != "" && c.ValidateArgs(words) != nil {
				t.Errorf("%s: seamark %s: got error %v, want none", file, line, c.ValidateArgs(words))
			}
		}
	}
	if count < 100 {
		t.Errorf("found %d command lines, too few", count)
	}
}
