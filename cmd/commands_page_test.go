package cmd_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/seamark/seamark/builtin"
	"github.com/seamark/seamark/cmd"
	"github.com/spf13/cobra"
)

const commandsPage = "../docs/reference/commands.md"

// everyday are the commands of the page, as in the help; others have pages of their own.
var everyday = []string{
	"serve", "check", "plan", "fmt", "doctor", "diff", "canary", "shadow",
	"status", "top", "tail", "explain", "query", "records", "cache", "policy", "ui",
}

// ownPage has the commands of the help that are on another page.
var ownPage = []string{"node", "resolvconf", "convert", "completion", "version"}

// docs/reference/commands.md has every command with its purpose, and what its exit status means.
// `seamark help` has the rest.
func TestCommandsPage(t *testing.T) {
	root := cmd.Commands(builtin.Directives())
	var page strings.Builder
	var meanings []string
	commands := map[string][]string{} // by the meaning of their exit status
	page.WriteString(commandsIntroduction)
	for _, name := range everyday {
		c, _, err := root.Find([]string{name})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range append([]*cobra.Command{c}, c.Commands()...) {
			fmt.Fprintf(&page, "- `%s`: %s\n", strings.TrimSuffix(c.UseLine(), " [flags]"), lower(c.Short))
			for paragraph := range strings.SplitSeq(strings.TrimSpace(c.Long), "\n\n") {
				if strings.Contains(paragraph, "exit status") {
					if commands[paragraph] == nil {
						meanings = append(meanings, paragraph)
					}
					commands[paragraph] = append(commands[paragraph], "`"+c.CommandPath()+"`")
				}
			}
		}
	}
	page.WriteString("\n## Exit status\n\n0 is success, and 2 a mistake in the command line.\n\n")
	for _, meaning := range meanings {
		text := strings.ReplaceAll(escaped.Replace(meaning), "\n", "\n  ")
		fmt.Fprintf(&page, "- %s: %s\n", strings.Join(commands[meaning], ", "), text)
	}
	for _, c := range root.Commands() {
		if c.GroupID != "older" && c.IsAvailableCommand() && !slices.Contains(slices.Concat(everyday, ownPage), c.Name()) {
			t.Errorf("seamark %s is not on the page", c.Name())
		}
	}

	if *update {
		write(t, commandsPage, page.String())
	}
	if got := read(t, commandsPage); got != page.String() {
		t.Errorf("%s is old: run go test ./cmd -run TestCommandsPage -update; want\n%s", commandsPage, page.String())
	}
}

const commandsIntroduction = `# Commands

` + "`seamark help COMMAND`" + ` describes each with its flags and examples, and so does its manual page, as
` + "`man seamark-status`" + `. The commands that [look into running servers](../how-to/inspect.md) find them, or use
the address in ` + "`--admin`" + `. [node](node.md), [resolvconf](resolvconf.md) and [convert](convert.md) have pages
of their own, and so have the commands of older generations (` + "`seamark help --all`" + `).

`

// escaped replaces what has a meaning in Markdown.
var escaped = strings.NewReplacer("<", "&lt;", "*", `\*`, "[", `\[`)

// lower returns a sentence with a small first letter.
func lower(s string) string { return strings.ToLower(s[:1]) + s[1:] }
